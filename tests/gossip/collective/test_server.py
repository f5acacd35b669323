"""Moves to a centre: each is added exactly once, whatever the network does; and only the centre's death matters."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

import numpy as np
import pytest
from repeats import some

from gossip import events
from gossip.collective import ParameterServer
from gossip.collective.server import CENTRE
from gossip.errors import InvariantError, Rejected
from gossip.faults.weather import Network, Weather
from gossip.values.layout import Layout
from gossip.values.pool import Pool
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Chunk, Subject

#: Three chunks: whole numbers, so that sums are exact.
SIZE = 3 * 65536 - 100
BAD = {"loss": 0.2, "duplicate": 0.15, "corrupt": 0.05, "delay": (0.001, 0.6)}


class Star:
    """A centre and workers that make so many moves each, in virtual time."""

    def __init__(self, n: int, moves: int, weather: Weather) -> None:
        self.members = dict.fromkeys(range(n), 0)
        self.network, self.codec = Network(weather), WireCodec("run", Layout.uniform(4, 1, np.float32))
        self.generator = np.random.default_rng(weather.seed)
        self.now, self._order, self._due = 0.0, count(), []
        self.moves = moves
        self.addresses = [Address(rank, 0) for rank in range(n)]
        self.servers = [ParameterServer(me, Pool(0), first=0.25, ceiling=1.0) for me in self.addresses]
        self.values: list[Any] = [None] * n
        self.sent: list[list[np.ndarray]] = [[] for _ in range(n)]
        self.got = [0] * n
        self.effects: list[list[Any]] = [[] for _ in range(n)]
        self.reduce(0, np.zeros(SIZE, np.float32))
        for rank in range(1, n):
            self.next(rank)

    def at(self, when: float, what: Any) -> None:
        heapq.heappush(self._due, (when, next(self._order), what))

    def next(self, rank: int) -> None:
        if len(self.sent[rank]) < self.moves:
            move = self.generator.integers(-9, 10, SIZE).astype(np.float32)
            self.sent[rank].append(move.copy())
            self.reduce(rank, move)

    def reduce(self, rank: int, values: np.ndarray) -> None:
        self.values[rank] = values
        self.servers[rank].handle(events.Reduce(values), self.now)
        self.work(rank)

    def work(self, rank: int) -> None:
        if rank not in self.members:
            return
        for one in list(self.servers[rank].work(self.addresses[rank], self.members, self.now)):
            if isinstance(one, Chunk):
                frames = [bytes(frame) for frame in self.codec.encode(one)]
                for when, copy in self.network.carry(self.now, rank, one.destination.rank, frames):
                    self.at(when, lambda copy=copy: self.deliver(copy))
            else:
                self.effects[rank].append(one)
                if isinstance(one, events.Reduced):
                    self.got[rank] += 1
                    if rank:
                        self.at(self.now + self.generator.uniform(0, 0.3), lambda: self.next(rank))
        if (deadline := self.servers[rank].deadline) is not None:
            self.at(max(deadline, self.now), lambda: self.tick(rank, deadline))

    def tick(self, rank: int, deadline: float) -> None:
        if self.servers[rank].deadline == deadline:
            self.work(rank)

    def deliver(self, frames: Any) -> None:
        try:
            message = self.codec.decode(frames)
        except Rejected:
            return
        to, origin = message.destination, message.origin
        if self.members.get(to.rank) == to.incarnation and self.members.get(origin.rank) == origin.incarnation:
            self.servers[to.rank].receive(message, to, self.members, self.now)
            self.work(to.rank)

    def run(self, until: Any) -> None:
        while not until():
            self.now, _, what = heapq.heappop(self._due)
            assert self.now < 600
            what()

    @property
    def model(self) -> np.ndarray:
        model = self.servers[0]._model
        assert model is not None
        return model


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_every_move_is_added_exactly_once(seed: int) -> None:
    star = Star(4, 5, Weather(seed=seed, **BAD) if seed else Weather())
    star.run(lambda: star.got[1:] == [5] * 3)
    np.testing.assert_array_equal(star.model, np.sum([move for sent in star.sent for move in sent], axis=0))


def test_the_answer_to_a_move_holds_it_and_what_others_did() -> None:
    star = Star(3, 1, Weather())
    star.run(lambda: star.got[1:] == [1, 1])
    last = star.values[1] if (star.values[1] == star.model).all() else star.values[2]
    np.testing.assert_array_equal(last, star.sent[1][0] + star.sent[2][0])


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_a_worker_that_dies_is_nothing_to_the_others(seed: int) -> None:
    star = Star(4, 5, Weather(seed=seed, **BAD))
    star.run(lambda: star.now > 1.0)
    del star.members[3]
    star.run(lambda: star.got[1:3] == [5, 5])
    sure = np.sum([*star.sent[1], *star.sent[2], *star.sent[3][: star.got[3]]], axis=0)
    rest = star.model - sure
    last = star.sent[3][star.got[3]] if star.got[3] < len(star.sent[3]) else np.zeros(SIZE)
    for part in np.array_split(np.arange(SIZE), 3):
        assert len(part)
    assert ((rest == 0) | (rest == last)).all(), "of its last move, what had arrived"


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_a_worker_that_takes_a_new_life_in_the_middle_adds_nothing_twice(seed: int) -> None:
    star = Star(3, 4, Weather(seed=seed, **BAD))
    star.run(lambda: star.now > 0.7)
    before = star.got[2]
    star.members[2], star.addresses[2] = 1, Address(2, 1)
    star.work(2)
    star.run(lambda: star.got[1:] == [4, 4])
    cut = star.sent[2][before]
    sure = np.sum([*star.sent[1], *star.sent[2][:before], *star.sent[2][before + 1 :]], axis=0)
    rest = star.model - sure
    assert ((rest == 0) | (rest == cut)).all()


def test_moves_that_are_not_finite_are_answered_and_not_added() -> None:
    star = Star(2, 0, Weather())
    move = np.ones(SIZE, np.float32)
    move[7] = np.nan
    star.reduce(1, move)
    star.run(lambda: star.got[1] == 1)
    assert star.servers[0].refused == 1
    assert (star.model[:65536] == 0).all()
    assert (star.model[65536:] == 1).all()
    assert np.isfinite(star.values[1]).all()
    star.reduce(0, np.full(SIZE, np.inf, np.float32))
    assert np.isfinite(star.model).all()
    assert star.effects[0][-1] == events.Reduced(1, 1, False)


def test_when_the_centre_is_gone_the_others_are_told_why_they_cannot_go_on() -> None:
    star = Star(3, 5, Weather())
    star.run(lambda: star.got[1] >= 1)
    del star.members[0]
    star.work(1)
    star.work(1)
    told = [one for one in star.effects[1] if isinstance(one, events.Stranded)]
    assert len(told) == 1
    assert "the centre, rank 0, is gone" in told[0].reason
    assert star.servers[1].deadline is None


def test_a_centre_that_was_given_up_ends_too() -> None:
    star = Star(2, 0, Weather())
    star.addresses[0] = Address(0, 1)
    star.members[0] = 1
    star.work(0)
    assert isinstance(star.effects[0][-1], events.Stranded)


def test_what_cannot_be_a_move_changes_nothing() -> None:
    star = Star(2, 0, Weather())
    for values, index in [(np.ones(5, np.float32), 0), (np.ones(65536, np.float32), 99)]:
        chunk = Chunk(Address(1, 0), CENTRE, Subject.MOVE, 0, 0, 0, index, values.view(np.uint8))
        star.servers[0].receive(chunk, CENTRE, star.members, 0.0)
    assert (star.model == 0).all()
    with pytest.raises(InvariantError):
        star.servers[1].handle(events.Reduce(np.ones((2, 2))), 0.0)


def drawn(rank: int, life: int) -> ParameterServer:
    """A founder that drew its life, and knows of the others only where they are."""
    return ParameterServer(Address(rank, life), Pool(0), first=0.25, ceiling=1.0, lives_drawn=True)


def said(server: ParameterServer, me: Address, members: dict[int, int], now: float = 0.0) -> list[Any]:
    return list(server.work(me, members, now))


def test_where_lives_are_drawn_a_worker_waits_for_the_life_of_the_centre() -> None:
    me, worker = Address(1, 900), drawn(1, 900)
    worker.handle(events.Reduce(np.ones(4, np.float32)), 0.0)
    assert said(worker, me, {0: 0, 1: 900}) == [], "nobody knows whom to send it to, and nobody is gone"
    (chunk,) = said(worker, me, {0: 800, 1: 900})
    assert chunk.destination == Address(0, 800)
    (stranded,) = said(worker, me, {0: 850, 1: 900})
    assert isinstance(stranded, events.Stranded), "a centre that was started again has another model"


def test_where_lives_are_drawn_rank_0_is_the_centre() -> None:
    centre = drawn(0, 800)
    centre.handle(events.Reduce(np.ones(4, np.float32)), 0.0)
    (reduced,) = said(centre, Address(0, 800), {0: 800, 1: 0})
    assert isinstance(reduced, events.Reduced)
