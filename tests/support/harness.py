"""Starts peers as processes, talks to them, kills them by their number, and adds their books up.

Whatever fails, every process is reaped, and what it wrote to stderr is shown; writing anything there is a failure.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from gossip.net.zmq_transport import new_keys

#: Longer than the patience of the peers themselves, so that they get to say what went wrong.
PATIENCE = 60.0
BOOKS = ("held", "inbox", "outbox")
SUMS = ("weights", "plain", "slanted")

Route = Callable[[int, int, str], str]


class Nursery:
    """The process that peers are forked from."""

    def __init__(self) -> None:
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(PATIENCE)
        program = Path(__file__).with_name("peer_process.py")
        root = program.parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(program), str(far.fileno())],
            pass_fds=[far.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        far.close()

    def fork(self, files: Sequence[int]) -> int:
        socket.send_fds(self._control, [b"{}"], files)
        return int(self._control.recv(64))

    def reap(self, pid: int) -> int:
        self._control.send(json.dumps({"reap": pid}).encode())
        return int(self._control.recv(64))

    def close(self) -> None:
        self._control.close()
        self._process.wait(PATIENCE)


def state(task: Path) -> str:
    """Return the letter for what a thread does, or an empty text if it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Peer:
    """One process. `tell` and `hear` are the two halves of `ask`, for work that several do at once."""

    def __init__(self, nursery: Nursery, rank: int, incarnation: int = 0) -> None:
        self.rank = rank
        self.incarnation = incarnation
        self.endpoint = ""
        self.exit_code: int | None = None
        self._nursery = nursery
        self._told: list[str] = []
        self._heard = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        stdin, self._orders = os.pipe()
        self._answers, stdout = os.pipe()
        self.pid = nursery.fork([stdin, stdout, self._errors.fileno()])
        os.close(stdin)
        os.close(stdout)

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        self.tell(do, **order)
        return self.hear()

    def tell(self, do: str, **order: Any) -> None:
        try:
            os.write(self._orders, json.dumps({"do": do, **order}).encode() + b"\n")
        except BrokenPipeError:
            raise AssertionError(f"{self} is gone: {self.errors()}") from None
        self._told.append(do)

    def hear(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                ready = selector.select(deadline - time.monotonic())
                assert ready, f"{self} does not answer to {self._told}: {self.errors()}"
                data = os.read(self._answers, 1 << 16)
                assert data, f"{self} ended instead of answering to {self._told}: {self.errors()}"
                self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        told = self._told.pop(0)
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, f"{self}, told to {told}: {answer['error']}"
        return answer

    def stop(self) -> None:
        """Freeze the process; return when all its threads stand still: the first may do so before the others."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE
        while {state(task) for task in Path(f"/proc/{self.pid}/task").iterdir()} - {""} != {"T"}:
            assert time.monotonic() < deadline, f"{self} does not stop"
            time.sleep(0.001)

    def proceed(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would: no word to anybody."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()

    def dismiss(self) -> None:
        """Tell it that no more orders come, so that it ends by itself."""
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def exit(self) -> int:
        """Let it end by itself, and return its exit code."""
        self.dismiss()
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while True:
                assert selector.select(deadline - time.monotonic()), f"{self} does not end: {self.errors()}"
                if not os.read(self._answers, 1 << 16):
                    break
        return self._reap()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def end(self) -> str:
        """Kill it if need be, give everything back, and return what it wrote to stderr."""
        self.kill()
        errors = self.errors()
        for file in (self._orders, self._answers):
            if file >= 0:
                os.close(file)
        self._errors.close()
        return errors

    def _reap(self) -> int:
        self.exit_code = self._nursery.reap(self.pid)
        return self.exit_code

    def __str__(self) -> str:
        return f"peer {self.rank}#{self.incarnation} (process {self.pid})"


class Swarm:
    """Peers that know each other."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._all: list[Peer] = []
        self.peers: list[Peer] = []

    def start(
        self,
        n: int,
        *,
        size: int = 64,
        shard_bytes: int = 256,
        topology: str = "one-peer-exponential",
        algorithm: str = "sgp",
        encrypted: bool = False,
        route: Route | None = None,
        settings: Mapping[str, float] = MappingProxyType({}),
        link: Mapping[str, float] = MappingProxyType({}),
    ) -> list[Peer]:
        """Start n peers; rank r starts with r plus a pattern. ``route`` is what they take for each other's address."""
        self._keys = [new_keys() if encrypted else None for _ in range(n)]
        self._route = route or (lambda _origin, _target, endpoint: endpoint)
        self._order = {
            "members": n,
            "size": size,
            "shard_bytes": shard_bytes,
            "topology": topology,
            "algorithm": algorithm,
            "settings": dict(settings),
            "link": dict(link),
            # Whether it can is asked in a note between transports, which a proxy may spoil as well, and nobody counts.
            "shared": route is None,
            "admitted": [pair.public.decode() for pair in self._keys if pair],
        }
        self.peers = [self._bind(rank, 0) for rank in range(n)]
        for peer in self.peers:
            peer.endpoint = peer.hear()["endpoint"]
        everybody = list(range(n))
        for peer in self.peers:
            self._connect(peer, everybody)
        for peer in self.peers:
            peer.hear()
        return self.peers

    def restart(self, rank: int, moved: Callable[[str], None]) -> Peer:
        """Replace a peer by its next incarnation in a new process; ``moved`` is told its new address."""
        former = self.peers[rank]
        peer = self.peers[rank] = self._bind(rank, former.incarnation + 1)
        peer.endpoint = peer.hear()["endpoint"]
        moved(peer.endpoint)
        self._connect(peer, [other.rank for other in self.peers if other.exit_code is None])
        peer.hear()
        return peer

    def _bind(self, rank: int, incarnation: int) -> Peer:
        peer = Peer(self._nursery, rank, incarnation)
        self._all.append(peer)
        pair = self._keys[rank]
        keys = None if pair is None else [pair.public.decode(), pair.secret.decode()]
        peer.tell("bind", rank=rank, incarnation=incarnation, keys=keys, **self._order)
        return peer

    def _connect(self, peer: Peer, greet: Iterable[int]) -> None:
        others = [other for other in self.peers if other is not peer]
        keys = {other.rank: self._keys[other.rank] for other in others}
        peer.tell(
            "connect",
            peers={
                other.rank: [self._route(peer.rank, other.rank, other.endpoint), key.public.decode() if key else None]
                for other in others
                for key in [keys[other.rank]]
            },
            greet=[rank for rank in greet if rank != peer.rank],
        )

    def end(self) -> None:
        """Reap every process that was ever started here."""
        errors = {str(peer): peer.end() for peer in self._all}
        for name, text in errors.items():
            if text:
                sys.stdout.write(f"--- stderr of {name}:\n{text}\n")
        assert not any(errors.values()), "a peer wrote to stderr"


def all_of(peers: Iterable[Peer], do: str, **order: Any) -> list[dict[str, Any]]:
    """Ask the same of several peers at once."""
    asked = list(peers)
    for peer in asked:
        peer.tell(do, **order)
    return [peer.hear() for peer in asked]


def steps(peers: Iterable[Peer], count: int, **order: Any) -> None:
    """Let peers take this number of steps each, side by side."""
    asked = list(peers)
    all_of(asked, "go", count=count, **order)
    all_of(asked, "join")


def converge(peers: Iterable[Peer], rounds: int = 30) -> None:
    """Let peers come to agree: a step each, and every parcel delivered, so many times."""
    asked = list(peers)
    for _ in range(rounds):
        steps(asked, 1)
        all_of(asked, "flush")


def settle(peers: Iterable[Peer]) -> list[dict[str, Any]]:
    """Wait until every parcel is answered, and return the books. Nobody may be training."""
    asked = list(peers)
    all_of(asked, "flush")
    books = all_of(asked, "books")
    assert not any(book["outbox"]["count"] for book in books)
    return books


def total(books: Iterable[dict[str, Any]], which: Sequence[str] = BOOKS) -> dict[str, Any]:
    """Add up the mass in books: for each of the sums, an array over the shards."""
    parts = [book[name] for book in books for name in which]
    return {key: np.sum([part[key] for part in parts], axis=0) for key in SUMS}


def flow(
    book: dict[str, Any], kind: str, *, rank: int | None = None, other_life: int | None = None, life: int | None = None
) -> dict[str, Any]:
    """Add up what went between a peer and others: Booked, Released or TakenBack."""
    found = [
        reading
        for name, mine, other, theirs, reading in book["flows"]
        if name == kind and rank in (None, other) and other_life in (None, theirs) and life in (None, mine)
    ]
    shards = len(book["held"]["weights"])
    sums: dict[str, Any] = {key: np.sum([np.zeros(shards)] + [one[key] for one in found], axis=0) for key in SUMS}
    return sums | {"count": sum(one["count"] for one in found)}


def beginning(size: int, shard_bytes: int, ranks: Iterable[int]) -> dict[str, Any]:
    """Return the mass that these ranks started with."""
    shards = -(-size // (shard_bytes // 8))
    cuts = [size * shard // shards for shard in range(shards + 1)]
    sums: dict[str, list[float]] = {key: [0.0] * shards for key in SUMS}
    for rank in ranks:
        values = np.sin(np.arange(size)) + rank
        for shard in range(shards):
            part = values[cuts[shard] : cuts[shard + 1]]
            sums["weights"][shard] += 1.0
            sums["plain"][shard] += float(part.sum())
            sums["slanted"][shard] += float(np.dot(part, 1.0 + np.arange(len(part)) / len(part)))
    return {key: np.array(value) for key, value in sums.items()}


def plus(*sums: dict[str, Any]) -> dict[str, Any]:
    return {key: np.sum([one[key] for one in sums], axis=0) for key in SUMS}


def minus(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: np.subtract(one[key], other[key]) for key in SUMS}


def same(one: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Two accounts of mass agree, in weights and in x, shard by shard, up to rounding."""
    for key in SUMS:
        scale = float(np.max(np.abs([one[key], other[key]]), initial=1.0))
        np.testing.assert_allclose(one[key], other[key], rtol=0, atol=1e-9 * scale, err_msg=f"{what}: {key}")


def conserved(books: Sequence[dict[str, Any]], size: int, shard_bytes: int) -> None:
    """All mass that there was at first, and that training added, is there, and nothing else."""
    started = beginning(size, shard_bytes, range(len(books)))
    injected = total(books, ["injected"]) | {"weights": np.zeros(len(started["weights"]))}
    same(total(books), plus(started, injected), "mass of the swarm")
    agreed(books)


def agreed(books: Sequence[dict[str, Any]]) -> None:
    """What one peer believes to have delivered to another is what that one booked."""
    for one in books:
        for other in books:
            (rank, life), (other_rank, other_life) = one["address"], other["address"]
            sent = flow(one, "Released", rank=other_rank, other_life=other_life, life=life)
            got = flow(other, "Booked", rank=rank, other_life=life, life=other_life)
            same(sent, got, f"parcels from {one['address']} to {other['address']}")
            assert sent["count"] == got["count"], f"parcels from {one['address']} to {other['address']}"


def spread(books: Iterable[dict[str, Any]]) -> float:
    """Return how far apart the estimates of the peers are, at most, for any element of a sample."""
    return float(np.ptp([book["sample"] for book in books], axis=0).max())


def closed(peers: Iterable[Peer]) -> None:
    """Close peers and let them end: without hanging, leaving nothing behind, with exit code 0."""
    ending = list(peers)
    for peer, answer in zip(ending, all_of(ending, "close"), strict=True):
        # A bound against hangs only: on a loaded machine any peer is slow, and how fast it is, is for benchmarks.
        assert answer["seconds"] < 20, f"{peer} took {answer['seconds']:.2f} s to close"
        assert not answer["left"], f"{peer} left behind: {answer['left']}"
        peer.dismiss()
    for peer in ending:
        assert peer.exit() == 0, peer.errors()


def near(value: float, expected: float) -> bool:
    return bool(value == pytest.approx(expected, abs=1e-9))
