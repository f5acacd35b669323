"""Data shards: in each epoch somebody reads each of them to its end, whoever dies; a run resumes between two."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from shard_script import EPOCHS, SAMPLES, write_shards
from swarms import LONGEST_PROCESS, Meeting, clean_environment, reserved_ports, swarm
from torch import nn

from gossip.errors import SettingsError
from peers import Peer
from peers.data.progress import CHUNK_LIMIT
from peers.data.shard_names import ShardNames
from peers.rate_schedule import SwarmSchedule

NAMES = [f"train-{number:02}.tar" for number in range(12)]


def attached(peer: Peer) -> torch.optim.Optimizer:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    return optimizer


@pytest.mark.parametrize("seed", range(60))
def test_every_shard_is_read_to_its_end_in_each_epoch_whoever_dies(seed: int) -> None:
    """A shard takes several turns. Peers die within one, and news of what is done come late."""
    rng = random.Random(seed)
    count, epochs = rng.randint(2, 5), rng.randint(1, 3)
    names = [str(number) for number in range(rng.randint(1, 25))]
    loops = [
        ShardNames(names, epochs, rank=rank, ranks=lambda: believed, seed=seed, on_progress=lambda: None)
        for rank in range(count)
    ]
    believed = set(range(count))
    streams: dict[int, Iterator[str]] = {rank: iter(loop) for rank, loop in enumerate(loops)}
    open_shards = {rank: next(streams[rank]) for rank in streams}
    #: A shard counts as read only if the peer that has read it lived to tell the others, or to the end.
    read: Counter[str] = Counter()
    mortal = rng.sample(range(count), rng.randint(0, count - 1))
    turns = 0
    while streams:
        turns += 1
        assert turns < 20_000, "the loop does not end"
        rank = rng.choice(sorted(streams))
        if rank in mortal and rng.random() < 0.05:
            del streams[rank]
            if rng.random() < 0.5:
                believed.discard(rank)
            continue
        if rng.random() < 0.7:
            continue  # in the middle of its shard
        finished = open_shards[rank]
        following = next(streams[rank], None)
        read[finished] += 1
        if following is None:
            del streams[rank]
        else:
            open_shards[rank] = following
        for other in rng.sample(range(count), rng.randint(0, count)):
            loops[other].progress.merge(loops[rank].progress.encode())
    assert set(read) == set(names)
    assert min(read.values()) >= epochs
    assert all(loops[rank].progress.finished for rank in range(count) if rank not in mortal)


@pytest.mark.parametrize("count", [12, 3 * CHUNK_LIMIT])
def test_a_shard_that_is_open_is_given_out_again_after_a_resume(count: int) -> None:
    names = [str(number) for number in range(count)]
    whole = [name for _, name in zip(range(12), ShardNames(names, 2), strict=False)]
    for stop in (1, 2, 3, 4, 12):
        first = ShardNames(names, 2)
        running = iter(first)
        before = [next(running) for _ in range(stop)]
        second = ShardNames(names, 2)
        second.restore(first.state())
        after = iter(second)
        assert next(after) == before[-1], "nobody knows how far it was read"
        assert [before[-1], *(next(after) for _ in range(12 - stop))] == whole[stop - 1 :]


def test_a_checkpoint_is_taken_within_a_shard_and_all_of_the_epoch_is_read(tmp_path: Path) -> None:
    def run(seen: list[tuple[str, int]], stop: int | None, **setup: Any) -> int:
        with Meeting(1).peer(0, run_dir=str(tmp_path), checkpoint_every=2, **setup) as peer:
            model = nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            peer.attach(model, optimizer)
            began = peer.step
            for name in peer.shards(NAMES, 1):
                for sample in range(5):
                    checkpoints = peer._attached().saving._checkpoints
                    assert checkpoints is not None
                    checkpoints.wait()
                    model(torch.ones(1)).sum().backward()
                    if peer.step == stop:
                        raise ZeroDivisionError
                    optimizer.step()
                    seen.append((name, sample))
            peer.consensus()
        return began

    first: list[tuple[str, int]] = []
    with pytest.raises(ZeroDivisionError):
        run(first, 27)
    second: list[tuple[str, int]] = []
    assert run(second, None, resume=True) == 26, "within the sixth shard, and not before it"
    assert second[:5] == [(first[25][0], sample) for sample in range(5)]
    assert sorted(first[:25] + second) == sorted((name, sample) for name in NAMES for sample in range(5))


def test_the_peers_of_a_swarm_share_the_shards_out() -> None:
    found: list[list[str]] = [[], []]

    def body(peer: Peer) -> tuple[int, float]:
        optimizer = attached(peer)
        for name in peer.shards(NAMES, 2):
            found[peer.rank].append(name)
            for _ in range(3):
                optimizer.step()
        peer.consensus()
        now = peer.progress
        assert (now.fraction, now.total_samples, now.epochs) == (1.0, 24, 2)
        return peer.samples, now.step_share

    assert swarm(2, body, algorithm="sgp") == [(0, 0.0)] * 2
    counts = Counter(found[0] + found[1])
    assert set(counts) == set(NAMES)
    assert min(counts.values()) >= 2
    assert max(len(part) for part in found) < 20


def test_a_peer_that_is_killed_within_a_shard_leaves_none_unread(tmp_path: Path) -> None:
    """Three processes, tar files and webdataset. What the dead peer had not finished, others read from the start."""
    pytest.importorskip("webdataset")
    names = write_shards(tmp_path, 15)
    script = Path(__file__).parents[2] / "support" / "shard_script.py"
    logs = [tmp_path / f"log-{rank}" for rank in range(3)]
    with reserved_ports(3) as ports, ExitStack() as stack:
        hosts = [f"127.0.0.1:{port}" for port in ports]
        processes = []
        for rank, path in enumerate(logs):
            options = {"rank": rank, "hosts": hosts, "algorithm": "sgp", "start_timeout": LONGEST_PROCESS}
            log = stack.enter_context(path.open("wb"))
            command = [sys.executable, str(script), str(tmp_path), "2", json.dumps(options)]
            one = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment())
            stack.callback(one.wait)
            stack.callback(one.kill)
            processes.append(one)
        codes = [one.wait(LONGEST_PROCESS) for one in processes]
    assert codes == [0, 0, -signal.SIGKILL], "\n".join(path.read_text() for path in logs)
    lines = [line.split() for rank in range(3) for line in (tmp_path / f"seen-{rank}").read_text().splitlines()]
    read = Counter(name for kind, name in lines if kind == "shard")
    samples = Counter(int(label) for kind, label in lines if kind == "sample")
    assert set(read) == set(names)
    assert min(read.values()) >= EPOCHS
    assert set(samples) == set(range(len(names) * SAMPLES))
    assert min(samples.values()) >= EPOCHS
    dead = (tmp_path / "seen-2").read_text().splitlines()
    assert dead[-1].startswith("sample"), "it died within a shard"


@pytest.mark.parametrize(
    ("shards", "epochs", "says"),
    [
        ("train.tar", 1, "'train.tar' is not a list of shards"),
        (iter(NAMES), 1, "not a list of shards"),
        ([], 1, "is not a list of shards. Give the names of all of them"),
        (NAMES, 0, "epochs must be a whole number of at least 1, not 0"),
    ],
)
def test_what_is_no_list_of_shards_is_refused_in_the_call(shards: Any, epochs: int, says: str) -> None:
    def body(peer: Peer) -> None:
        attached(peer)
        with pytest.raises(SettingsError, match=says):
            peer.shards(shards, epochs)

    swarm(1, body)


def test_a_schedule_with_allreduce_says_that_shards_have_no_known_steps() -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        SwarmSchedule(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), peer, 10)
        peer.attach(model, optimizer)
        for _ in peer.shards(NAMES, 1):
            with pytest.raises(SettingsError, match="nobody knows how many"):
                optimizer.step()
            break

    swarm(1, body, algorithm="allreduce")


def test_fewer_shards_than_peers_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> list[str]:
        optimizer = attached(peer)
        peer._loops._view = lambda: (0, 1)
        found = []
        for name in peer.shards(["one"], 1):
            found.append(name)
            optimizer.step()
        peer.consensus()
        return found

    assert swarm(1, body) == [["one"]]
    assert any("there are fewer shards (1) than peers (2)" in text for text in caplog.messages)
