"""The core on real sockets: exact averages, nothing lost, nothing left behind."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
import zmq
from engines import HANGS, LOOPBACK, PATIENCE, steps, swarm, together, weight

import topologies
from gossip import events
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.net.driver import Driver, DriverError
from gossip.net.memory_transport import Hub, MemoryTransport
from gossip.net.transport import TransportError
from gossip.net.zmq_transport import ZmqTransport
from gossip.policies import parse
from gossip.settings import Settings
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.messages import Address


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(("n", "topology"), [(2, "ring"), (4, "one-peer-exponential"), (8, "base"), (3, "complete")])
def test_exact_topologies_give_the_exact_average(n: int, topology: str, encrypted: bool) -> None:
    # Followed to the letter: without the floor, and without the limits that a parcel which comes early can run into.
    settings = Settings(wait_floor=60.0, wait_ceiling=60.0, weight_floor=0.0, weight_cap=1e5, inbox_bytes=1 << 20)
    with swarm(n, topology=topology, encrypted=encrypted, settings=settings) as engines:
        together(engines, steps(6))
        assert all(engine.driver.flush(PATIENCE) for engine in engines)
    for engine in engines:
        np.testing.assert_allclose(engine.core.mass.values, (n - 1) / 2, atol=1e-12)
        engine.core.validate_state()
    assert weight(engines) == pytest.approx(n)


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd"])
def test_mass_is_accounted_for_over_all_engines(algorithm: str) -> None:
    settings = Settings(wait_floor=0.05, wait_ceiling=0.5)
    with swarm(5, size=4096, shard_bytes=4096, topology="epidemic", algorithm=algorithm, settings=settings) as engines:
        together(engines, steps(40))
        assert all(engine.driver.flush(PATIENCE) for engine in engines)
    total = np.zeros(4096)
    for engine in engines:
        mass = engine.core.mass
        for shard, (start, stop) in enumerate(mass.layout.bounds):
            total[start:stop] += mass.weights[shard] * mass.values[start:stop]
        for pile in engine.core.inbox:
            start, stop = mass.layout.bounds[pile.shard]
            total[start:stop] += pile.weight * pile.values
    assert weight(engines) == pytest.approx(5)
    np.testing.assert_allclose(total, 0 + 1 + 2 + 3 + 4, rtol=1e-9)


def test_a_large_parcel_crosses_uncopied_and_whole() -> None:
    settings = Settings(wait_floor=60.0, wait_ceiling=60.0)
    with swarm(2, size=1 << 20, shard_bytes=4 << 20, topology="ring", settings=settings) as engines:
        for _ in range(2):
            together(engines, steps(1))
            # A turn passes without mass as long as the parcel before it is not answered, and says so over the other
            # connection: that word can be there first, and end the wait for the parcel.
            assert all(engine.driver.flush(PATIENCE) for engine in engines)
    for engine in engines:
        np.testing.assert_allclose(engine.core.mass.values, 0.5)


def test_a_peer_that_is_gone_holds_nobody_up() -> None:
    with swarm(4, algorithm="sgp", settings=Settings(wait_floor=0.2, wait_ceiling=0.5)) as engines:
        together(engines, steps(3))
        engines[3].driver.close()
        for engine in engines[:3]:
            engine.driver.post(events.PeerDied(Address(3, 0)))
        together(engines[:3], steps(20))
        assert all(engine.driver.flush(PATIENCE) for engine in engines[:3])
        assert [engine.core.step for engine in engines] == [23, 23, 23, 3]


@pytest.mark.parametrize("state", ["idle", "peers gone", "mid-step"])
def test_closing_does_not_hang_in_any_state(state: str) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with swarm(2, size=1 << 16, shard_bytes=1 << 18, settings=Settings(wait_ceiling=60.0, wait_floor=60.0)) as engines:
        if state == "peers gone":
            engines[1].driver.close()
        if state in ("peers gone", "mid-step"):
            engines[0].driver.post(events.StepFinished())
        began = time.monotonic()
        engines[0].driver.close()
        assert time.monotonic() - began < HANGS
    left = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in left if name.startswith("gossip")}


def test_a_driver_that_never_started_gives_its_transport_back() -> None:
    transport = ZmqTransport(LOOPBACK)
    with swarm(2) as engines:
        Driver(engines[0].core, transport).close()
    with socket.create_server((transport.endpoint.host, transport.endpoint.port)):
        pass  # the port is free again


def test_a_step_waits_no_longer_than_it_is_told() -> None:
    patient = Settings(wait_ceiling=60.0, wait_floor=60.0)
    with swarm(2, settings=patient) as engines, pytest.raises(DriverError, match=r"not answered within 0\.2 seconds"):
        engines[0].driver.step(timeout=0.2)


def test_one_that_seems_not_to_hear_is_connected_to_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket takes everything, and nobody reads: a connection that looks well."""
    settings = Settings(wait_floor=0.01, wait_ceiling=0.01, resend_first=0.01, resend_ceiling=0.01)
    connected: list[int] = []
    connect = ZmqTransport.connect

    def counted(self: ZmqTransport, rank: int, endpoint: Endpoint, key: bytes | None = None) -> None:
        if endpoint.port == port:
            connected.append(rank)
        connect(self, rank, endpoint, key)

    with zmq.Context() as context, context.socket(zmq.PULL) as deaf:
        port = deaf.bind_to_random_port("tcp://127.0.0.1")
        monkeypatch.setattr(ZmqTransport, "connect", counted)
        with swarm(2, algorithm="osgp", settings=settings) as engines:
            engines[0].driver.introduce(1, Endpoint("127.0.0.1", port))
            deadline = time.monotonic() + PATIENCE
            while len(connected) < 2:
                assert time.monotonic() < deadline, "it goes on with the first connection"
                engines[0].driver.step()


def test_a_closed_driver_says_so() -> None:
    with swarm(2) as engines:
        engines[0].driver.close()
        with pytest.raises(DriverError, match="closed"):
            engines[0].driver.step(1.0)


def test_a_failure_in_the_thread_reaches_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    with swarm(2) as engines:

        def fail(*_: object) -> None:
            raise ValueError("broken on purpose")

        monkeypatch.setattr(engines[0].core, "handle", fail)
        with pytest.raises(DriverError, match="broken on purpose"):
            engines[0].driver.step(PATIENCE)
        with pytest.raises(DriverError, match="broken on purpose"):
            engines[0].driver.post(events.Tick())


def test_a_call_that_a_close_overtakes_does_not_seem_answered() -> None:
    """Its neighbour takes no step, so it waits; what an earlier call was answered is no answer to this one."""
    with swarm(2, settings=Settings(wait_ceiling=60.0, wait_floor=60.0)) as engines:
        driver = engines[0].driver
        driver.rest(PATIENCE)
        driver.resume(PATIENCE)
        told: list[DriverError] = []

        def train() -> None:
            try:
                driver.step(PATIENCE)
            except DriverError as error:
                told.append(error)

        trainer = threading.Thread(target=train)
        trainer.start()
        deadline = time.monotonic() + PATIENCE
        while driver.status().step < 1:
            assert time.monotonic() < deadline, "the step is never handled"
            time.sleep(0.001)
        driver.close()
        trainer.join(PATIENCE)
    assert [str(error) for error in told] == ["StepFinished was not answered: the driver was closed meanwhile"]


def test_a_second_thread_is_refused_and_the_first_gets_its_answer() -> None:
    """Both would wait for ever: each takes the other's answer for its own, or loses it."""
    with swarm(2, topology="ring", settings=Settings(wait_ceiling=60.0, wait_floor=60.0)) as engines:
        driver = engines[0].driver
        trainer = threading.Thread(target=driver.step, args=(PATIENCE,))
        trainer.start()
        deadline = time.monotonic() + PATIENCE
        while driver.status().step < 1:
            assert time.monotonic() < deadline, "the step is never handled"
            time.sleep(0.001)
        with pytest.raises(DriverError, match=r"Merge comes from a second thread.*let one thread train"):
            driver.merge(PATIENCE)
        engines[1].driver.step(PATIENCE)
        trainer.join(PATIENCE)
        assert not trainer.is_alive()
        driver.merge(PATIENCE)


@pytest.mark.parametrize("call", ["step", "merge", "rest", "resume"])
def test_after_it_has_left_a_peer_says_so_and_does_not_wait(call: str) -> None:
    with swarm(2) as engines:
        driver = engines[0].driver
        assert driver.leave(PATIENCE)
        with pytest.raises(DriverError, match="this peer has left"):
            getattr(driver, call)(1.0)
        assert driver.leave(PATIENCE), "once more does no harm"


class Broken(MemoryTransport):
    """Fails when it is told to, and then cannot even be closed."""

    broken = False

    def receive(self) -> Sequence[Buffer] | None:
        if self.broken:
            raise OSError("broken on purpose")
        return super().receive()

    def close(self) -> None:
        super().close()
        if self.broken:
            raise RuntimeError("cannot be closed")


def test_a_transport_that_fails_and_cannot_be_closed_lets_nobody_wait() -> None:
    layout = Layout.uniform(4, 1, np.dtype(np.float64))
    roster = Roster({0: 0}, lambda n: topologies.parse("ring", n))
    core = Core(Address(0, 0), Mass(layout, np.zeros(4)), roster, parse("sgp"), Settings())
    transport = Broken(Hub())
    with Driver(core, transport) as driver:
        driver.step(PATIENCE)
        transport.broken = True
        with pytest.raises(DriverError, match=r"OSError.*broken on purpose"):
            driver.step(PATIENCE)
        with pytest.raises(DriverError, match=r"OSError.*broken on purpose"):
            driver.check()


def test_an_address_that_could_not_be_connected_to_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TransportError("there are too few file descriptors")

    settings = Settings(wait_floor=0.01, wait_ceiling=0.01, resend_first=0.01, resend_ceiling=0.1)
    with swarm(2, topology="ring", algorithm="osgp", settings=settings) as engines:
        driver = engines[0].driver
        engines[0].transport.disconnect(1)
        driver.introduce(1, engines[1].transport.endpoint)
        with monkeypatch.context() as patch:
            patch.setattr(engines[0].transport, "connect", refuse)
            driver.step(PATIENCE)
            assert driver.dropped, "nothing can be sent"
        assert driver.flush(PATIENCE), "the parcel arrives, since it is connected to by now"


def test_garbage_from_the_network_is_rejected_and_told() -> None:
    vandal = ZmqTransport(LOOPBACK)
    with swarm(2, algorithm="adpsgd") as engines:
        receiver = engines[1]
        vandal.connect(1, receiver.transport.endpoint)
        deadline = time.monotonic() + PATIENCE
        while not any(isinstance(effect, events.RejectedFrame) for effect in receiver.effects):
            assert time.monotonic() < deadline
            vandal.send(1, [b"garbage"])
            vandal.wait(0.01)
    vandal.close()
    assert receiver.core.rejections.total >= 1
    assert receiver.core.mass.values.tolist() == [1.0] * 64


def test_the_status_is_as_of_the_last_call_when_that_returns() -> None:
    with swarm(2, topology="ring", settings=Settings(wait_floor=60.0, wait_ceiling=60.0)) as engines:
        for step in range(1, 6):
            together(engines, steps(1))
            for rank, engine in enumerate(engines):
                status = engine.driver.status()
                assert (status.me, status.step) == (Address(rank, 0), step)
                assert status.turns == (step,) * len(status.turns)
    for engine in engines:
        status = engine.driver.status()
        assert status.weights == tuple(engine.core.mass.weights), "after the end it is how the core was left"
        assert dict(status.members) == {0: 0, 1: 0}


def test_steps_that_only_measure_do_not_count_and_tell_how_far_others_are() -> None:
    with swarm(2, topology="ring", settings=Settings(wait_floor=60.0, wait_ceiling=60.0)) as engines:
        together(engines, steps(3))
        assert [engine.driver.status().gaps for engine in engines] == [{}, {}]
        for engine in engines:
            engine.core.mass.values[:] = float(engine.core.me.rank)  # the values are the trainer's between two steps
            engine.driver.measure(on=True)
        mixed, gaps = 0, {}
        while not gaps:  # a turn passes without mass where the parcel before it is not acknowledged yet
            together(engines, steps(1))
            mixed, gaps = mixed + 1, engines[0].driver.status().gaps
        assert max(gaps.values()) > 0
        together(engines, steps(8))
        assert engines[0].driver.status().step == 3 + mixed + 8
        for engine in engines:
            engine.driver.measure(on=False)
        together(engines, steps(1))
        assert [engine.driver.status().step for engine in engines] == [4, 4]
        assert engines[0].driver.status().gaps == {}


def test_a_step_that_was_adopted_is_where_the_core_goes_on() -> None:
    with swarm(2, algorithm="osgp") as engines:
        engines[0].driver.advance(41)
        together(engines[:1], steps(1))
        assert engines[0].driver.status().step == 42


def test_the_records_of_members_are_for_the_drivers_thread_alone() -> None:
    with swarm(2) as engines, pytest.raises(AssertionError, match="only the driver's thread"):
        engines[0].driver.records()
