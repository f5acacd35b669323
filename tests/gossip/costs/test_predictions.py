"""Predictions for splits: by hand, and how they move with what they depend on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grid_models import ALEXNET, PAIR, all_reduced, flat

import topologies
from gossip.costs import KINDS, Across, Job, Layer, LinkSpeed, Machine, Pace, Prediction, choose, predict
from gossip.costs.inner_kinds import inner_costs
from gossip.errors import SettingsError
from gossip.grids import Grid
from topologies import Schedule

FAST = LinkSpeed(1.25e9, 0.0)
SLOW = LinkSpeed(6.25e6, 0.0)
#: Two hosts with two slots each, on links of 50 Mbit/s.
TWO_BY_TWO = Machine((2, 2), FAST, SLOW)
SIZE = 4 * sum(layer.weights for layer in PAIR)
#: A small network of all kinds: images of 32 x 32, two convolutions, two linear layers.
IMAGES = (
    Layer.convolution("first", (3, 32, 32), 8, 3, padding=1),
    Layer.convolution("second", (8, 32, 32), 16, 5, padding=2),
    Layer.linear("wide", 16 * 32 * 32, 64),
    Layer.linear("narrow", 64, 10),
)


def exponential(n: int) -> Schedule:
    return topologies.get("one-peer-exponential", n)


def gossiped(layers: tuple[Layer, ...], batch: int, pace: float = 0.0, **across: object) -> Job:
    return Job(layers, batch, Pace(pace), Across(**across))  # type: ignore[arg-type]


def one(job: Job, machine: Machine, grid: str, kind: str, **more: object) -> Prediction:
    return predict(job, machine, Grid.parse(grid), kind, schedule=exponential, **more)  # type: ignore[arg-type]


def test_gossip_sends_a_share_of_a_row_whatever_the_number_of_replicas() -> None:
    for rows, replicas in ((1, 2), (1, 16), (4, 2), (4, 64)):
        grid, kind = f"{rows}x{replicas}", "data" if rows == 1 else "tensor"
        job = gossiped(PAIR, 4096, share=0.5, codec=0.25)
        assert one(job, flat(rows * replicas), grid, kind).across_volume.size == SIZE / rows / 8


def test_the_small_version_of_the_papers_point() -> None:
    """2 hosts x 2 slots, 50 Mbit/s, 2.1 MB: the best split depends on the batch, and is neither extreme at 2048."""
    job = gossiped(PAIR, 2048, overlaps=False)
    model = SIZE / SLOW.rate
    steps = {
        (str(split.grid), split.kind): split.step
        for split in choose(job, TWO_BY_TWO, schedule=exponential, spanning=True).splits
        if split.fits
    }
    assert steps["1x4", "data"] == pytest.approx(1.5 * model)  # one neighbour is inside in every other step, for half
    assert steps["2x2", "tensor"] == pytest.approx(model, rel=0.01)
    assert steps["4x1", "fsdp"] == pytest.approx(3 * model)
    assert steps["4x1", "tensor"] == pytest.approx(2 * 0.75 * 4 * 2048 * 256 / SLOW.rate)
    for batch, best in ((256, "4x1"), (2048, "2x2")):
        found = choose(replace(job, batch=batch), TWO_BY_TWO, schedule=exponential, spanning=True).best
        assert found is not None
        assert (str(found.grid), found.kind) == (best, "tensor")


def test_fsdp_on_gloo_sends_four_times_the_weights_and_elsewhere_three_times() -> None:
    for backend, times in (("gloo", 4), ("nccl", 3)):
        split = one(replace(gossiped(PAIR, 64), backend=backend), flat(4), "4x1", "fsdp")
        assert 4 * split.inner_volume.size == times * 3 * SIZE  # all rows together: (N - 1) |W|


def test_a_pair_of_linear_layers_reduces_once_forward_and_once_backward() -> None:
    before = Layer.linear("before", 32, 256)
    costs = inner_costs("tensor", (before, *PAIR, Layer.linear("last", 256, 10)), 4, samples=8)
    part = 2 * 0.75 * 4 * 8
    assert [cost.role for cost in costs] == ["columns", "rows", "columns", "rows"]
    assert [cost.volume.size for cost in costs] == [0, part * 1024, part * 1024, part * 10]


def test_a_linear_layer_without_a_partner_is_gathered() -> None:
    (cost,) = inner_costs("tensor", PAIR[:1], 4, samples=8)
    assert cost.volume.size == 0.75 * 4 * 8 * 1024


def test_what_every_row_holds_is_gathered_after_the_exchange_with_one_message() -> None:
    norms = tuple(Layer(f"norm{i}", "norm", weights=100) for i in range(5))
    split = one(gossiped((*norms, *PAIR), 64), flat(4), "2x2", "tensor")
    alone = one(gossiped((*norms, *PAIR), 64), flat(2), "2x1", "tensor")
    assert [layer.gathering.size for layer in split.layers] == [200.0] * 5 + [0.0] * 2
    assert [layer.gathering.size for layer in alone.layers] == [200.0] * 5 + [0.0] * 2, "one replica's rows do so too"
    assert split.inner_volume.messages == sum(layer.inner.messages for layer in split.layers) + 1


def test_domain_parallel_sends_the_rows_at_the_seams() -> None:
    """By hand: k = 3 reads one row across a seam, k = 5 two; a band in the middle has two seams."""
    for rows, seams in ((2, 1), (4, 2)):
        first, second, wide, narrow = inner_costs("domain", IMAGES, rows, samples=6)
        part = (rows - 1) / rows
        once, twice = 4 * 6 * 32 * 3 * 1 * seams, 2 * 4 * 6 * 32 * 8 * 2 * seams
        assert first.volume.size == pytest.approx(once + 2 * part * 4 * IMAGES[0].weights)
        assert second.volume.size == pytest.approx(twice + 2 * part * 4 * IMAGES[1].weights)
        assert wide.volume.size == pytest.approx(part * 4 * 6 * IMAGES[2].inputs)
        assert narrow.volume.size == 0
        assert [cost.work for cost in (first, second, wide, narrow)] == [1 / rows, 1 / rows, 1, 1]


def test_a_stride_reads_less_across_a_seam() -> None:
    (strided,) = (Layer.convolution("conv", (3, 32, 32), 8, 3, stride=3),)
    volume = inner_costs("domain", (strided,), 2, samples=1)[0].volume
    assert volume.size == pytest.approx(4 * strided.weights)


def test_the_mix_splits_convolutions_by_samples_and_gathers_before_the_first_linear_layer() -> None:
    costs = inner_costs("mixed", IMAGES, 2, samples=6)
    assert [cost.role for cost in costs] == ["batch", "batch", "columns", "rows"]
    assert costs[0].volume.size == 4 * IMAGES[0].weights
    gathered = 4 * 6 * IMAGES[2].inputs / 2
    assert costs[2].volume.size == pytest.approx(gathered + 2 * gathered)
    elsewhere = inner_costs("mixed", IMAGES, 2, samples=6, backend="nccl")[2]
    assert elsewhere.volume.size == pytest.approx(2 * gathered)  # gather forward, reduce-scatter backward


def test_computing_is_divided_where_the_kind_divides_it() -> None:
    job = gossiped(IMAGES, 64, pace=1.0)
    work = [layer.work for layer in IMAGES]
    convolutions, linear = sum(work[:2]) / sum(work), sum(work[2:]) / sum(work)
    expected = {
        "fsdp": 8.0,
        "mixed": 8.0,
        "tensor": 32 * (convolutions + linear / 4),
        "domain": 32 * (convolutions / 4 + linear),
    }
    for kind, seconds in expected.items():
        assert one(job, flat(8), "4x2", kind).computing == pytest.approx(seconds)
    assert one(replace(job, pace=Pace(1.0, 5.0)), flat(8), "1x8", "data").computing == 13.0


def test_an_exchange_across_hides_behind_computing_unless_peers_wait() -> None:
    slow = gossiped(PAIR, 4, pace=100.0)
    split = one(slow, TWO_BY_TWO, "1x4", "data")
    assert split.step == split.computing == 100.0
    assert split.exposed == 0
    waits = one(replace(slow, across=Across(overlaps=False)), TWO_BY_TWO, "1x4", "data")
    assert waits.step == pytest.approx(100.0 + waits.across)
    assert waits.exposed == pytest.approx(waits.across)


def test_a_crew_over_hosts_uses_their_links_and_is_considered_only_if_asked_for() -> None:
    job = gossiped(PAIR, 256)
    refused = one(job, TWO_BY_TWO, "4x1", "fsdp")
    assert refused.reason == "the crew would span hosts: host 0 has 2 slots, which 4 rows do not divide"
    split = one(job, TWO_BY_TWO, "4x1", "fsdp", spanning=True)
    assert split.inner == pytest.approx(4 * 0.75 * SIZE / SLOW.rate)


def test_crews_that_meet_on_a_host_share_its_link() -> None:
    """Three hosts, two crews: both reach over from the host in the middle."""
    split = one(gossiped(PAIR, 256), Machine((1, 2, 1), FAST, SLOW), "2x2", "fsdp", spanning=True)
    assert split.inner == pytest.approx(2 * (4 * 0.5 * SIZE) / SLOW.rate)


def test_messages_take_their_latency_once_for_what_travels_together() -> None:
    """By hand, with links of any rate: 2x2, tensor parallel, and two norms that every row holds."""
    late = LinkSpeed(1e30, 1.0)
    norms = tuple(Layer(f"norm{i}", "norm", weights=100) for i in range(2))
    split = one(gossiped((*norms, *PAIR), 64), flat(4, late), "2x2", "tensor")
    # The columns reduce backward, the rows reduce forward, and the norms are gathered: 2 + 2 + 1.
    assert split.inner == pytest.approx(5.0)
    assert split.across == pytest.approx(1.0)
    assert one(gossiped(PAIR, 64, frequency=0.25), flat(2, late), "1x2", "data").across == pytest.approx(0.25)
    far = Machine((1, 1), FAST, LinkSpeed(1e30, 7.0))
    assert one(gossiped(PAIR, 64), far, "1x2", "data").across == pytest.approx(7.0)


def test_bands_sum_the_statistics_of_batch_norm_and_what_is_pooled_over_the_image() -> None:
    shape = IMAGES[0].image
    assert shape is not None
    norm = Layer("norm", "norm", weights=16, inputs=8192, outputs=8192, image=replace(shape, overlap=0))
    pooled = Layer("pool", "reduction", inputs=8192, outputs=8)
    _, statistics, reduction, last = inner_costs("domain", (IMAGES[0], norm, pooled, PAIR[0]), 2, samples=6)
    assert statistics.volume.size == 3 * 4 * 16  # of the gradients, and of the statistics forward and backward
    assert reduction.volume.size == 4 * 6 * 8
    assert last.volume.size == 0


def test_an_all_reduce_across_shares_the_links_of_hosts() -> None:
    """Two rings, one for each row, leave every host: 2 (P_c - 1) / P_c of the whole model."""
    machine = Machine((2, 2, 2, 2), FAST, SLOW)
    split = predict(all_reduced(PAIR, 64), machine, Grid(2, 4), "tensor")
    assert split.across == pytest.approx(2 * 0.75 * SIZE / SLOW.rate)


def test_memory_by_hand() -> None:
    job = replace(gossiped(PAIR, 64, share=0.5), states=2)
    data = one(job, flat(4), "1x4", "data").memory
    sharded = one(job, flat(4), "2x2", "fsdp").memory
    split = one(job, flat(4), "4x1", "tensor").memory
    assert data is not None
    assert sharded is not None
    assert split is not None
    assert (data.parameters, data.gradients, data.optimizer) == (SIZE, SIZE, 2 * SIZE)
    assert data.exchange == 2 * SIZE / 2
    assert data.activations == 4 * 16 * (1024 + 256)
    assert data.total == 5 * SIZE + data.activations
    assert (sharded.parameters, sharded.optimizer, sharded.exchange) == (SIZE / 2, SIZE, SIZE / 2)
    assert sharded.gathered == 2 * 4 * 256 * 1024
    assert sharded.activations == data.activations
    assert (split.parameters, split.exchange, split.gathered) == (SIZE / 4, 0, 0)
    assert split.activations == 4 * 64 * (1024 / 4 + 256)


def test_memory_rules_out_what_does_not_fit() -> None:
    job = gossiped(PAIR, 64)
    whole = one(job, flat(4), "1x4", "data").memory
    assert whole is not None
    choice = choose(job, flat(4), schedule=exponential, memory=whole.total - 1)
    assert choice.splits[0].reason == "needs 10 MiB per process; 10 MiB are allowed"
    assert choice.best is not None
    assert choice.best.grid.rows > 1
    assert "1x4 data needs 10 MiB" in choice.why
    nothing = choose(job, flat(4), schedule=exponential, memory=1000.0)
    assert nothing.best is None
    assert nothing.why.startswith("No split fits: 1x4 data needs ")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_slower_links_and_larger_models_never_take_less(kind: str) -> None:
    job = gossiped(IMAGES, 64, pace=1e-3)
    last = 0.0
    for rate in (1e9, 1e8, 1e7):
        split = predict(job, flat(8, LinkSpeed(rate, 1e-4)), Grid(4, 2), kind, schedule=exponential)
        assert split.fits
        assert split.step > last
        last = split.step
    wider = (*IMAGES[:2], replace(IMAGES[2], weights=2 * IMAGES[2].weights), IMAGES[3])
    assert (
        one(replace(job, layers=wider), flat(8), "4x2", kind).communication
        > one(job, flat(8), "4x2", kind).communication
    )


@pytest.mark.parametrize("kind", ["tensor", "domain"])
def test_a_larger_batch_moves_more_activations_but_not_more_weights(kind: str) -> None:
    small, large = (one(gossiped(IMAGES, batch), flat(8), "4x2", kind) for batch in (64, 128))
    assert large.inner_volume.size > small.inner_volume.size
    assert large.across_volume == small.across_volume
    fsdp = [one(gossiped(IMAGES, batch), flat(8), "4x2", "fsdp").communication for batch in (64, 128)]
    assert fsdp[0] == fsdp[1]


@pytest.mark.parametrize(
    ("layers", "batch", "grid", "kind", "reason"),
    [
        (IMAGES, 4, "1x8", "data", "less than one sample"),
        (IMAGES, 4, "4x2", "fsdp", "2 samples per replica are fewer than its 4 rows"),
        (IMAGES[:2], 64, "4x2", "tensor", "the model has no linear layer"),
        (PAIR, 64, "4x2", "domain", "the model has no convolution"),
        (PAIR, 64, "4x2", "mixed", "the model has no convolution"),
        (IMAGES, 640, "128x1", "tensor", "wide has 64 columns for 128 rows of a crew"),
        (ALEXNET[2:], 640, "16x1", "domain", "conv3 has 13 rows of an image for 16 rows of a crew"),
        (IMAGES, 640, "32x1", "domain", "second reads further than one neighbour's rows of the image"),
    ],
)
def test_what_cannot_be_had_says_why(layers: tuple[Layer, ...], batch: int, grid: str, kind: str, reason: str) -> None:
    split = one(gossiped(layers, batch), flat(Grid.parse(grid).size), grid, kind)
    assert not split.fits
    assert split.reason == reason


def test_the_reason_names_what_the_slower_split_spends_more_on() -> None:
    job = gossiped(PAIR, 2048, overlaps=False)
    choice = choose(job, TWO_BY_TWO, schedule=exponential, spanning=True)
    assert choice.why.startswith(
        "2x2 tensor has the shortest step, 336 ms: 1x4 data takes 503 ms, with 168 ms more of "
    )
    assert choice.why.endswith("waiting for traffic between replicas.")
    near = choose(gossiped(PAIR, 2048, pace=1e-3), flat(4), schedule=exponential)
    assert near.why.startswith("1x4 data has the shortest step, 512 ms: 2x2 ")
    assert near.why.endswith("more of traffic inside the crew.")


def test_equal_steps_are_decided_by_how_busy_a_process_is() -> None:
    """Every row computes all convolutions in tensor parallel; the mix divides them, and sends a little more."""
    choice = choose(gossiped(ALEXNET, 256, pace=1e-3), Machine((4, 4), FAST, SLOW), schedule=exponential)
    assert choice.best is not None
    equal = {split.kind: split for split in choice.splits if split.fits and split.step == choice.best.step}
    assert {"fsdp", "tensor", "mixed", "domain"} <= equal.keys()
    assert equal["tensor"].communication < equal["mixed"].communication
    assert choice.best is equal["mixed"]


def test_misuse_is_refused() -> None:
    job = gossiped(PAIR, 64)
    with pytest.raises(SettingsError, match=r"kind must be one of data, fsdp.*not 'magic'"):
        one(job, flat(4), "2x2", "magic")
    with pytest.raises(SettingsError, match="grid 2x4 has 8 processes, but the hosts have 4 slots"):
        one(job, flat(4), "2x4", "tensor")
    with pytest.raises(SettingsError, match="kind data does not suit the grid 2x2"):
        one(job, flat(4), "2x2", "data")
    with pytest.raises(SettingsError, match="kind fsdp does not suit the grid 1x4"):
        one(job, flat(4), "1x4", "fsdp")
    with pytest.raises(SettingsError, match="schedule is needed to predict the gossip of 4 replicas"):
        predict(job, flat(4), Grid(1, 4), "data")
    with pytest.raises(SettingsError, match="batch must be 1 or more samples, not 0"):
        gossiped(PAIR, 0)
    with pytest.raises(SettingsError, match="layers must not be empty"):
        gossiped((), 1)
    with pytest.raises(SettingsError, match="backend must be gloo or nccl, not 'mpi'"):
        replace(job, backend="mpi")
    with pytest.raises(SettingsError, match="states must be 0 or more"):
        replace(job, states=-1)
    with pytest.raises(SettingsError, match="share must be a fraction"):
        Across(share=0.0)
    with pytest.raises(SettingsError, match="codec must be above 0"):
        Across(codec=0.0)
    with pytest.raises(SettingsError, match="kind of the layer x must be one of"):
        Layer("x", "magic")
    with pytest.raises(SettingsError, match="weights of the layer x must be 0 or more"):
        Layer("x", "other", weights=-1)
    with pytest.raises(SettingsError, match="kernel 5 of x is larger than its images of 3 rows"):
        Layer.convolution("x", (1, 3, 3), 1, 5)


def test_a_layer_that_is_cut_by_its_inputs_may_have_fewer_outputs_than_rows() -> None:
    assert one(gossiped(IMAGES, 640), flat(16), "16x1", "tensor").fits, "the head has 10 outputs and 64 inputs"
