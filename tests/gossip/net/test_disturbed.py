"""Bad weather over any transport: first each thing that it does, by a clock in the hand, then swarms out in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest
from engines import PATIENCE, Engine, steps, together, weight
from transports import KINDS, Site, content, disturbed, receive, send, swarm_on, until

from gossip.endpoint import Endpoint
from gossip.errors import Reason, SettingsError
from gossip.faults import parse_cut
from gossip.faults.weather import Network, Weather
from gossip.net.disturbed_transport import DisturbedTransport
from gossip.settings import Settings
from gossip.simulation import Scenario
from gossip.values.buffers import Buffer

HERE = Endpoint("memory", 1)
SLOW = Weather(delay=(1.0, 1.0))


class Recorder:
    """A transport that keeps what it is told to send; the clock moves only in `wait`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes = True
        self.sent: list[tuple[float, int, Sequence[Buffer]]] = []
        self.calls: list[object] = []
        self.endpoint = HERE

    def clock(self) -> float:
        return self.now

    def reconnect(self, rank: int) -> None:
        self.calls.append(("reconnect", rank))

    def connect(self, rank: int, endpoint: Endpoint, key: bytes | None = None) -> None:
        self.calls.append(("connect", rank, endpoint, key))

    def disconnect(self, rank: int) -> None:
        self.calls.append(("disconnect", rank))

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:  # noqa: ARG002
        self.sent.append((self.now, rank, frames))
        return self.takes

    def receive(self) -> Sequence[Buffer] | None:
        return None

    def wait(self, timeout: float | None) -> None:
        self.calls.append(timeout)
        self.now += timeout or 0.0

    def wake(self) -> None:
        self.calls.append("wake")

    def close(self) -> None:
        self.calls.append("close")


def under(weather: Weather, rank: int = 0, ranks: int = 4) -> tuple[DisturbedTransport, Recorder]:
    inner = Recorder()
    transport = DisturbedTransport(inner, rank, Network(weather), inner.clock)
    for other in range(ranks):
        if other != rank:
            transport.connect(other, HERE)
    inner.calls.clear()
    return transport, inner


def numbers(sent: Sequence[tuple[float, int, Sequence[Buffer]]]) -> list[int]:
    return [int(bytes(frames[0])) for _, _, frames in sent]


# One message


def test_clear_weather_passes_the_very_same_frames_on_at_once() -> None:
    transport, inner = under(Weather())
    frames = [b"header", memoryview(bytearray(b"values"))]
    assert transport.send(1, frames)
    assert inner.sent == [(100.0, 1, frames)]
    assert inner.sent[0][2] is frames
    inner.takes = False
    assert transport.send(1, frames) is False, "what the inner one says is passed on"
    assert transport.dropped == 1


def test_everything_else_is_the_inner_transports() -> None:
    transport, inner = under(Weather())
    transport.connect(7, HERE, b"key")
    transport.disconnect(7)
    transport.wake()
    transport.wait(3.0)
    transport.wait(None)
    transport.close()
    assert inner.calls == [("connect", 7, HERE, b"key"), ("disconnect", 7), "wake", 3.0, None, "close"]
    assert transport.endpoint == HERE


def test_the_lost_are_lost_silently_and_an_unknown_rank_is_not_weather() -> None:
    transport, inner = under(Weather(seed=3, loss=0.3))
    assert all(transport.send(1, [b"%d" % number]) for number in range(1000))
    assert transport.counts.lost + len(inner.sent) == 1000
    assert 250 < transport.counts.lost < 350
    messages = transport.counts.messages
    assert transport.send(9, [b"x"]) is False
    assert transport.counts.messages == messages


def test_the_doubled_come_twice_the_second_in_memory_of_its_own() -> None:
    transport, inner = under(Weather(seed=3, duplicate=0.3))
    values = bytearray(b"values")
    for number in range(1000):
        transport.send(1, [b"%d" % number, values])
    assert len(inner.sent) == 1000 + transport.counts.doubled
    assert 250 < transport.counts.doubled < 350
    firsts = [frames[1] for _, _, frames in inner.sent if frames[1] is values]
    seconds = [frames[1] for _, _, frames in inner.sent if frames[1] is not values]
    assert (len(firsts), len(seconds)) == (1000, transport.counts.doubled)
    assert set(map(bytes, seconds)) == {b"values"}


def test_the_damaged_are_copies_with_one_bit_flipped() -> None:
    transport, inner = under(Weather(seed=3, corrupt=0.3))
    original = [bytearray(b"header"), bytearray(b"values")]
    for _ in range(1000):
        transport.send(1, original)
    assert original == [b"header", b"values"], "the sender's own memory is as it was"
    flips = []
    for _, _, frames in inner.sent:
        bits = np.unpackbits(np.frombuffer(b"".join(frames), np.uint8) ^ np.frombuffer(b"headervalues", np.uint8))
        flips.append(int(bits.sum()))
    assert set(flips) == {0, 1}
    assert sum(flips) == transport.counts.damaged
    assert 250 < transport.counts.damaged < 350
    assert all(transport.send(1, [b"", b""]) for _ in range(100)), "where there is nothing, nothing is damaged"


def test_the_delayed_are_held_until_due_and_waiting_ends_for_them() -> None:
    transport, inner = under(SLOW)
    frames = [b"header", bytearray(b"values")]
    assert transport.send(1, frames)
    assert inner.sent == []
    inner.now += 0.25
    transport.wait(0.5)
    assert inner.calls == [0.5], "nothing is due before that"
    assert inner.sent == []
    transport.wait(None)
    assert inner.calls == [0.5, 0.25]
    assert [(when, rank) for when, rank, _ in inner.sent] == [(101.0, 1)]
    assert inner.sent[0][2] is frames, "held back, not copied"
    transport.wait(None)
    assert inner.calls[-1] is None
    assert transport.counts.delayed == 1


@pytest.mark.parametrize("call", [lambda t: t.receive(), lambda t: t.send(2, [b"other"]), lambda t: t.wait(0.0)])
def test_who_never_waits_sends_what_is_due_all_the_same(call: Callable[[DisturbedTransport], object]) -> None:
    transport, inner = under(SLOW)
    transport.send(1, [b"x"])
    call(transport)
    assert inner.sent == []
    inner.now += 1.0
    call(transport)
    assert inner.sent[0] == (101.0, 1, [b"x"])


def test_delays_that_differ_change_the_order_and_keep_within_their_bounds() -> None:
    transport, inner = under(Weather(seed=1, delay=(0.1, 0.5)))
    for number in range(50):
        transport.send(1, [b"%d" % number])
    while len(inner.sent) < 50:
        transport.wait(None)
    assert numbers(inner.sent) != sorted(numbers(inner.sent))
    assert sorted(numbers(inner.sent)) == list(range(50))
    times = [when for when, _, _ in inner.sent]
    assert times == sorted(times)
    assert 100.1 <= times[0] < times[-1] <= 100.5


def test_a_narrow_link_sends_one_after_the_other_and_is_full_at_some_point() -> None:
    transport, inner = under(Weather(bandwidth=1000.0))
    taken = [transport.send(1, [b"%04d" % number + bytes(947)]) for number in range(1500)]
    assert taken == [True] * 1024 + [False] * 476
    assert transport.send(2, [b"x"]), "every link is its own"
    while transport.send(1, [b"9999"]) is False:
        transport.wait(None)
    transport.wait(None)
    times = [when - 100.0 for when, rank, _ in inner.sent if rank == 1]
    assert times == pytest.approx([1.0, 2.0])


def test_disconnecting_moving_and_closing_drop_what_is_held_back() -> None:
    transport, inner = under(SLOW)
    for rank in (1, 2, 3):
        transport.send(rank, [b"x"])
    transport.disconnect(1)
    transport.connect(2, Endpoint("memory", 2))
    assert transport.send(1, [b"x"]) is False
    inner.now += 5.0
    transport.receive()
    assert [rank for _, rank, _ in inner.sent] == [3]
    transport.send(3, [b"x"])
    transport.close()
    inner.now += 5.0
    assert transport.send(3, [b"x"]) is False
    transport.receive()
    assert [rank for _, rank, _ in inner.sent] == [3]


def test_a_held_message_that_is_not_taken_when_due_is_counted() -> None:
    transport, inner = under(SLOW)
    transport.send(1, [b"x"])
    inner.takes = False
    transport.wait(None)
    assert transport.dropped == 1


def test_a_cut_lets_nothing_pass_until_it_heals() -> None:
    cut = parse_cut("0-1|2-3@0+1s")
    transport, inner = under(Weather())
    transport.network.cut(cut.separates)
    for rank in (1, 2, 3):
        assert transport.send(rank, [b"x"]), "who is cut off does not hear of it"
    assert [rank for _, rank, _ in inner.sent] == [1]
    transport.network.heal(cut.separates)
    transport.send(2, [b"x"])
    assert [rank for _, rank, _ in inner.sent] == [1, 2]
    assert (transport.counts.cut, transport.counts.lost) == (2, 0)


def test_cuts_overlap_and_each_heals_by_itself() -> None:
    network = Network(Weather())
    one, two = parse_cut("0|1@0+1s"), parse_cut("0|1,2@0+1s")
    network.cut(one.separates)
    network.cut(two.separates)
    network.heal(one.separates)
    assert [network.reachable(0, rank) for rank in (1, 2, 3)] == [False, False, True]
    network.heal(two.separates)
    assert network.reachable(1, 0)
    with pytest.raises(ValueError, match="not in tuple"):
        network.heal(two.separates)


def test_cuts_come_and_go_in_other_threads_while_messages_are_carried() -> None:
    transport, inner = under(Weather())

    class Around:
        """Separates one rank from all; to compare it lets other threads have a go, just where it would hurt."""

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def __call__(self, a: int, b: int) -> bool:
            return self.rank in (a, b)

        def __eq__(self, other: object) -> bool:
            time.sleep(1e-5)
            return self is other

        __hash__ = None

    def toggle(rank: int) -> None:
        separates = Around(rank)
        for _ in range(20):
            transport.network.cut(separates)
            transport.network.heal(separates)

    transport.network.cut(Around(99))  # stands in front of all others, so every heal compares with it
    threads = [threading.Thread(target=toggle, args=(rank,)) for rank in (1, 1, 2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        transport.send(1, [b"x"])
    assert transport.counts.cut + len(inner.sent) == transport.counts.messages
    assert all(transport.network.reachable(0, rank) for rank in (1, 2, 3)), "no cut got lost, nor a heal"


STORM = Weather(seed=11, loss=0.1, duplicate=0.1, corrupt=0.05, delay=(0.001, 0.02))


def fates(weather: Weather) -> tuple[list[tuple[float, int, list[bytes]]], dict[str, int]]:
    transport, inner = under(weather)
    for number in range(500):
        transport.send(1 + number % 3, [b"%d" % number, bytes(number % 7)])
        transport.wait(0.0005)
    while transport._held:
        transport.wait(None)
    return [(when, rank, [bytes(frame) for frame in frames]) for when, rank, frames in inner.sent], asdict(
        transport.counts
    )


def test_the_same_seed_gives_the_same_fates_to_the_same_messages() -> None:
    assert fates(STORM) == fates(STORM)
    assert all(fates(STORM)[1][what] > 0 for what in ("messages", "bytes", "lost", "doubled", "damaged", "delayed"))


@pytest.mark.parametrize("fault", [{"loss": 0.1}, {"duplicate": 0.1}, {"corrupt": 0.1}, {"delay": (0.1, 0.2)}])
def test_another_seed_and_another_sender_have_weather_of_their_own(fault: dict[str, object]) -> None:
    weather = Weather(seed=1, **fault)
    seeds = [weather, replace(weather, seed=2), weather.seen_by(0), weather.seen_by(1)]
    seen = [fates(one)[0] for one in seeds]
    assert all(seen[a] != seen[b] for a in range(4) for b in range(a))
    assert seen == [fates(one)[0] for one in seeds]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss": 1.0}, "loss must be a share from 0% to less than 100%, not 100%"),
        ({"duplicate": -0.1}, "duplicate must be a share"),
        ({"corrupt": float("nan")}, "corrupt must be a share"),
        ({"bandwidth": 0.0}, "bandwidth must be above 0 bytes per second, not 0.0"),
        ({"delay": (0.2, 0.1)}, "delay must be 0 or more seconds, the least first"),
        ({"delay": (-0.2, 0.1)}, "delay must be 0 or more seconds, the least first, not -0.2 to 0.1"),
        ({"delay": (0.0, float("inf"))}, "delay must be 0 or more seconds"),
    ],
)
def test_weather_that_cannot_be_is_refused_by_itself_and_in_a_scenario(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Weather(**wrong)
    with pytest.raises(SettingsError, match=message):
        Scenario(peers=2, steps=1, **wrong)


def test_a_scenario_makes_its_weather() -> None:
    scenario = Scenario(
        peers=2, steps=1, seed=5, loss=0.1, duplicate=0.2, corrupt=0.3, delay=(1, 2), bandwidth=7.0, algorithm="sgp"
    )
    assert scenario.weather == Weather(5, 0.1, 0.2, 0.3, (1, 2), 7.0)


# Real transports


@pytest.mark.parametrize("kind", ["memory", "zmq", "curve"])
def test_who_waits_for_ever_still_sends_what_comes_due(kind: str) -> None:
    site = Site(disturbed(KINDS[kind], Weather(delay=(0.05, 0.05))))
    sender, receiver = site.pair()
    stop = False

    def run() -> None:
        while not stop:
            sender.wait(None)

    try:
        # Held back or not, over a connection that may not stand yet, until one comes through.
        until(lambda: (sender.send(0, [b"x"]), receiver.receive())[1], sender, receiver, why="never connected")
        sender.send(0, [b"last"])
        waiter = threading.Thread(target=run, daemon=True)
        waiter.start()
        while bytes(receive(receiver)[0]) != b"last":
            pass
        stop = True
        sender.wake()
        waiter.join(PATIENCE)
        assert not waiter.is_alive()
    finally:
        site.close()


def test_doubles_reach_the_other_side_over_zeromq_although_it_queues_a_payload_once() -> None:
    site = Site(disturbed(KINDS["zmq"], Weather(seed=3, duplicate=0.5)))
    sender, receiver = site.pair()
    try:
        first = [b"first", bytes(1 << 20)]
        send(sender._inner, 0, receiver, first)  # past the weather, until the connection stands
        assert content(receive(receiver, sender)) == first
        while sender.counts.doubled < 5:
            doubled = sender.counts.doubled
            assert sender.send(0, [b"%d" % sender.counts.messages, np.zeros(1 << 20, np.uint8).data])
            for _ in range(1 + sender.counts.doubled - doubled):
                assert int(bytes(receive(receiver, sender)[0])) == sender.counts.messages - 1
        assert sender.dropped == 0
    finally:
        site.close()


QUICK = Settings(wait_floor=0.02, wait_ceiling=0.1, resend_first=0.03, resend_ceiling=0.1)
N, SIZE, NEAR = 4, 256, 1e-4


def mass(engines: Sequence[Engine]) -> np.ndarray:
    """Return the sum of x over closed engines: what they hold and what waits for them."""
    total = np.zeros(SIZE)
    for engine in engines:
        own = engine.core.mass
        for shard, (start, stop) in enumerate(own.layout.bounds):
            total[start:stop] += own.weights[shard] * own.values[start:stop]
        for pile in engine.core.inbox:
            start, stop = own.layout.bounds[pile.shard]
            total[start:stop] += pile.weight * pile.values
    return total


def check(engines: Sequence[Engine]) -> None:
    """Nothing is lost, nothing is made, nothing damaged got in, and all agree on the average."""
    assert weight(engines) == pytest.approx(N, rel=1e-12)
    np.testing.assert_allclose(mass(engines), N * (N - 1) / 2, rtol=1e-12)
    for engine in engines:
        engine.core.validate_state()
        np.testing.assert_allclose(engine.core.mass.values, (N - 1) / 2, atol=2 * NEAR)


def train(engines: Sequence[Engine], enough: Callable[[], bool]) -> None:
    """Train until it is enough: steps that take no time run ahead of the network, so their number says little."""
    deadline = time.monotonic() + PATIENCE
    while not enough():
        assert time.monotonic() < deadline, [engine.core.mass.values[0] for engine in engines]
        together(engines, steps(5))


def agree(engines: Sequence[Engine]) -> bool:
    return all(np.abs(engine.core.mass.values - (N - 1) / 2).max() < NEAR for engine in engines)


def total(engines: Sequence[Engine], what: str) -> int:
    return sum(getattr(engine.transport.counts, what) for engine in engines)


@pytest.mark.parametrize("algorithm", ["sgp", "adpsgd"])
@pytest.mark.parametrize("kind", ["memory", "zmq", "curve"])
def test_a_swarm_in_a_storm_with_a_cut_keeps_its_mass_and_agrees(kind: str, algorithm: str) -> None:
    cut = parse_cut("0-1|2-3@0+1s")
    with swarm_on(
        Site(disturbed(KINDS[kind], STORM)),
        N,
        size=SIZE,
        shard_bytes=SIZE * 4,
        topology="one-peer-exponential",
        algorithm=algorithm,
        settings=QUICK,
    ) as engines:
        for engine in engines:
            engine.transport.network.cut(cut.separates)
        train(engines, lambda: total(engines, "cut") > 10)
        assert not agree(engines), "something got through"
        for engine in engines:
            engine.transport.network.heal(cut.separates)
        faults = ("lost", "doubled", "damaged", "delayed")
        train(engines, lambda: agree(engines) and all(total(engines, what) for what in faults))
        assert all(engine.driver.flush(PATIENCE) for engine in engines)
    check(engines)


@pytest.mark.parametrize("kind", ["memory", "zmq"])
def test_every_damaged_message_is_rejected_and_none_reaches_the_parameters(kind: str) -> None:
    """Without loss or doubles every damaged message arrives, once, or was not taken: they can be counted."""

    def dropped() -> int:
        return sum(engine.transport.dropped for engine in engines)

    def missing() -> int:
        return total(engines, "damaged") - dropped() - sum(engine.core.rejections.total for engine in engines)

    with swarm_on(
        Site(disturbed(KINDS[kind], Weather(seed=2, corrupt=0.1))),
        N,
        size=SIZE,
        shard_bytes=SIZE * 4,
        topology="one-peer-exponential",
        settings=QUICK,
    ) as engines:
        train(engines, lambda: agree(engines) and total(engines, "damaged") > 20)
        assert all(engine.driver.flush(PATIENCE) for engine in engines)
        # Nobody sends any more, save answers to what is still on its way.
        until(lambda: missing() <= 0, why="a damaged message was not rejected")
    assert -dropped() <= missing() <= 0
    reasons = {reason for engine in engines for reason in engine.core.rejections.by_reason}
    assert Reason.CHECKSUM in reasons
    assert reasons <= {Reason.CHECKSUM, Reason.MALFORMED, Reason.VERSION, Reason.TRUNCATED}
    check(engines)
