"""Peers whose data is not shared out, or shared out twice, are told so once; all others are told nothing."""

from __future__ import annotations

import copy
import io
import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from swarms import swarm
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from peers import Peer
from peers.data.inputs import NO_EVIDENCE, STEPS, Inputs

SAME, UNSHARED = "draw the same batches", "neither peer.batches nor peer.sampler"
#: Steps after which all is seen: those that are looked at, and the first one.
ENOUGH = STEPS + 1
DATA = TensorDataset(torch.randn(96, 3, generator=torch.Generator().manual_seed(5)))


class Net(nn.Module):
    """A model whose input comes in any form: as an argument, by name, in a dict or a list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x: Any = None, *, more: Any = None) -> torch.Tensor:
        x = more if x is None else x
        while not isinstance(x, torch.Tensor):
            x = next(iter(x.values())) if isinstance(x, dict) else x[0]
        return self.linear(x)


def attached(peer: Peer) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    peer.attach(model, optimizer)
    return model, optimizer


def train(peer: Peer, batches: Iterable[Any], call: Callable[[nn.Module, Any], torch.Tensor] | None = None) -> None:
    """Train on the first batches, and wait for the others: then all have heard of each other."""
    model, optimizer = attached(peer)
    for _, batch in zip(range(ENOUGH), batches, strict=False):
        optimizer.zero_grad()
        (call(model, batch) if call else model(batch)).sum().backward()
        optimizer.step()
    peer.consensus()


def loader(seed: int, data: Any = DATA, **options: Any) -> Iterable[Any]:
    """Yield the batches of many epochs, in the order of a seed."""
    found = DataLoader(
        data, generator=torch.Generator().manual_seed(seed), **{"batch_size": 4, "shuffle": True, **options}
    )
    for _ in range(20):
        yield from found


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what peers said about data, each sentence once for every peer that said it."""
    about = ("batches", "peer.sampler", "peer.batches")
    return [text for text in caplog.messages if any(word in text for word in about)]


@pytest.mark.parametrize("algorithm", ["osgp", "sgp", "allreduce", "parameter-server"])
def test_peers_that_draw_the_same_batches_are_told_once(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    swarm(3, lambda peer: train(peer, loader(0)), algorithm=algorithm)
    assert len(said(caplog)) == 3
    assert all(SAME in text and "peer.sampler(dataset)" in text for text in said(caplog))


def accumulating(model: nn.Module, batch: Any) -> torch.Tensor:
    with torch.no_grad():
        model(torch.ones(2, 3))
    return model(batch[0][:2]) + model(batch[0][2:]).sum()


@pytest.mark.parametrize(
    "call",
    [
        lambda model, batch: model(more=batch[0]),
        lambda model, batch: model({"x": batch}),
        accumulating,
        lambda model, batch: model(batch[0].to(torch.bfloat16).float().requires_grad_()),
    ],
    ids=["by-name", "dict", "accumulating", "half"],
)
def test_inputs_are_seen_in_every_form(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, lambda peer: train(peer, loader(0), call))
    assert [SAME in text for text in said(caplog)] == [True, True]


def digest(model: nn.Module, called: Callable[[torch.Tensor], torch.Tensor]) -> int:
    inputs = Inputs(model)
    for x in torch.randn(ENOUGH, 4, 3, generator=torch.Generator().manual_seed(2)):
        called(x).sum().backward()
        inputs.step_over()
    return inputs.digest


@pytest.mark.parametrize("form", ["copy called", "copy attached", "in place", "function"])
def test_a_compiled_model_is_seen_and_its_graph_stays_whole(form: str) -> None:
    model = Net()
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    called = compiled
    if form == "in place":
        model.compile(backend="eager", fullgraph=True)
        called = model
    elif form == "function":
        called = torch.compile(lambda x: model(x) * 2, backend="eager", fullgraph=True)
    found = digest(compiled if form == "copy attached" else model, called)
    # Inside of a compiled function nothing is seen.
    assert found == (NO_EVIDENCE if form == "function" else digest(plain := Net(), plain))


def test_nothing_is_left_of_the_look_and_a_copy_is_not_looked_at() -> None:
    def body(peer: Peer) -> tuple[int, int]:
        model, optimizer = attached(peer)
        hooks = []
        for _, (x,) in zip(range(ENOUGH), loader(0), strict=False):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            copied = copy.deepcopy(model)
            torch.save(copied, io.BytesIO())
            copied(x)
            hooks.append(len(model._forward_pre_hooks))
        return sum(hooks), hooks[-1]

    assert swarm(2, body) == [(STEPS, 0)] * 2


def constant(peer: Peer) -> None:
    train(peer, [torch.ones(4, 3)] * ENOUGH)


def whole(peer: Peer) -> None:
    train(peer, loader(peer.rank, batch_size=96))


def closure(peer: Peer) -> None:
    """LBFGS calls the model with all data, and not equally often in each step."""
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    peer.attach(model, optimizer)
    target = torch.randn(96, 1, generator=torch.Generator().manual_seed(1))

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = (model(DATA.tensors[0]) - target).square().mean()
        found.backward()
        return found

    for _ in range(ENOUGH):
        optimizer.step(loss)
    peer.consensus()


def sampled(peer: Peer) -> None:
    sampler = peer.sampler(DATA)
    train(peer, DataLoader(DATA, batch_size=1, sampler=sampler))


def shared(peer: Peer) -> None:
    model, optimizer = attached(peer)
    for (x,) in peer.batches(DATA, 2, 2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    peer.consensus()


def few(peer: Peer) -> None:
    sampler = peer.sampler(DATA)
    train(peer, [batch for _, batch in zip(range(5), DataLoader(DATA, 1, sampler=sampler), strict=False)])


@pytest.mark.parametrize("body", [constant, whole, closure, sampled, shared, few])
def test_there_are_no_false_alarms(body: Callable[[Peer], None], caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, body)
    assert said(caplog) == []


def test_a_swarm_of_one_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    swarm(1, lambda peer: train(peer, loader(0)))
    assert said(caplog) == []


def test_peers_that_draw_different_batches_by_themselves_get_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    swarm(3, lambda peer: train(peer, loader(peer.rank)))
    assert [UNSHARED in text for text in said(caplog)] == [True]


def test_a_few_batches_that_come_again_are_no_evidence(caplog: pytest.LogCaptureFixture) -> None:
    four = Subset(DATA, range(16))
    swarm(2, lambda peer: train(peer, loader(0, four, shuffle=False)))
    assert [UNSHARED in text for text in said(caplog)] == [True]


def halves(peer: Peer) -> Any:
    return Subset(DATA, range(peer.rank, 96, 2))


def lengths(peer: Peer) -> Any:
    return Subset(DATA, range(peer.rank, 95, 2))


def files(peer: Peer) -> Any:
    return [f"/host-{peer.rank}/shard-{number}.tar" for number in range(peer.rank, 12, 2)]


def own(peer: Peer) -> Any:
    return TensorDataset(torch.randn(96, 3, generator=torch.Generator().manual_seed(peer.rank)))


def go_through(peer: Peer, dataset: Any) -> None:
    _, optimizer = attached(peer)
    for _ in peer.batches(dataset, 2, 1):
        optimizer.step()
    peer.consensus()


@pytest.mark.parametrize("part", [halves, lengths, files, own])
def test_data_that_is_shared_out_twice_is_noticed_once(part: Any, caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, lambda peer: go_through(peer, part(peer)))
    assert len(said(caplog)) == 2
    assert all("give it the whole data set" in text for text in said(caplog))
    samples = {
        "halves": "48 samples each",
        "lengths": "47 samples",
        "files": "6 samples each",
        "own": "96 samples each",
    }
    assert all(samples[part.__name__] in text for text in said(caplog))


@pytest.mark.parametrize("part", [halves, lengths])
def test_a_part_given_to_the_sampler_is_noticed_once(part: Any, caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> None:
        dataset = part(peer)
        train(peer, DataLoader(dataset, 1, sampler=peer.sampler(dataset)))

    swarm(2, body)
    assert len(said(caplog)) == 2
    assert all("have given to peer.sampler differ" in text for text in said(caplog))


def same_files(peer: Peer) -> Any:
    return [f"/host-{peer.rank}/shard-{number}.tar" for number in range(12)]


def rounded(peer: Peer) -> Any:
    return TensorDataset(DATA.tensors[0] * (1 + 1e-7 * peer.rank), torch.arange(96))


def random_items(_: Peer) -> Any:
    """Augmentation: no two looks at a sample give the same."""

    class Random(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.randn(3)

    return Random()


@pytest.mark.parametrize("part", [same_files, rounded, random_items])
def test_equal_data_sets_are_equal_on_every_host(part: Any, caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, lambda peer: go_through(peer, part(peer)))
    assert said(caplog) == []


def test_a_further_sampler_at_one_rank_is_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> None:
        if peer.rank == 0:
            peer.sampler(40)
        sampled(peer)

    swarm(2, body)
    assert said(caplog) == []


def test_fewer_batches_than_peers_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, lambda peer: go_through(peer, range(2)))
    assert len(said(caplog)) == 2
    assert all("fewer batches (1, of batch_size = 2) than there are peers (2)" in text for text in said(caplog))
    assert all(record.levelno == logging.WARNING for record in caplog.records if record.name == "gossip")
