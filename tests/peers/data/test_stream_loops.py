"""Loops over streams in swarms of real peers: they end together, a checkpoint holds the position, errors are plain."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from swarms import LONGEST, Meeting, swarm, together
from torch import nn
from torch.utils.data import IterableDataset

from gossip.errors import SettingsError
from peers import Peer
from peers.rate_schedule import SwarmSchedule


class Endless(IterableDataset[torch.Tensor]):
    """All numbers, from a start on and in steps."""

    def __init__(self, start: int = 0, step: int = 1) -> None:
        self.start, self.step = start, step

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in itertools.count(self.start, self.step):
            yield torch.tensor([float(number)])


def prepared() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(1, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)


def numbers(batch: torch.Tensor) -> list[int]:
    return [int(one) for one in batch.flatten()]


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "allreduce"])
def test_peers_see_different_samples_and_end_with_the_swarms_total(algorithm: str) -> None:
    def body(peer: Peer) -> tuple[list[int], float, int]:
        model, optimizer = prepared()
        schedule = SwarmSchedule(torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20), peer, 20)
        peer.attach(model, optimizer, also={"schedule": schedule})
        seen: list[int] = []
        for batch in peer.batches(Endless(), 4, samples=80):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            seen += numbers(batch)
        assert peer.samples == len(seen)
        peer.consensus()
        return seen, peer.progress.fraction, peer.progress.total_samples

    found = swarm(2, body, algorithm=algorithm)
    assert [one[1:] for one in found] == [(1.0, 80)] * 2
    first, second = (one[0] for one in found)
    assert not set(first) & set(second)
    assert 80 <= len(first) + len(second) <= 80 + 3 * 4
    assert first
    assert second


def test_a_peer_that_comes_back_joins_the_count_and_reads_a_part_of_its_own() -> None:
    """Rank 1 fails after some batches, and a new life of it takes part in what is left."""
    meeting = Meeting(2, algorithm="adpsgd")
    back = threading.Event()

    def stays(peer: Peer) -> int:
        model, optimizer = prepared()
        peer.attach(model, optimizer)
        for batch in peer.batches(Endless(), 2, steps=60):
            model(batch).sum().backward()
            optimizer.step()
            deadline = time.monotonic() + LONGEST - 10
            while peer.samples == 20 and not back.is_set():
                assert time.monotonic() < deadline, "the other one did not come back"
                optimizer.step()  # only between steps a newcomer gets the state
        peer.consensus()
        return peer.samples

    def fails(peer: Peer) -> None:
        model, optimizer = prepared()
        peer.attach(model, optimizer)
        for number, batch in enumerate(peer.batches(Endless(), 2, steps=60)):
            model(batch).sum().backward()
            optimizer.step()
            if number == 4:
                raise ZeroDivisionError

    def returns(peer: Peer) -> int:
        model, optimizer = prepared()
        peer.attach(model, optimizer)
        for batch in peer.batches(Endless(), 2, steps=60):
            back.set()
            model(batch).sum().backward()
            optimizer.step()
        peer.consensus()
        return peer.samples

    def two_lives() -> int:
        with pytest.raises(ZeroDivisionError):
            meeting.task(1, fails)()
        found: int = meeting.task(1, returns, incarnation=1000)()
        return found

    stayed, returned = together([meeting.task(0, stays), two_lives])
    assert (type(stayed), type(returned)) == (int, int), (stayed, returned)
    assert stayed < 120, "the others did a part"
    assert returned > 0
    assert stayed + returned + 10 >= 120


def test_a_run_that_resumes_gets_the_batches_that_an_uninterrupted_one_gets(tmp_path: Path) -> None:
    def trained(run: Path, fails_at: int | None, **setup: Any) -> list[list[int]]:
        seen = []
        with Meeting(1).peer(0, run_dir=str(run), checkpoint_every=3, **setup) as peer:
            model, optimizer = prepared()
            peer.attach(model, optimizer)
            for batch in peer.batches(Endless(), 3, steps=12):
                checkpoints = peer._attached().saving._checkpoints
                assert checkpoints is not None
                checkpoints.wait()
                model(batch).sum().backward()
                optimizer.step()
                seen.append(numbers(batch))
                if peer.step == fails_at:
                    raise ZeroDivisionError
            peer.consensus()
        return seen

    whole = trained(tmp_path / "whole", None)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path / "run", 8)
    assert trained(tmp_path / "run", None, resume=True) == whole[6:]
    assert [one for batch in whole for one in batch] == list(range(36))


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (Endless(), {"epochs": 2}, "Endless is a stream, so nobody knows where an epoch of it ends"),
        (Endless(), {}, "peer.batches(stream, batch_size, samples=N), or steps=N for N batches"),
        (Endless(), {"samples": 5, "steps": 5}, "or steps=N"),
        (Endless(), {"samples": 0}, "samples must be a whole number of at least 1, not 0"),
        (Endless(), {"steps": 1.5}, "steps must be a whole number of at least 1, not 1.5"),
        (Endless(), {"batch_size": True, "steps": 1}, "batch_size must be a whole number of at least 1, not True"),
        (Endless(), {"steps": 1, "shuffle": True}, "shuffle cannot be set"),
        (
            lambda part, parts: range(part, 9, parts),
            {"steps": 1, "sharded": True},
            "is a function that opens one part of a stream",
        ),
        (lambda: [1], {"steps": 1}, "the function <lambda> cannot be called with two numbers"),
        ([1, 2], {"samples": 5}, "list has a length and an index, so the swarm goes through it by epochs"),
        ([1, 2], {}, "give epochs=N"),
        ([1, 2], {"epochs": 1, "sharded": True}, "sharded=True are for streams"),
        (None, {}, "None is not a data set"),
    ],
)
def test_a_call_that_cannot_work_says_what_would(data: Any, options: dict[str, Any], says: str) -> None:
    def body(peer: Peer) -> None:
        peer.attach(*prepared())
        with pytest.raises(SettingsError, match=re.escape(says)):
            peer.batches(data, **{"batch_size": 2, **options})

    swarm(1, body)


def test_a_crew_is_told_to_use_shards() -> None:
    def body(peer: Peer) -> None:
        peer.attach(*prepared())
        peer.crew.rows = 2
        with pytest.raises(SettingsError, match=r"2 rows of a crew need the same batch.*peer\.shards\(files, epochs\)"):
            peer.batches(Endless(), 2, steps=1, split="batch")
        peer.crew.rows = 1

    swarm(1, body)


@pytest.mark.parametrize(
    ("stream", "sharded", "says"),
    [
        (lambda _: Endless(), False, None),
        (Endless, False, "begin with different samples, and each takes only every n-th of its own"),
        (Endless, True, None),
        (lambda _: Endless(), True, "begin with the same samples, and each takes all of its own"),
        (lambda _: lambda part, parts: Endless(part, parts), False, None),
        (lambda _: lambda *_: Endless(), False, "begin with the same samples"),
    ],
    ids=["same", "different", "sharded", "same and sharded", "parts", "no parts"],
)
def test_streams_that_are_shared_out_wrongly_are_told(
    stream: Any, sharded: bool, says: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def body(peer: Peer) -> None:
        model, optimizer = prepared()
        peer.attach(model, optimizer)
        for batch in peer.batches(stream(peer.rank), 4, steps=30, sharded=sharded):
            model(batch).sum().backward()
            optimizer.step()
        peer.consensus()

    swarm(2, body, algorithm="sgp")
    told = [text for text in caplog.messages if "begin with" in text]
    assert len(told) == (2 if says else 0), "once at each peer"
    assert all(says in text for text in told if says)
