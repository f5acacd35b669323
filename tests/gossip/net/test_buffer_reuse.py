"""Memory of parcels is used again, but never while ZeroMQ may still read it."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
from engines import LOOPBACK, PATIENCE, steps, swarm, together

from gossip.books.mass import Mass
from gossip.net.zmq_transport import ZmqTransport
from gossip.settings import Settings
from gossip.values.layout import Layout
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Parcel

SIZE = 1 << 18  # 1 MiB
COUNT = 100  # more than the kernel and the other side take while nobody reads


@pytest.mark.parametrize("answered", [True, False])
def test_parcels_that_zeromq_still_holds_arrive_as_they_were(answered: bool) -> None:
    """All are forgotten by their sender, as after an answer or a take-back, before any has been read."""
    layout = Layout.uniform(SIZE, 1, np.float32)
    mass = Mass(layout, np.zeros(SIZE, np.float32))
    codec = WireCodec("run", layout)
    here, there = ZmqTransport(LOOPBACK), ZmqTransport(LOOPBACK)
    try:
        there.connect(0, here.endpoint)
        kept = []
        for number in range(COUNT):
            mass.values[:] = number
            snapshot = mass.snapshot(0)
            assert snapshot is not None
            parcel = Parcel(Address(1, 0), Address(0, 0), number, 0, 0, 0.5, snapshot.values, 0.0, snapshot.seal)
            frames = codec.encode(parcel)
            deadline = time.monotonic() + PATIENCE
            while not there.send(0, frames):
                assert time.monotonic() < deadline, "never connected"
                there.wait(0.01)
            if not answered:
                kept.append(parcel)
            del snapshot, parcel, frames
        arrived: list[int] = []
        while len(arrived) < COUNT:
            assert time.monotonic() < deadline + PATIENCE, "not everything arrived"
            got = here.receive()
            if got is None:
                here.wait(0.1)
                continue
            message = codec.decode(got)  # the seal fits
            assert isinstance(message, Parcel)
            assert (message.values == message.sequence).all()
            arrived.append(message.sequence)
        assert arrived == list(range(COUNT))
    finally:
        here.close()
        there.close()


def test_in_steady_state_no_new_memory_is_needed() -> None:
    settings = Settings(wait_floor=60.0, wait_ceiling=60.0)
    with swarm(2, size=1 << 18, shard_bytes=1 << 18, topology="ring", settings=settings) as engines:
        together(engines, steps(3))
        assert all(engine.driver.flush(PATIENCE) for engine in engines)
        known = set()
        for round_ in range(6):
            together(engines, steps(1))
            assert all(engine.driver.flush(PATIENCE) for engine in engines)
            for engine in engines:
                engine.effects.clear()  # they refer to parcels, and so keep them
            deadline = time.monotonic() + PATIENCE
            pool = engines[0].core.mass._pool
            while not pool.free_bytes and time.monotonic() < deadline:
                time.sleep(0.01)  # ZeroMQ gives memory back in a thread of its own
            gc.collect()
            places = {memory.ctypes.data for free in pool._free.values() for memory in free}
            assert places
            if round_ > 2:
                assert places <= known, "the same memory again and again"
            known |= places
