"""Swarms of real engines on loopback, each with its own thread and sockets."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

import topologies
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.events import Effect
from gossip.net.driver import Driver
from gossip.net.zmq_transport import ZmqTransport, new_keys
from gossip.policies import parse
from gossip.settings import Settings
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Hello

LOOPBACK = Endpoint("127.0.0.1", 0)
#: Nothing here takes longer than this unless it hangs.
PATIENCE = 60.0
#: What takes longer to close hangs. No more than that is held: where many share a core anything may stand for seconds.
HANGS = 20.0


@dataclass
class Engine:
    core: Core
    transport: ZmqTransport
    driver: Driver
    effects: list[Effect] = field(default_factory=list)


@contextmanager
def swarm(
    n: int,
    *,
    size: int = 64,
    shard_bytes: int = 256,
    topology: str = "one-peer-exponential",
    algorithm: str = "sgp",
    encrypted: bool = False,
    settings: Settings | None = None,
) -> Iterator[list[Engine]]:
    """Start n engines that know each other; rank r starts with the value r everywhere."""
    layout = Layout.cut(size, shard_bytes, np.float64)
    roster = Roster(dict.fromkeys(range(n), 0), lambda m: topologies.parse(topology, m))
    keys = [new_keys() if encrypted else None for _ in range(n)]
    public = [pair.public for pair in keys if pair]
    transports = [ZmqTransport(LOOPBACK, keys=pair, admitted=public) for pair in keys]
    engines: list[Engine] = []
    for rank, transport in enumerate(transports):
        for other in range(n):
            if other != rank:
                key = keys[other].public if keys[other] else None
                transport.connect(other, transports[other].endpoint, key)
        mass = Mass(layout, np.full(size, float(rank)))
        core = Core(Address(rank, 0), mass, roster, parse(algorithm), settings or Settings(wait_floor=5.0))
        effects: list[Effect] = []
        engines.append(Engine(core, transport, Driver(core, transport, listen=effects.append), effects))
    greet(transports, layout, settings or Settings())
    for engine in engines:
        engine.driver.__enter__()
    try:
        yield engines
    finally:
        for engine in engines:
            engine.driver.close()


def greet(transports: Sequence[ZmqTransport], layout: Layout, settings: Settings) -> None:
    """Say hello from everybody to everybody, so that all connections stand before the first step."""
    codec = WireCodec(settings.run, layout)
    todo = {(a, b) for a in range(len(transports)) for b in range(len(transports)) if a != b}
    deadline = time.monotonic() + PATIENCE
    while todo:
        assert time.monotonic() < deadline, f"not connected: {todo}"
        for a, b in list(todo):
            if transports[a].send(b, codec.encode(Hello(Address(a, 0), Address(b, 0)))):
                todo.remove((a, b))
        for transport in transports:
            transport.wait(0.001)


def together(engines: Sequence[Engine], work: Callable[[Engine], None]) -> None:
    """Do the same in a thread per engine, as so many trainers would; an error in any is raised here."""
    errors: list[BaseException] = []

    def run(engine: Engine) -> None:
        try:
            work(engine)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a trainer hangs"
    if errors:
        raise errors[0]


def steps(count: int) -> Callable[[Engine], None]:
    def work(engine: Engine) -> None:
        for _ in range(count):
            engine.driver.step(PATIENCE)

    return work


def weight(engines: Sequence[Engine]) -> float:
    """Return the weight per shard of closed engines that were flushed: what they hold and what waits for them."""
    total = 0.0
    for engine in engines:
        total += sum(engine.core.mass.weights) + sum(pile.weight for pile in engine.core.inbox)
        assert not len(engine.core.outbox), "flush first: a parcel in an outbox may be booked already"
    return total / engines[0].core.mass.layout.shards


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
    try:
        with suppress(OSError):  # the limit is on the number of a descriptor: lower ones may be free
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
