"""One peer of the real engine, as `benchmarks.engine_worker` runs it: core, driver and ZeroMQ."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import topologies
from benchmarks.engine_values import Floats, check
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.events import Effect
from gossip.net.driver import Driver
from gossip.net.shared_memory.owner import SharedMemory
from gossip.net.zmq_transport import ZmqTransport, new_keys
from gossip.policies import parse
from gossip.policies.policy import Policy
from gossip.presets import preset
from gossip.settings import Settings
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Hello
from topologies import Schedule

__all__ = ["PATIENCE", "Gossip"]

#: Nothing here takes longer than this unless it hangs.
PATIENCE = 60.0


class _Counted(ZmqTransport):
    """Counts what it hands over: headers and values of all messages, answers and repetitions included."""

    sent = 0

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        taken = super().send(rank, frames, ordered)
        if taken:
            self.sent += sum(memoryview(frame).nbytes for frame in frames)
        return taken


class Gossip:
    """A peer of n."""

    def __init__(self, rank: int, n: int, *, encrypted: bool, shared: bool = True) -> None:
        self._rank = rank
        self._n = n
        self._keys = new_keys() if encrypted else None
        # Whom to admit is known only when everybody has said who it is; see `join`.
        self._shared = shared
        self._transport = _Counted(Endpoint("127.0.0.1", 0), keys=self._keys, shared=shared)
        self._driver: Driver | None = None
        self._events: Counter[str] = Counter()

    @property
    def address(self) -> Any:
        """What the others have to know."""
        return str(self._transport.endpoint), self._keys.public.decode() if self._keys else None

    def join(self, addresses: Sequence[Any], values: Floats) -> None:
        """Connect to everybody and start, synchronous: whoever is late is waited for."""
        # A peer that is late to its step finds parcels of log2 n turns. With the usual two models of room it would
        # refuse some of them for n = 8, and the mean would no longer be exact.
        inbox = max(2, self._n.bit_length() - 1) * values.nbytes
        settings = Settings(wait_floor=PATIENCE, wait_ceiling=PATIENCE, inbox_bytes=inbox)
        self.start(addresses, values, parse("sgp"), settings, lambda n: topologies.parse("one-peer-exponential", n))

    def start(
        self,
        addresses: Sequence[Any],
        values: Floats,
        policy: Policy,
        settings: Settings,
        plan: Callable[[int], Schedule],
    ) -> Core:
        """Connect to everybody and start, with a policy, settings and a schedule for a number of members."""
        # As users get it: larger shards on one host, where no link is held by them.
        layout = Layout.cut(values.size, preset("loopback" if self._shared else "lan").shard_bytes)
        for rank, (endpoint, key) in enumerate(addresses):
            if rank != self._rank:
                if key:
                    self._transport.admit(key.encode())
                self._transport.connect(rank, Endpoint.parse(endpoint), key.encode() if key else None)
        roster = Roster(dict.fromkeys(range(self._n), 0), plan)
        mass = Mass(layout, values, owner=SharedMemory() if self._shared else None)
        core = Core(Address(self._rank, 0), mass, roster, policy, settings)
        self._greet(WireCodec(settings.run, layout))
        self._driver = Driver(core, self._transport, listen=self._listen)
        self._driver.__enter__()
        return core

    def step(self) -> None:
        """Mix once, answers and all.

        The answers are waited for because there is no training between these steps: a shard whose last parcel to the
        same neighbour is still unanswered passes, and the step would be cheaper than a whole one.
        """
        self.boundary()
        self.settle()

    def boundary(self) -> None:
        """Hand the values over until the next step may start."""
        assert self._driver is not None
        self._driver.step(PATIENCE)

    def settle(self) -> None:
        """Wait for the answers to everything that was sent."""
        assert self._driver is not None
        assert self._driver.flush(PATIENCE), "parcels were not answered"

    def sent(self) -> int:
        """Return the bytes handed over so far, by whichever way."""
        return self._transport.sent

    def wire(self) -> int:
        """Return those of them that went through sockets; a reference of 42 bytes counts for nothing."""
        return self._transport.sent - self._transport.bytes_shared

    def others(self) -> int:
        """Return the bytes of other processes' memory that are mapped here, and so resident here as well as there."""
        return self._transport.bytes_mapped

    def check(self, values: Floats, steps: int) -> None:
        """Raise unless the values are the mean of all; that takes log2 n steps where n is a power of two."""
        assert 1 << steps >= self._n, f"{steps} steps are too few for {self._n} peers to agree"
        try:
            check(values, (self._n - 1) / 2)
        except AssertionError as error:
            raise AssertionError(f"rank {self._rank}: {error}; {dict(self._events)}") from None

    def close(self) -> None:
        """End everything."""
        if self._driver is None:
            self._transport.close()
        else:
            self._driver.close()

    def _listen(self, effect: Effect) -> None:
        self._events[type(effect).__name__] += 1

    def _greet(self, codec: WireCodec) -> None:
        """Say hello to everybody, so that all connections stand before the first step."""
        me, todo = Address(self._rank, 0), set(range(self._n)) - {self._rank}
        deadline = time.monotonic() + PATIENCE
        while todo:
            assert time.monotonic() < deadline, f"rank {self._rank} is not connected to {todo}"
            todo = {rank for rank in todo if not self._transport.send(rank, codec.encode(Hello(me, Address(rank, 0))))}
            self._transport.wait(0.001)
