"""Random events on a few bare cores, in orders that no network or detector would choose.

Letters are lost, doubled and delivered in any order; deaths are declared and denied at random, differently at every
peer; peers restart. The accounts here are the test's own: the life of every parcel, from the effects alone.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hand_swarm import Hand
from repeats import some

from gossip import events
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.wire.messages import Address, Parcel
from topologies.draws import below

ALGORITHMS = ["sgp", "osgp", "adpsgd"]


class Storm:
    """A few cores, what they sent, and what became of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.turn = 0
        n = 2 + below(3, seed, 0)
        self.hand = Hand(
            *[float(rank) for rank in range(n)],
            turns=[{u: {v: 1 / n for v in range(n) if v != u} for u in range(n)}],
            algorithm=ALGORITHMS[seed % 3],
            weight_cap=(1.5, 3.0)[seed % 2],
        )
        self.booked: Counter[object] = Counter()
        self.settled: dict[object, str] = {}
        self.sent: dict[object, Address] = {}
        self.back: set[object] = set()
        self.lives_ended = 0

    def pick(self, bound: int) -> int:
        self.turn += 1
        return below(bound, 17, self.seed, self.turn)

    def feed(self, rank: int, event: events.Event) -> None:
        for effect in self.hand.feed(rank, event):
            match effect:
                case events.Send():
                    message = self.hand.read(effect)
                    if isinstance(message, Parcel):
                        self.sent[message.key] = message.origin
                case events.Booked(parcel):
                    self.booked[parcel.key] += 1
                    assert self.booked[parcel.key] == 1, f"seed {self.seed}: booked twice: {parcel.key}"
                    assert self.settled.get(parcel.key) != "refused", f"seed {self.seed}: refused, then booked"
                case events.Refused(parcel):
                    assert not self.booked[parcel.key], f"seed {self.seed}: booked, then refused"
                    self.settled[parcel.key] = "refused"
                case events.Released(parcel):
                    assert self.booked[parcel.key], f"seed {self.seed}: forgotten by its sender, booked by nobody"
                    assert parcel.key not in self.back, f"seed {self.seed}: taken back, then released"
                    assert self.settled.setdefault(parcel.key, "released") == "released", f"seed {self.seed}"
                case events.TakenBack(parcel):
                    assert self.settled.get(parcel.key) != "released", f"seed {self.seed}: released and taken back"
                    self.back.add(parcel.key)
                case events.Reincarnated():
                    self.lives_ended += 1

    def event(self) -> None:
        """Let something happen."""
        hand, n = self.hand, len(self.hand.cores)
        rank, other = self.pick(n), self.pick(n)
        what = self.pick(100)
        hand.now += 0.01 * self.pick(20)
        if what < 25:
            if not hand.cores[rank]._step.open:
                self.feed(rank, events.StepFinished())
        elif what < 75 and hand.post:
            send = hand.post[self.pick(len(hand.post))]
            if self.pick(10):  # otherwise a copy stays
                hand.post.remove(send)
            self.feed(send.to.rank, events.Received(send.frames))
        elif what < 82 and hand.post:
            hand.post.pop(self.pick(len(hand.post)))
        elif what < 92:
            self.feed(rank, events.Tick())
        elif what < 96 and rank != other:
            life = hand.cores[other].me.incarnation
            self.feed(rank, events.PeerDied(Address(other, max(0, life - self.pick(2)))))
        elif what < 99 and rank != other:
            self.feed(rank, events.PeerAlive(hand.cores[other].me))
        elif what == 99:
            self.restart(rank, other)

    def restart(self, rank: int, donor: int) -> None:
        old, giver = self.hand.cores[rank], self.hand.cores[donor]
        if rank == donor:
            return
        me = Address(rank, old.me.incarnation + 1)
        mass = Mass(old.mass.layout, giver.mass.values.copy())
        self.hand.cores[rank] = Core(me, mass, giver.view.roster, old.policy, old.state.settings, turns=giver.turns)
        self.lives_ended += 1

    def calm_down(self) -> None:
        """Tell everybody the truth, a few times, and let all letters arrive."""
        hand = self.hand
        for _ in range(6):
            for rank in range(len(hand.cores)):
                for other, core in enumerate(hand.cores):
                    if other != rank:
                        self.feed(rank, events.PeerAlive(core.me))
            for _ in range(40):
                while hand.post:
                    send = hand.post.pop(0)
                    self.feed(send.to.rank, events.Received(send.frames))
                hand.now += 1.0
                for rank in range(len(hand.cores)):
                    self.feed(rank, events.Tick())


@pytest.mark.parametrize("block", some(range(16), 4))
def test_exactly_once_whatever_the_order_of_events(block: int) -> None:
    quiet = 0
    for seed in range(50 * block, 50 * block + 50):
        storm = Storm(seed)
        for _ in range(150):
            storm.event()
        storm.calm_down()
        cores = storm.hand.cores
        lives = {core.me.rank: core.me.incarnation for core in cores}
        for core in cores:
            assert dict(core.view.members) == lives, f"seed {seed}: {core.me} has another view for good"
            assert not any(core.view.fenced(other.me) for other in cores), f"seed {seed}: fenced for good"
            assert not len(core.outbox), f"seed {seed}: parcels that are never answered"
            assert np.isfinite(core.mass.values).all()
        living = {core.me for core in cores}
        for key, origin in storm.sent.items():
            ended = storm.settled.get(key) == "released" or key in storm.back
            assert ended or origin not in living, f"seed {seed}: {key} is neither released nor taken back"
        if not storm.lives_ended:
            quiet += 1
            total = sum(sum(core.mass.weights) + sum(pile.weight for pile in core.inbox) for core in cores)
            assert total == pytest.approx(len(cores)), f"seed {seed}: {total} of {len(cores)}"
    assert quiet < 50, "most storms end a life"
