"""The contract of a transport, sentence by sentence, for every kind there is."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from engines import HANGS, PATIENCE, steps, together, weight
from transports import KINDS, LARGE, Site, content, receive, send, swarm_on, until
from zmq.utils.garbage import GarbageCollectorThread

from gossip.endpoint import Endpoint
from gossip.errors import GossipError, SettingsError
from gossip.net.memory_transport import Hub, MemoryTransport
from gossip.net.transport import Transport, TransportError
from gossip.settings import Settings


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(KINDS[request.param])
    yield made
    made.close()


class Payloads:
    """Hands out buffers, and knows which of them anybody still holds."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[np.ndarray]] = []

    def new(self, size: int = LARGE) -> memoryview:
        values = np.zeros(size, dtype=np.uint8)
        self._made.append(weakref.ref(values))
        return values.data

    def held(self) -> int:
        return sum(one() is not None for one in self._made)


def fill(sender: Transport, payloads: Payloads) -> int:
    """Send until nothing more is taken; return how much was."""
    taken = 0
    while sender.send(0, [b"%d" % taken, payloads.new()]):
        taken += 1
        assert taken < 10_000, "a queue without an end"
    return taken


# What arrives


@pytest.mark.parametrize(
    "message",
    [
        [b"alone"],
        [b"header", b"values"],
        [b"no values", b""],
        [b"", b"no header"],
        [b"4 MiB", bytes(range(256)) * 16384],
    ],
    ids=["one", "two", "empty values", "empty header", "4 MiB"],
)
def test_frames_arrive_as_they_were_sent(site: Site, message: list[bytes]) -> None:
    sender, receiver = site.pair()
    send(sender, 0, receiver, message)
    assert content(receive(receiver, sender)) == message
    assert receiver.receive() is None, "and only once"


def test_every_kind_of_buffer_is_a_frame(site: Site) -> None:
    sender, receiver = site.pair()
    for values in (b"values", bytearray(b"values"), memoryview(b"values"), np.arange(6, dtype=np.uint8).data):
        send(sender, 0, receiver, [b"header", values])
        assert content(receive(receiver, sender)) == [b"header", bytes(values)]


def test_all_that_was_taken_arrives_whole_on_a_clear_network(site: Site) -> None:
    """While one side reads and the other writes; in whatever order."""
    sender, receiver = site.joined()
    sent = {}
    for number in range(200):
        name = b"%d" % number
        sent[name] = [name] if number % 3 == 0 else [name, bytes([number]) * (number * 997 % LARGE)]
    got: dict[bytes, list[bytes]] = {}

    def read() -> None:
        while len(got) < len(sent):
            frames = content(receive(receiver))
            assert frames[0] not in got, "nothing comes twice"
            got[frames[0]] = frames

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for message in sent.values():
        until(lambda message=message: sender.send(0, message), sender, why="never taken")
    reader.join(PATIENCE)
    assert not reader.is_alive(), f"missing: {sent.keys() - got.keys()}"
    assert got == sent


def test_what_is_broken_off_never_arrives_in_part(site: Site) -> None:
    sender, receiver = site.pair()
    size = 8 << 20
    send(sender, 0, receiver, [b"first", bytes(size)])
    for number in range(4):
        sender.send(0, [b"%d" % number, bytes([number]) * size])
    site.connect(sender, 0, receiver)
    send(sender, 0, receiver, [b"last", b"l" * size])
    while (message := content(receive(receiver, sender)))[0] != b"last":
        assert len(message) == 2
        assert len(message[1]) == size
        assert message[1] == message[1][:1] * size
    assert message == [b"last", b"l" * size]


def test_what_is_ordered_does_not_overtake(site: Site) -> None:
    sender, receiver = site.joined()
    for _ in range(5):
        messages = [[b"large", bytes(8 << 20)], [b"small"], [b"some", b"values"], [b"also large", bytes(LARGE)]]
        for message in messages:
            until(lambda message=message: sender.send(0, message, ordered=True), sender, why="never taken")
        assert [bytes(receive(receiver, sender)[0]) for _ in messages] == [message[0] for message in messages]


def test_two_peers_send_to_one_and_one_to_two(site: Site) -> None:
    hub, left, right = site.make(), site.make(), site.make()
    for rank, other in ((1, left), (2, right)):
        site.connect(other, 0, hub)
        site.connect(hub, rank, other)
    for _ in range(20):
        send(left, 0, hub, [b"left"])
        send(right, 0, hub, [b"right", bytes(bytearray(9))])  # each a payload of its own
    got = sorted(content(receive(hub, left, right)) for _ in range(40))
    assert got == [[b"left"]] * 20 + [[b"right", bytes(9)]] * 20
    send(hub, 1, left, [b"to the left"])
    send(hub, 2, right, [b"to the right"])
    assert content(receive(left, hub)) == [b"to the left"]
    assert content(receive(right, hub)) == [b"to the right"]


def test_what_was_received_stays_whatever_becomes_of_its_sender_and_the_transport(site: Site) -> None:
    """The sender has its answer, so it uses the memory again; then both close."""
    sender, receiver = site.pair()
    values = np.arange(LARGE, dtype=np.uint8)
    expected = values.tobytes()
    send(sender, 0, receiver, [b"header", values.data])
    frames = receive(receiver, sender)
    values[:] = 0
    assert content(frames) == [b"header", expected]
    sender.close()
    receiver.close()
    gc.collect()
    assert content(frames) == [b"header", expected]


def test_nothing_there_is_none(site: Site) -> None:
    assert site.make().receive() is None


# What does not


def test_an_unknown_rank_is_said_to_be_dropped(site: Site) -> None:
    sender, _ = site.joined()
    assert sender.send(3, [b"x"]) is False
    assert sender.send(3, [b"x", b"values"]) is False


def test_nothing_piles_up_for_a_peer_that_closed(site: Site) -> None:
    sender, receiver = site.joined()
    payloads = Payloads()
    for number in range(20):
        sender.send(0, [b"%d" % number, payloads.new()])
    receiver.close()
    until(lambda: not sender.send(0, [b"h", payloads.new()]), sender, why="still taken")
    until(lambda: not sender.send(0, [b"h"]), sender, why="still taken")
    assert [sender.send(0, [b"h", payloads.new()]) for _ in range(100)] == [False] * 100

    def forgotten() -> bool:
        sender.send(0, [b"h", payloads.new()])  # what is on its way may be looked through only when more is sent
        return not payloads.held()

    until(forgotten, sender, why="somebody keeps messages for the dead")


def test_a_full_queue_drops_and_recovers(site: Site) -> None:
    sender, receiver = site.joined()
    payloads = Payloads()
    taken = fill(sender, payloads)
    assert taken >= 8, "a queue that is no use"
    got: list[bytes] = []

    def again() -> bool:
        while (frames := receiver.receive()) is not None:
            got.append(bytes(frames[0]))
        return sender.send(0, [b"last", payloads.new()])

    until(again, sender, receiver, why="it stays full")
    while len(got) < taken + 1:
        got.append(content(receive(receiver, sender))[0])
    assert sorted(got) == sorted([b"last", *(b"%d" % number for number in range(taken))])


def test_disconnect_forgets_the_rank_and_what_was_queued(site: Site) -> None:
    sender, receiver = site.joined()
    payloads = Payloads()
    fill(sender, payloads)
    sender.disconnect(0)
    until(lambda: not payloads.held(), sender, why="what was queued is kept")
    assert sender.send(0, [b"x"]) is False
    assert sender.send(0, [b"x", b"values"]) is False
    sender.disconnect(0)
    sender.disconnect(7)
    site.connect(sender, 0, receiver)
    send(sender, 0, receiver, [b"again"])
    while content(receive(receiver, sender)) != [b"again"]:
        pass


def test_a_rank_can_move(site: Site) -> None:
    sender, first = site.pair()
    send(sender, 0, first, [b"before"])
    assert content(receive(first, sender)) == [b"before"]
    second = site.make()
    site.connect(sender, 0, second)
    for message in ([b"moved"], [b"moved", b"values"]):
        send(sender, 0, second, message)
        assert content(receive(second, sender)) == message
    assert first.receive() is None


def test_endpoints_differ_and_can_be_written_down(site: Site) -> None:
    one, two = site.make(), site.make()
    assert one.endpoint != two.endpoint
    assert Endpoint.parse(str(one.endpoint)) == one.endpoint


# Waiting


@pytest.mark.parametrize("early", [True, False])
def test_wake_ends_a_wait_from_another_thread(site: Site, early: bool) -> None:
    """Also one that has not begun yet."""
    transport = site.make()
    waiter = threading.Thread(target=transport.wait, args=(None,), daemon=True)
    (transport.wake if early else waiter.start)()
    (waiter.start if early else transport.wake)()
    waiter.join(PATIENCE)
    assert not waiter.is_alive()


@pytest.mark.parametrize("message", [[b"alone"], [b"header", b"values"]])
def test_a_message_ends_a_wait(site: Site, message: list[bytes]) -> None:
    sender, receiver = site.pair()
    send(sender, 0, receiver, message)
    assert content(receive(receiver, sender)) == message
    got: list[list[bytes]] = []

    def listen() -> None:
        while not got:
            receiver.wait(None)
            if (frames := receiver.receive()) is not None:
                got.append(content(frames))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    send(sender, 0, sender, message)
    listener.join(PATIENCE)
    assert got == [message]


def test_a_message_that_is_there_already_ends_a_wait_at_once(site: Site) -> None:
    sender, receiver = site.pair()
    send(sender, 0, receiver, [b"x"])
    receiver.wait(PATIENCE)
    began = time.monotonic()
    while receiver.receive() is None:
        receiver.wait(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2


@pytest.mark.parametrize("timeout", [0.05, 0.0, -1.0])
def test_a_wait_times_out(site: Site, timeout: float) -> None:
    transport = site.make()
    began = time.monotonic()
    transport.wait(timeout)
    assert timeout <= time.monotonic() - began < PATIENCE


def test_many_threads_may_wake(site: Site) -> None:
    """No wake is an error, none is missed, and they do not add up: afterwards a wait lasts as long as it should."""
    transport = site.make()
    threads = [threading.Thread(target=lambda: [transport.wake() for _ in range(2000)], daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        transport.wait(0.01)
    transport.wake()
    transport.wait(PATIENCE)

    def lasts() -> bool:
        began = time.monotonic()
        transport.wait(0.05)
        return time.monotonic() - began >= 0.05

    assert any(lasts() for _ in range(20))


# Closing

States = Callable[[Site], list[Transport]]
#: The kernel's mark of a thread that ends, PF_EXITING. It is there before anybody's join of the thread returns.
EXITING = 0x4


def idle(site: Site) -> list[Transport]:
    return [site.make()]


def alone(site: Site) -> list[Transport]:
    sender, receiver = site.pair()
    receiver.close()
    return [sender]


def unread(site: Site) -> list[Transport]:
    sender, receiver = site.pair()
    for message in ([b"x"], [b"header", bytes(LARGE)]):
        send(sender, 0, receiver, message)
    return [receiver, sender]


def full(site: Site) -> list[Transport]:
    sender, receiver = site.joined()
    fill(sender, Payloads())
    return [sender, receiver]


def left(site: Site) -> list[Transport]:
    (receiver, sender) = full(site)[::-1]
    receiver.close()
    return [sender]


def disconnected(site: Site) -> list[Transport]:
    sender, receiver = full(site)
    sender.disconnect(0)
    return [sender, receiver]


def lives(task: Path) -> bool:
    """Whether a thread of the system is not about to end: its entry in /proc outlives the join for a moment."""
    try:
        flags = int((task / "stat").read_text().rpartition(")")[2].split()[6])
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not flags & EXITING


def footprint() -> tuple[int, int, int]:
    """Return how many descriptors, threads of the system and threads of Python there are."""
    gc.collect()
    tasks = sum(map(lives, Path("/proc/self/task").iterdir()))
    return len(os.listdir("/proc/self/fd")), tasks, threading.active_count()  # noqa: PTH208


@pytest.mark.parametrize("state", [idle, alone, unread, full, left, disconnected])
@pytest.mark.parametrize("name", KINDS)
def test_closing_does_not_hang_and_leaves_nothing_behind(
    name: str, state: States, request: pytest.FixtureRequest
) -> None:
    """The first time around does not count: it may start the one thread that pyzmq keeps for all zero-copy messages."""
    before = set(threading.enumerate())
    footprints = []
    gc.collect()
    gc.freeze()  # what was there before is not looked through again and again
    request.addfinalizer(gc.unfreeze)
    for _ in range(3):
        site = Site(KINDS[name])
        transports = state(site)
        for transport in transports:
            began = time.monotonic()
            transport.close()
            transport.close()
            assert time.monotonic() - began < HANGS
        site.close()
        del site, transports, transport
        footprints.append(footprint())
    left_over = [one for one in threading.enumerate() if one not in before]
    assert not [one for one in left_over if not isinstance(one, GarbageCollectorThread)]
    assert len(left_over) <= 1
    assert footprints[2] == footprints[1] == footprints[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda transport: transport.send(0, [b"x"]),
        lambda transport: transport.send(0, [b"x", b"values"]),
        lambda transport: transport.receive(),
        lambda transport: transport.wait(PATIENCE),
        lambda transport: transport.wait(None),
        lambda transport: transport.connect(1, Endpoint("127.0.0.1", 1), None),
        lambda transport: transport.disconnect(0),
        lambda transport: transport.wake(),
        lambda transport: transport.endpoint and None,
    ],
    ids=["send", "send values", "receive", "wait", "wait for ever", "connect", "disconnect", "wake", "endpoint"],
)
def test_after_close_there_is_a_clear_error_or_nothing(site: Site, use: Callable[[Transport], object]) -> None:
    sender, _ = site.joined()
    sender.close()
    began = time.monotonic()
    with contextlib.suppress(GossipError):
        assert not use(sender)
    assert time.monotonic() - began < HANGS


@pytest.mark.parametrize("timeout", [0.0, PATIENCE, None])
def test_waiting_after_close_is_an_error(site: Site, timeout: float | None) -> None:
    """A loop that waits for ever and gets nothing would turn at full speed."""
    sender, _ = site.joined()
    sender.close()
    with pytest.raises(TransportError, match="closed"):
        sender.wait(timeout)


# The core on it


def test_a_swarm_reaches_the_exact_average(site: Site) -> None:
    # Followed to the letter: without the floor, and without the limits that a parcel which comes early can run into.
    settings = Settings(
        wait_floor=60.0, wait_ceiling=60.0, weight_floor=0.0, weight_cap=1e5, inbox_bytes=1 << 20, resend_first=0.05
    )
    with swarm_on(site, 4, size=96, shard_bytes=256, topology="one-peer-exponential", settings=settings) as engines:
        together(engines, steps(6))
        assert all(engine.driver.flush(PATIENCE) for engine in engines)
    for engine in engines:
        np.testing.assert_allclose(engine.core.mass.values, 1.5, atol=1e-12)
        engine.core.validate_state()
        assert engine.core.rejections.total == 0
    assert weight(engines) == pytest.approx(4)


# What memory promises beyond it


@pytest.fixture
def two() -> tuple[MemoryTransport, MemoryTransport]:
    hub = Hub()
    sender, receiver = MemoryTransport(hub, queue=4), MemoryTransport(hub, queue=4)
    sender.connect(0, receiver.endpoint)
    return sender, receiver


def test_memory_is_received_as_bytes_of_ones_own_and_bytes_are_not_copied(
    two: tuple[MemoryTransport, MemoryTransport],
) -> None:
    sender, receiver = two
    header = b"header of a message"
    values = bytearray(b"values")
    sender.send(0, [header, values])
    frames = receiver.receive()
    values[:] = b"reused"
    assert frames is not None
    assert frames[0] is header
    assert frames[1] == b"values"
    assert all(isinstance(frame, bytes) for frame in frames)


def test_memory_queues_a_payload_once_however_often_it_is_sent(two: tuple[MemoryTransport, MemoryTransport]) -> None:
    sender, receiver = two
    one, other = (np.zeros(8).data.cast("B") for _ in range(2))
    assert [sender.send(0, [b"h", values]) for values in (one, one[:], other)] == [True, False, True]
    assert receiver.receive() is not None
    assert [sender.send(0, [b"h", values]) for values in (other, one)] == [False, True]
    assert [sender.send(0, [b"h", b""]) for _ in range(2)] == [True, True], "nothing is not the same as nothing"


def test_memory_takes_back_what_is_unread_where_a_rank_was(two: tuple[MemoryTransport, MemoryTransport]) -> None:
    sender, receiver = two
    sender.send(0, [b"x"])
    sender.connect(0, MemoryTransport(sender._hub).endpoint)
    assert receiver.receive() is None


def test_memory_says_that_it_is_closed(two: tuple[MemoryTransport, MemoryTransport]) -> None:
    sender, receiver = two
    receiver.send(0, [b"x"])
    sender.close()
    assert sender.send(0, [b"x"]) is False
    assert sender.receive() is None
    with pytest.raises(TransportError, match="memory:1 is closed"):
        sender.wait(None)
    with pytest.raises(TransportError, match="this transport is closed"):
        sender.connect(0, receiver.endpoint)


def test_memory_keeps_a_queue_per_sender(two: tuple[MemoryTransport, MemoryTransport]) -> None:
    sender, receiver = two
    other = MemoryTransport(sender._hub)
    other.connect(0, receiver.endpoint)
    assert [sender.send(0, [b"x"]) for _ in range(6)] == [True] * 4 + [False] * 2
    assert other.send(0, [b"y"])
    assert receiver.receive() == [b"x"]
    assert sender.send(0, [b"x"])
    sender.disconnect(0)
    assert receiver.receive() == [b"y"], "what the other has sent stays"
    assert receiver.receive() is None


def test_memory_delivers_what_was_sent_before_a_close(two: tuple[MemoryTransport, MemoryTransport]) -> None:
    sender, receiver = two
    sender.send(0, [b"farewell"])
    sender.close()
    assert receiver.receive() == [b"farewell"]


def test_a_place_in_memory_can_be_taken_again_but_not_twice(two: tuple[MemoryTransport, MemoryTransport]) -> None:
    sender, receiver = two
    with pytest.raises(TransportError, match="cannot listen on memory:2"):
        MemoryTransport(sender._hub, receiver.endpoint)
    receiver.close()
    assert not sender.send(0, [b"x"])
    again = MemoryTransport(sender._hub, receiver.endpoint)
    assert sender.send(0, [b"x"])
    assert again.receive() == [b"x"]
    with pytest.raises(SettingsError, match="no keys"):
        sender.connect(1, receiver.endpoint, b"key")
