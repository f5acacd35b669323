"""Reductions over a network that does what it likes, in virtual time: no core, no transport, the real codec.

Every node trains a quadratic of its own with the averages that it gets. A node's view changes when the test says so, at
another moment for everybody.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossip import events
from gossip.codecs import parse
from gossip.collective import Reduction
from gossip.collective.attempts import Attempts
from gossip.collective.interface import Said
from gossip.collective.residuals import Residuals
from gossip.errors import Rejected
from gossip.faults.weather import Network, Weather
from gossip.values.layout import Layout
from gossip.values.pool import Pool
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Chunk, Enter

RATE = 0.1


@dataclass
class Node:
    """A reduction, the trainer that it serves, and what it believes of the others."""

    me: Address
    members: dict[int, int]
    x: np.ndarray
    reduction: Reduction
    #: Rounds to make.
    rounds: int
    pause: Callable[[], float]
    residuals: Residuals | None = None
    step: int = 0
    #: What was put into each round, what came out, and among whom.
    gradients: dict[int, np.ndarray] = field(default_factory=dict)
    results: dict[int, np.ndarray] = field(default_factory=dict)
    computed: dict[int, list[int]] = field(default_factory=dict)
    skipped: list[int] = field(default_factory=list)
    adopted: list[int] = field(default_factory=list)
    values: np.ndarray = field(default_factory=lambda: np.empty(0))
    alive: bool = True
    synchronized: bool = False
    #: Whether its trainer has withdrawn, and whether it was told that nobody needs it.
    pausing: bool = False
    withdrawn: bool = False

    @property
    def done(self) -> bool:
        return self.step >= self.rounds


class Swarm:
    """Nodes and the network between them."""

    def __init__(
        self,
        n: int,
        *,
        size: int = 37,
        rounds: int = 3,
        weather: Weather | None = None,
        kind: str = "auto",
        dtype: Any = np.float32,
        gradient: Callable[[Node], np.ndarray] | None = None,
        seed: int = 0,
        compress: str = "",
        lossy: int | None = None,
        correction: float = 0.0,
        rate: float = RATE,
    ) -> None:
        """Put n nodes there; with a codec, the first ``lossy`` values go through it, or all."""
        self.compress, self.lossy, self.correction, self.rate = compress, lossy, correction, rate
        self.size, self.rounds, self.kind, self.dtype = size, rounds, kind, np.dtype(dtype)
        self.generator = np.random.default_rng(seed)
        self.targets = self.generator.normal(size=(64, size))
        self.network = Network(weather or Weather())
        self.codec = WireCodec("run", Layout.uniform(4, 1, np.float32))
        self.gradient = gradient or (lambda node: node.x - self.targets[node.me.rank])
        self.now = 0.0
        self._count = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.sent = 0
        #: Bytes of chunks, by who sent them.
        self.bytes: Counter[int] = Counter()
        self.nodes: dict[int, Node] = {}
        for rank in range(n):
            self.add(Address(rank, 0), dict.fromkeys(range(n), 0))
        for node in list(self.nodes.values()):
            self.call(node, events.Synchronize(0, 1))

    def add(self, me: Address, members: dict[int, int], rounds: int | None = None) -> Node:
        """Put a node there, which says nothing yet."""
        residuals = Residuals(parse(self.compress), self.correction) if self.compress else None
        attempts = Attempts(Pool(1 << 20), self.kind, residuals)
        reduction = Reduction(me, attempts, first=0.25, ceiling=1.0, early_bytes=1 << 20)
        node = self.nodes[me.rank] = Node(
            me,
            dict(sorted(members.items())),
            np.zeros(self.size),
            reduction,
            self.rounds if rounds is None else rounds,
            lambda: float(self.generator.uniform(0.0, 0.2)),
            residuals,
        )
        return node

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._count), what))

    def call(self, node: Node, event: Any) -> None:
        node.reduction.handle(event, self.now)
        self.work(node)

    def withdraw(self, rank: int) -> None:
        self.nodes[rank].pausing = True
        self.call(self.nodes[rank], events.Withdraw())

    def see(self, rank: int, change: Address, *, gone: bool = False) -> None:
        """Let a node hear that a member is gone, or there."""
        node = self.nodes[rank]
        members = {one: life for one, life in node.members.items() if one != change.rank}
        if not gone:
            members[change.rank] = change.incarnation
        node.members = dict(sorted(members.items()))
        if node.alive:
            self.work(node)

    def kill(self, rank: int, notice: Callable[[], float]) -> None:
        """Let a node die, and everybody else hear of it, each after its own while."""
        dead = self.nodes[rank]
        dead.alive = False
        for other in self.nodes.values():
            if other is not dead:
                self.at(self.now + notice(), lambda other=other: self.see(other.me.rank, dead.me, gone=True))

    def work(self, node: Node) -> None:
        while node.alive:
            done = True
            for one in list(node.reduction.work(node.me, node.members, self.now)):
                if isinstance(one, Said):
                    self._send(node, one)
                else:
                    done = False
                    self._effect(node, one)
            if done:
                break
        deadline = node.reduction.deadline
        if node.alive and deadline is not None:
            self.at(max(deadline, self.now), lambda: self._tick(node, deadline))

    def _tick(self, node: Node, deadline: float) -> None:
        if node.alive and node.reduction.deadline == deadline:
            self.work(node)

    def _effect(self, node: Node, effect: Any) -> None:
        match effect:
            case events.Synchronized(number, state):
                node.synchronized = True
                if state is not None:
                    node.x = np.frombuffer(state, np.float64).copy()
                    node.adopted.append(number)
                node.step = number
                if node.reduction._pending is None:
                    self._compute(node)
            case events.StateWanted(number):
                node.reduction.handle(events.Offer(number, node.x.tobytes()), self.now)
            case events.Reduced(number, count, finite):
                node.results[number] = node.values.copy()
                last = node.reduction._last
                assert last is not None
                assert last.count == count
                if last.attempt is not None:
                    node.computed[number] = list(last.places)
                    assert len(last.places) == count
                if finite:
                    node.x = node.x - self.rate * node.values
                else:
                    node.skipped.append(number)
                node.step = number + 1
                self._compute(node)
            case events.Withdrawn():
                node.withdrawn = True

    def _compute(self, node: Node) -> None:
        if not node.done:
            self.at(self.now + node.pause(), lambda: self._reduce(node))

    def _reduce(self, node: Node) -> None:
        if not node.alive or node.pausing:
            return
        node.values = self.gradient(node).astype(self.dtype)
        node.gradients[node.step] = node.values.copy()
        self.call(node, events.Reduce(node.values, self.size if self.lossy is None else self.lossy))

    def _send(self, node: Node, message: Said) -> None:
        self.sent += 1
        if isinstance(message, Chunk):
            self.bytes[node.me.rank] += message.values.nbytes
        frames = [bytes(frame) for frame in self.codec.encode(message)]
        for when, copy in self.network.carry(self.now, node.me.rank, message.destination.rank, frames):
            self.at(when, lambda copy=copy: self._deliver(message.destination.rank, copy))

    def _deliver(self, rank: int, frames: Any) -> None:
        node = self.nodes.get(rank)
        if node is None or not node.alive:
            return
        try:
            message = self.codec.decode(frames)
        except Rejected:
            return
        origin = message.origin
        if message.destination != node.me and not isinstance(message, Enter):
            return
        if message.destination.rank != rank or node.members.get(origin.rank) != origin.incarnation:
            return
        assert isinstance(message, Said)
        with suppress(Rejected):
            node.reduction.receive(message, node.me, node.members, self.now)
        self.work(node)

    def run(self, until: Callable[[], bool] | None = None, patience: float = 600.0) -> None:
        """Let time pass until all that live are through, or something else holds."""
        done = until or (lambda: all(node.done for node in self.nodes.values() if node.alive))
        while not done():
            assert self._due, f"nothing is to come any more at {self.now}"
            self.now, _, what = heapq.heappop(self._due)
            assert self.now < patience, {rank: (node.step, node.members) for rank, node in self.nodes.items()}
            what()

    def check(self) -> None:
        """Assert that those who live are equal to the bit, and that each average is one of those who were there.

        The latter only where no codec rounds.
        """
        living = [node for node in self.nodes.values() if node.alive]
        for number in {number for node in living for number in node.results}:
            found = {node.results[number].tobytes() for node in living if number in node.results}
            assert len(found) == 1, f"round {number} came to {len(found)} different averages"
            groups = {tuple(node.computed[number]) for node in living if number in node.computed}
            for group in groups if self.compress in ("", "none") else ():
                expected = np.mean([self.nodes[rank].gradients[number].astype(np.float64) for rank in group], axis=0)
                result = next(node.results[number] for node in living if number in node.results)
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
            assert len(groups) <= 1
        assert len({(node.step, node.x.tobytes()) for node in living if node.done}) == 1
