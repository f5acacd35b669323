"""Every kind of transport there is, made alike, for tests that hold for all. A new kind is an entry in `KINDS`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from engines import LOOPBACK, PATIENCE, Engine, greet

import topologies
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.events import Effect
from gossip.faults.weather import Network, Weather
from gossip.net.disturbed_transport import DisturbedTransport
from gossip.net.driver import Driver
from gossip.net.memory_transport import Hub, MemoryTransport
from gossip.net.shared_memory.owner import SharedMemory
from gossip.net.transport import Transport
from gossip.net.zmq_transport import ZmqTransport, new_keys
from gossip.policies import parse
from gossip.settings import Settings
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.messages import Address

#: Large enough that ZeroMQ refers to the memory instead of copying it.
LARGE = 1 << 17

#: Makes the next transport of a site, and its public key if it has one.
Make = Callable[[], tuple[Transport, bytes | None]]


def memory() -> Make:
    hub = Hub()
    return lambda: (MemoryTransport(hub), None)


def plain() -> Make:
    return lambda: (ZmqTransport(LOOPBACK), None)


def curve() -> Make:
    keys = [new_keys() for _ in range(8)]
    spare = iter(keys)

    def make() -> tuple[Transport, bytes]:
        pair = next(spare)
        return ZmqTransport(LOOPBACK, keys=pair, admitted=[one.public for one in keys]), pair.public

    return make


class _Sharing(ZmqTransport):
    """Has what it sends in shared memory, as a core has, and keeps it, as a core does until it is answered."""

    def __init__(self) -> None:
        super().__init__(LOOPBACK)
        self._memory = SharedMemory(256)
        self._kept: list[np.ndarray] = []

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        *header, values = frames
        if len(values) < LARGE:
            return super().send(rank, frames, ordered)
        memory = self._memory.allocate(len(values))
        memory[:] = np.frombuffer(values, np.uint8)
        taken = super().send(rank, [*header, memory.data], ordered)
        if taken:
            self._kept.append(memory)
        return taken

    def close(self) -> None:
        super().close()
        self._kept.clear()


def shared() -> Make:
    return lambda: (_Sharing(), None)


def disturbed(kind: Callable[[], Make], weather: Weather | None = None) -> Callable[[], Make]:
    def build() -> Make:
        make, ranks = kind(), iter(range(100))

        def wrap() -> tuple[Transport, bytes | None]:
            inner, key = make()
            rank = next(ranks)
            return DisturbedTransport(inner, rank, Network((weather or Weather()).seen_by(rank))), key

        return wrap

    return build


KINDS: dict[str, Callable[[], Make]] = {
    "memory": memory,
    "disturbed-memory": disturbed(memory),
    "zmq": plain,
    "curve": curve,
    "shared": shared,
    "disturbed-zmq": disturbed(plain),
}


class Site:
    """Transports of one kind that can reach each other."""

    def __init__(self, kind: Callable[[], Make]) -> None:
        self._make = kind()
        self._keys: dict[int, bytes | None] = {}
        self.made: list[Transport] = []

    def make(self) -> Transport:
        transport, key = self._make()
        self._keys[id(transport)] = key
        self.made.append(transport)
        return transport

    def connect(self, sender: Transport, rank: int, receiver: Transport) -> None:
        sender.connect(rank, receiver.endpoint, self._keys[id(receiver)])

    def pair(self) -> tuple[Transport, Transport]:
        """Return a sender and a receiver, which is rank 0 to it; nothing need stand yet."""
        sender, receiver = self.make(), self.make()
        self.connect(sender, 0, receiver)
        return sender, receiver

    def joined(self) -> tuple[Transport, Transport]:
        """Return a pair between which everything stands, for messages of any size."""
        sender, receiver = self.pair()
        for message in ([b"first"], [b"first", bytes(LARGE)]):
            send(sender, 0, receiver, message)
            assert content(receive(receiver, sender)) == message
        return sender, receiver

    def close(self) -> None:
        for transport in self.made:
            transport.close()


def until(condition: Callable[[], object], *awake: Transport, why: str) -> None:
    """Give everybody who is named time until something holds: who admits by key has to be awake to do it."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, why
        for transport in awake:
            transport.wait(0.002)


def send(sender: Transport, rank: int, receiver: Transport, frames: Sequence[Buffer]) -> None:
    """Send as soon as it is taken: the connection may not stand yet."""
    until(lambda: sender.send(rank, frames), sender, receiver, why="never taken")


def receive(receiver: Transport, *awake: Transport) -> list[Buffer]:
    """Return the next message."""
    got: list[Sequence[Buffer]] = []

    def arrived() -> bool:
        frames = receiver.receive()
        if frames is not None:
            got.append(frames)
        return bool(got)

    until(arrived, receiver, *awake, why="nothing arrived")
    return list(got[0])


def content(frames: Sequence[Buffer]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


@contextmanager
def swarm_on(
    site: Site, n: int, *, size: int, shard_bytes: int, topology: str, settings: Settings, algorithm: str = "sgp"
) -> Iterator[list[Engine]]:
    """Start n engines on the transports of a site; rank r starts with the value r everywhere."""
    layout = Layout.cut(size, shard_bytes, np.float64)
    roster = Roster(dict.fromkeys(range(n), 0), lambda m: topologies.parse(topology, m))
    transports = [site.make() for _ in range(n)]
    engines = []
    for rank, transport in enumerate(transports):
        for other in range(n):
            if other != rank:
                site.connect(transport, other, transports[other])
        core = Core(Address(rank, 0), Mass(layout, np.full(size, float(rank))), roster, parse(algorithm), settings)
        effects: list[Effect] = []
        engines.append(Engine(core, transport, Driver(core, transport, listen=effects.append), effects))
    greet(transports, layout, settings)
    for engine in engines:
        engine.driver.__enter__()
    try:
        yield engines
    finally:
        for engine in engines:
            engine.driver.close()
