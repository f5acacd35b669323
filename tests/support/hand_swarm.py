"""A few cores driven by hand: the test decides which letter is delivered, when, and whether at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack
import numpy as np
import xxhash

from gossip import events, policies
from gossip.books.mass import Mass
from gossip.core.annex import Annex
from gossip.core.core import Core
from gossip.events import Effect, Event
from gossip.settings import Settings
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Message, Parcel
from topologies import Plan, Schedule

RUN = "hand"
Turn = Mapping[int, Mapping[int, float]]

#: Both push half of their mass to each other.
PAIR: Turn = {0: {1: 0.5}, 1: {0: 0.5}}
#: 0 pushes half of its mass to 1, and gets nothing.
ONE_WAY: Turn = {0: {1: 0.5}}
#: Everybody pushes half to the next of three.
CIRCLE: Turn = {0: {1: 0.5}, 1: {2: 0.5}, 2: {0: 0.5}}


def schedule(n: int, *turns: Turn) -> Schedule:
    """Return the schedule that repeats the turns, each {sender: {receiver: fraction}}, less what n has no place for."""

    def out(rank: int, step: int) -> tuple[tuple[int, float], ...]:
        return tuple((to, fraction) for to, fraction in turns[step].get(rank, {}).items() if to < n)

    def into(rank: int, step: int) -> tuple[int, ...]:
        return tuple(sender for sender, edges in turns[step].items() if rank in edges and sender < n)

    return Schedule("hand", n, Plan(len(turns), out, into))


def sealed(fields: object, body: bytes | None = None) -> list[bytes]:
    """Return frames with a correct seal around any header at all."""
    return sealed_bytes(msgpack.packb(fields), body)


def sealed_bytes(header: bytes, body: bytes | None = None) -> list[bytes]:
    header += b"" if body is None else xxhash.xxh3_64_digest(body)
    frame = header + xxhash.xxh3_64_digest(header)
    return [frame] if body is None else [frame, body]


def only(effects: Sequence[Effect], kind: type) -> list:
    """Return the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


class Memory:
    """Bytes in blocks, as an annex has them."""

    def __init__(self, content: bytes, block: int) -> None:
        self.content = bytearray(content)
        self._block = block
        self.sizes = [len(content[start : start + block]) for start in range(0, len(content), block)]

    def read(self, block: int) -> np.ndarray:
        return np.frombuffer(bytes(self.content[block * self._block :][: self.sizes[block]]), np.uint8)

    def write(self, block: int, content: np.ndarray) -> None:
        start = block * self._block
        self.content[start : start + self.sizes[block]] = content.tobytes()


class Hand:
    """Cores of the ranks 0 .. n-1, a post office, and a clock that stands still until told otherwise."""

    def __init__(
        self,
        *values: float | Sequence[float],
        turns: Sequence[Turn] = (PAIR,),
        algorithm: str = "sgp",
        shards: int = 1,
        annexes: Sequence[Annex | None] = (),
        **settings: object,
    ) -> None:
        """Start a core for each of the values; a number stands for a vector of one."""
        arrays = [np.atleast_1d(np.array(value, dtype=np.float64)) for value in values]
        self.layout = Layout.uniform(len(arrays[0]), shards, np.dtype(np.float64))
        self.codec = WireCodec(RUN, self.layout)
        self.now = 0.0
        members = dict.fromkeys(range(len(values)), 0)
        self.cores = [
            Core(
                Address(rank, 0),
                Mass(self.layout, array),
                Roster(members, lambda n: schedule(n, *turns)),
                policies.parse(algorithm),
                Settings(run=RUN, **settings),
                annex=annex,
            )
            for rank, (array, annex) in enumerate(zip(arrays, annexes or [None] * len(arrays), strict=True))
        ]
        #: Sent and not delivered, oldest first.
        self.post: list[events.Send] = []

    def feed(self, rank: int, event: Event) -> list[Effect]:
        """Let a core handle an event; what it sends goes to the post."""
        effects = self.cores[rank].handle(event, self.now)
        self.cores[rank].validate_state()
        self.post += only(effects, events.Send)
        return effects

    def step(self, rank: int) -> list[Effect]:
        """Let a core finish a step, and all shards whose turn it is take their turns."""
        effects = self.feed(rank, events.StepFinished())
        while self.cores[rank]._step.turns_left:
            effects += self.feed(rank, events.Tick())
        return effects

    def round(self) -> None:
        """Let a second pass, everybody finish a step, and all letters arrive."""
        self.now += 1.0
        for rank in range(len(self.cores)):
            self.step(rank)
        self.settle()

    def tick(self, rank: int, now: float) -> list[Effect]:
        self.now = now
        return self.feed(rank, events.Tick())

    def tell(self, rank: int, message: Message) -> list[Effect]:
        """Hand a message of the test's own to a core."""
        return self.feed(rank, events.Received(self.codec.encode(message)))

    def read(self, send: events.Send) -> Message:
        return self.codec.decode(send.frames)

    def mail(self) -> list[Message]:
        """Return what lies at the post, readable."""
        return [self.read(send) for send in self.post]

    def deliver(self, kind: type | tuple[type, ...] = object) -> list[Effect]:
        """Deliver the oldest letter of a kind and return what its receiver does."""
        send = next(send for send in self.post if isinstance(self.read(send), kind))
        self.post.remove(send)
        return self.feed(send.to.rank, events.Received(send.frames))

    def settle(self) -> list[Effect]:
        """Deliver everything, and what comes of it, until nobody writes any more."""
        effects: list[Effect] = []
        while self.post:
            effects += self.deliver()
        return effects

    def lose(self, kind: type | tuple[type, ...] = object) -> int:
        """Lose all letters of a kind and return how many they were."""
        before = len(self.post)
        self.post = [send for send in self.post if not isinstance(self.read(send), kind)]
        return before - len(self.post)

    def parcels(self) -> list[Parcel]:
        return [message for message in self.mail() if isinstance(message, Parcel)]

    def total(self) -> tuple[float, float]:
        """Return the weight and the sum of x of all cores, with what waits and what is on its way."""
        weight = x = 0.0
        for core in self.cores:
            loose = [*core.inbox, *(entry.parcel for entry in core.outbox)]
            shards = [(held, core.mass.view(shard)) for shard, held in enumerate(core.mass.weights)]
            for part, values in [*shards, *((parcel.weight, parcel.values) for parcel in loose)]:
                weight += part
                x += part * float(values.sum())
        return weight, x

    def bits(self, rank: int) -> tuple[bytes, tuple[float, ...]]:
        """Return the parameters of a core, to the last bit."""
        mass = self.cores[rank].mass
        return mass.values.tobytes(), tuple(mass.weights)


def parcel(
    origin: int = 1, to: int = 0, sequence: int = 0, *, value: float | Sequence[float] = 1.0, **fields: object
) -> Parcel:
    """Return a parcel between first incarnations, with whatever the test wants otherwise."""
    values = np.atleast_1d(np.array(value, dtype=np.float64))
    known = {
        "origin": Address(origin, 0),
        "destination": Address(to, 0),
        "sequence": sequence,
        "turn": 0,
        "shard": 0,
        "weight": 0.25,
        "values": values,
    }
    return Parcel(**{**known, **fields})
