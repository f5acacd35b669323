"""A trainer gets its part of the swarm's epochs: all when alone, and the very same batches after an interruption."""

from __future__ import annotations

import re
from collections import Counter, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

from gossip.errors import SettingsError
from peers.data.batches import Batches, to_device
from peers.data.dataset_checks import size_of_batches
from peers.data.progress import CHUNK_LIMIT, ProgressError

Pair = namedtuple("Pair", "x y")


class Big(Dataset[int]):
    """More batches than an epoch may have chunks: a chunk is three batches of two samples."""

    def __len__(self) -> int:
        return CHUNK_LIMIT * 6 - 3

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def plain(batches: Batches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize(("n", "size"), [(10, 3), (9, 3), (1, 1), (5, 100), (300, 7)])
def test_alone_a_peer_gets_every_sample_once_per_epoch(n: int, size: int) -> None:
    batches = Batches(range(n), size, 3)
    found = plain(batches)
    per_epoch = -(-n // size)
    assert len(found) == 3 * per_epoch
    for epoch in range(3):
        part = found[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(sample for batch in part for sample in batch) == list(range(n))
        assert sorted(map(len, part)) == sorted([size] * (n // size) + ([n % size] if n % size else []))
    assert batches.samples == 3 * n
    assert batches.progress.finished
    assert plain(batches) == []


def test_the_last_batch_can_be_dropped() -> None:
    found = plain(Batches(range(10), 3, 2, drop_last=True))
    assert [len(batch) for batch in found] == [3] * 6
    for epoch in range(2):
        samples = [sample for batch in found[3 * epoch : 3 * epoch + 3] for sample in batch]
        assert len(set(samples)) == 9


def test_epochs_differ_and_a_seed_repeats() -> None:
    found = plain(Batches(range(100), 100, 2))
    assert found[0] != found[1]
    assert plain(Batches(range(100), 100, 2)) == found
    assert plain(Batches(range(100), 100, 2, seed=1)) != found
    assert plain(Batches(range(100), 100, 2, rank=5)) == found


def test_a_chunk_of_several_batches_is_marked_when_its_last_batch_is_consumed() -> None:
    news: list[float] = []
    batches = Batches(Big(), 2, 1, on_progress=lambda: news.append(batches.progress.fraction))
    stream = iter(batches)
    for taken in range(1, 8):
        next(stream)
        assert len(news) == (taken - 1) // 3
        assert batches.samples == 2 * taken
    assert news == [1 / CHUNK_LIMIT, 2 / CHUNK_LIMIT]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 says so of any process with threads
def test_a_resumed_run_goes_on_with_the_very_next_batch(workers: int) -> None:
    whole = [batch.tolist() for _, batch in zip(range(40), Batches(Big(), 2, 2, seed=4), strict=False)]
    for stop in (0, 1, 2, 3, 4, 17):
        first = Batches(Big(), 2, 2, seed=4, num_workers=workers)
        stream = iter(first)
        before = [next(stream).tolist() for _ in range(stop)]
        state = first.state()
        del stream
        second = Batches(Big(), 2, 2, seed=4, num_workers=workers)
        second.restore(state)
        assert second.samples == first.samples == 2 * stop
        stream = iter(second)
        assert before + [next(stream).tolist() for _ in range(40 - stop)] == whole
        del stream


def test_a_run_interrupted_at_every_batch_is_the_run_that_was_not() -> None:
    whole = plain(Batches(range(11), 2, 4))
    found, state = [], Batches(range(11), 2, 4).state()
    for _ in range(len(whole)):
        batches = Batches(range(11), 2, 4)
        batches.restore(state)
        found.append(next(iter(batches)).tolist())
        state = batches.state()
    assert found == whole
    last = Batches(range(11), 2, 4)
    last.restore(state)
    assert plain(last) == []
    assert last.progress.finished
    assert last.samples == 44


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_leaving_a_loop_and_beginning_another_goes_on(workers: int) -> None:
    whole, batches, found = plain(Batches(range(30), 2, 2)), Batches(range(30), 2, 2, num_workers=workers), []
    for _ in range(len(whole) // 4 + 1):
        for count, batch in enumerate(batches, start=1):
            found.append(batch.tolist())
            if count == 4:
                break
    assert found == whole


def test_a_new_loop_takes_over_from_one_that_is_still_held() -> None:
    whole, batches = plain(Batches(range(30), 2, 1)), Batches(range(30), 2, 1)
    held = iter(batches)
    assert next(held).tolist() == whole[0]
    fresh = iter(batches)
    assert next(fresh).tolist() == whole[1]
    with pytest.raises(RuntimeError, match="has ended, because a second one has begun"):
        next(held)
    assert [batch.tolist() for batch in fresh] == whole[2:]


def test_more_epochs_than_the_checkpoint_knew_are_gone_on_with() -> None:
    short = Batches(range(10), 2, 1)
    first = plain(short)
    longer = Batches(range(10), 2, 3)
    longer.restore(short.state())
    assert first + plain(longer) == plain(Batches(range(10), 2, 3))


@pytest.mark.parametrize(
    "other",
    [Batches(range(12), 2, 2), Batches(range(10), 2, 2, seed=1), Batches(range(9), 2, 2), Batches(range(10), 2, 1)],
    ids=["length", "seed", "same number of batches", "fewer epochs"],
)
def test_the_state_of_another_run_is_refused_and_changes_nothing(other: Batches) -> None:
    made = Batches(range(10), 2, 2)
    next(iter(made))
    before = other.state()
    with pytest.raises(ProgressError):
        other.restore(made.state())
    assert other.state() == before


@pytest.mark.parametrize("where", range(0, 76, 3))
def test_a_damaged_state_is_refused_or_leads_nowhere_bad(where: int) -> None:
    made = Batches(range(10), 2, 2)
    next(iter(made))
    state = bytearray(made.state())
    state[min(where, len(state) - 1)] ^= 0xFF
    for bad in (bytes(state), bytes(state[:where])):
        again = Batches(range(10), 2, 2)
        before = again.state()
        try:
            again.restore(bad)
        except ProgressError:
            assert again.state() == before
        assert len(plain(again)) <= 10
        assert again.progress.finished


def test_restoring_in_the_middle_is_refused() -> None:
    batches = Batches(range(10), 2, 2)
    state = batches.state()
    next(iter(batches))
    with pytest.raises(RuntimeError, match="before the first batch"):
        batches.restore(state)


def swarm(n: int, count: int, data: Any = range(101), epochs: int = 3, **options: Any) -> list[Batches]:
    peers: list[Batches] = []

    def tell() -> None:
        for one in peers:
            for other in peers:
                other.progress.merge(one.progress.encode())

    for rank in range(count):
        peers.append(Batches(data, n, epochs, rank=rank, ranks=lambda: range(count), on_progress=tell, **options))
    return peers


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_swarm_sees_every_sample_of_every_epoch_though_peers_die_and_lag(workers: int) -> None:
    peers = swarm(5, 4, num_workers=workers)
    streams: dict[int, Iterator[Any]] = {rank: iter(peer) for rank, peer in enumerate(peers)}
    seen: Counter[int] = Counter()
    turn = 0
    while streams:
        turn += 1
        assert turn < 1000
        for rank in list(streams):
            if rank == 3 and turn % 10:
                continue  # ten times slower
            if rank == 2 and turn == 6:
                del streams[rank]  # dies with a batch in hand, and nobody notices
                continue
            batch = next(streams[rank], None)
            if batch is None:
                del streams[rank]
            else:
                seen.update(batch.tolist())
    assert set(seen) == set(range(101))
    # The batch that rank 2 died with was handed out to another again.
    assert min(seen.values()) >= 3
    assert sum(seen.values()) <= 1.25 * 303  # 21 chunks per epoch are few for four peers
    assert peers[3].samples < peers[0].samples / 3
    assert all(peers[rank].progress.finished for rank in (0, 1, 3))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_rest_of_a_chunk_that_somebody_else_has_done_is_left_though_it_was_loaded(workers: int) -> None:
    mine, other = Batches(Big(), 2, 1, num_workers=workers), Batches(Big(), 2, 1)
    stream, theirs = iter(mine), iter(other)
    assert next(stream).tolist() == next(theirs).tolist()  # the first of three batches of a chunk
    for _ in range(2):
        next(theirs)
    following = next(theirs).tolist()
    mine.progress.merge(other.progress.encode())
    assert next(stream).tolist() == following
    assert mine.samples == 4


def test_what_somebody_else_has_done_is_not_even_loaded() -> None:
    loaded: list[int] = []

    def collate(samples: list[int]) -> list[int]:
        loaded.extend(samples)
        return samples

    mine, other = Batches(Big(), 2, 1, collate_fn=collate), Batches(Big(), 2, 1)
    stream, theirs = iter(mine), iter(other)
    first = next(stream)
    for _ in range(4):
        next(theirs)
    mine.progress.merge(other.progress.encode())
    following = next(stream)
    assert loaded == first + following


def test_when_the_others_have_done_all_the_loop_ends() -> None:
    mine, other = Batches(range(50), 2, 2), Batches(range(50), 2, 2)
    stream = iter(mine)
    next(stream)
    plain(other)
    mine.progress.merge(other.progress.encode())
    assert list(stream) == []
    assert mine.samples == 2


def test_the_trainers_random_numbers_are_its_own() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    plain(Batches(range(10), 2, 2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_tensors_go_to_the_device_however_deep() -> None:
    x = torch.ones(2)
    batch = {"a": [x, (x, "text", 3)], "b": Pair(x, None)}
    moved = to_device(batch, "meta")
    assert moved["a"][0].is_meta
    assert moved["a"][1][0].is_meta
    assert moved["a"][1][1:] == ("text", 3)
    assert isinstance(moved["b"], Pair)
    assert moved["b"].x.is_meta
    assert moved["b"].y is None
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert isinstance(to_device(packed, "cpu"), torch.nn.utils.rnn.PackedSequence)


def test_batches_come_on_the_device_and_unchanged() -> None:
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    (batch,) = Batches(data, 6, 1, device="meta")
    assert [part.is_meta for part in batch] == [True, True]
    (batch,) = Batches(data, 6, 1, device="cpu")
    assert torch.equal(batch[0][:, 0], batch[1] * 2.0)


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (Stream(), {}, r"peer\.batches\(stream, batch_size, samples=N\)"),
        (iter([1, 2]), {}, r"peer\.shards\(files, epochs\) shares these out"),
        (lambda part, parts: range(part, 9, parts), {}, "function has no length and index"),
        ("train/images", {}, "'train/images' is a name"),
        ({"train": [1], "test": [2]}, {}, "'train', 'test'.* Give one of these"),
        ([1, 2], {"epochs": 1.5}, "whole numbers of at least 1, not 1 and 1.5"),
        ([1, 2], {"epochs": -1}, "at least 1, not 1 and -1"),
        ([], {}, "empty"),
        ([1, 2], {"batch_size": 0}, "at least 1"),
        ([1, 2], {"epochs": 0}, "at least 1"),
        ([1, 2], {"batch_size": 3, "drop_last": True}, "drop_last leaves no batch"),
        ([1, 2], {"shuffle": True}, "shuffle cannot be set, because the swarm decides"),
        ([1, 2], {"in_order": False}, "in_order"),
    ],
)
def test_what_cannot_be_shared_out_is_refused_with_advice(data: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Batches(data, **{"batch_size": 1, "epochs": 1, **options})


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        (DataLoader([1, 2]), "peer.batches(loader.dataset, 1, epochs), or peer.sampler(loader.dataset)"),
        (
            DataLoader([1, 2], batch_size=32, shuffle=True, num_workers=2, drop_last=True, collate_fn=list),
            "peer.batches(loader.dataset, 32, epochs, num_workers=2, drop_last=True, collate_fn=loader.collate_fn), or",
        ),
        (DataLoader(Stream(), 8, pin_memory=True), "peer.batches(loader.dataset, 8, samples=SAMPLES, pin_memory=True)"),
        (
            DataLoader([1, 2, 3], batch_sampler=BatchSampler(SubsetRandomSampler([0, 2]), 2, False)),
            "peer.batches(loader.dataset, 2, epochs), or",
        ),
        (
            DataLoader([1, 2], sampler=SubsetRandomSampler([0]), num_workers=1, prefetch_factor=4),
            "prefetch_factor=4), or peer.sampler(loader.dataset) for a loader of your own. Its SubsetRandomSampler is",
        ),
        (DataLoader([1, 2], batch_size=None), "peer.batches(loader.dataset, BATCH_SIZE, epochs), or"),
    ],
)
def test_a_loader_is_answered_with_the_call_that_takes_its_place(loader: DataLoader[int], says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)):
        Batches(loader, 1, 1)


def test_a_loader_without_a_batch_size_is_answered_with_that_call_too() -> None:
    with pytest.raises(SettingsError, match=re.escape("peer.batches(loader.dataset, 8, epochs), or peer.sampler")):
        size_of_batches(DataLoader([1, 2], batch_size=8), None)
    with pytest.raises(SettingsError, match=r"batch_size=None: say how many.* peer\.batches\(dataset, 32, epochs=3\)"):
        size_of_batches([1, 2], None)
    assert size_of_batches([1, 2], 4) == 4


def test_a_loader_of_a_stream_is_not_sent_to_the_sampler() -> None:
    with pytest.raises(SettingsError) as refused:
        Batches(DataLoader(Stream(), 8), 1, 1)
    assert "peer.sampler" not in str(refused.value)


def test_numbered_samples_may_be_in_a_dict() -> None:
    assert sorted(one for (one,) in plain(Batches({0: 5, 1: 6, 2: 7}, 1, 1))) == [5, 6, 7]


def test_a_data_set_that_grows_or_shrinks_during_a_loop_is_named() -> None:
    data = list(range(6))
    batches = iter(Batches(data, 2, 2))
    next(batches)
    data.append(6)
    with pytest.raises(ProgressError, match="had 6 samples when the loop over the batches began, and has 7 now"):
        list(batches)


def test_a_batch_larger_than_the_data_set_is_all_of_it() -> None:
    assert [sorted(batch) for batch in plain(Batches(range(3), 10, 2))] == [[0, 1, 2], [0, 1, 2]]
