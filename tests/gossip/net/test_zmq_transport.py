"""The contract of a transport, kept by ZeroMQ on loopback."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
from engines import HANGS, LOOPBACK, PATIENCE, no_descriptors

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.net.transport import Transport, TransportError
from gossip.net.zmq_transport import ZmqTransport, new_keys

Make = Callable[..., ZmqTransport]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[ZmqTransport] = []

    def build(bind: Endpoint = LOOPBACK, **options: object) -> ZmqTransport:
        made.append(ZmqTransport(bind, **options))
        return made[-1]

    yield build
    for transport in made:
        transport.close()


def send(sender: Transport, rank: int, frames: Sequence[bytes]) -> None:
    """Send, as soon as the connection stands."""
    deadline = time.monotonic() + PATIENCE
    while not sender.send(rank, frames):
        assert time.monotonic() < deadline, "never connected"
        sender.wait(0.01)


def receive(receiver: Transport) -> list[bytes]:
    deadline = time.monotonic() + PATIENCE
    while (frames := receiver.receive()) is None:
        assert time.monotonic() < deadline, "nothing arrived"
        receiver.wait(0.1)
    return [bytes(frame) for frame in frames]


def nothing(*receivers: Transport, seconds: float = 0.5) -> None:
    """See to it that nothing arrives while everybody is given time to."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for receiver in receivers:
            receiver.wait(0.01)
            assert receiver.receive() is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_frames_arrive_as_they_were_sent(make: Make, host: str, encrypted: bool) -> None:
    mine, yours = (new_keys(), new_keys()) if encrypted else (None, None)
    here = make(Endpoint(host, 0), keys=mine, admitted=[yours.public] if yours else [])
    there = make(keys=yours, admitted=[mine.public] if mine else [])
    there.connect(0, here.endpoint, mine.public if mine else None)
    # The receiver has to be awake for the handshake: it decides who comes in.
    stop = threading.Event()
    got: list[list[bytes]] = []

    def listen() -> None:
        while not stop.is_set():
            here.wait(0.01)
            while (frames := here.receive()) is not None:
                got.append([bytes(frame) for frame in frames])

    listener = threading.Thread(target=listen)
    listener.start()
    messages = [[b"one"], [b"two", b""], [b"three", bytes(range(256)) * 16384]]
    for message in messages:
        send(there, 0, message)
    deadline = time.monotonic() + PATIENCE
    while len(got) < len(messages) and time.monotonic() < deadline:
        there.wait(0.01)
    stop.set()
    listener.join()
    assert sorted(got) == sorted(messages), "the long one goes another way, and may overtake"


def test_nothing_there_is_none(make: Make) -> None:
    assert make().receive() is None


def test_an_unknown_rank_is_said_to_be_dropped(make: Make) -> None:
    assert make().send(3, [b"x"]) is False


def test_nothing_is_queued_for_somebody_who_is_not_there(make: Make) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = make()
    here.connect(1, Endpoint("127.0.0.1", port))
    assert [here.send(1, [b"x"]) for _ in range(100)] == [False] * 100


def test_a_full_queue_drops_and_never_blocks(make: Make) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"first"])
    began = time.monotonic()
    taken = sum(there.send(0, [b"h", bytes(1 << 16)]) for _ in range(3000))
    assert taken < 3000, "nobody reads, so at some point it is full"
    assert time.monotonic() - began < PATIENCE


def test_a_payload_that_has_not_left_is_not_queued_again(make: Make) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"first"])
    payloads = [bytes(1 << 20) for _ in range(200)]  # more than the kernel and the other side take while nobody reads
    assert all(there.send(0, [b"h", memoryview(payload)]) for payload in payloads)
    assert not there.send(0, [b"again", memoryview(payloads[-1])]), "another view of memory that is still queued"
    assert there.send(0, [b"h", bytes(1 << 20)]), "other memory is another message"


def test_a_payload_that_has_left_may_be_sent_again(make: Make) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    payload = bytes(1 << 20)
    for _ in range(3):
        send(there, 0, [b"h", payload])
        assert receive(here) == [b"h", payload]


def test_an_answer_overtakes_parcels(make: Make) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"first"])
    assert receive(here) == [b"first"]
    for _ in range(200):
        send(there, 0, [b"h", bytes(1 << 20)])
    send(there, 0, [b"answer"])
    before = 0
    while receive(here) != [b"answer"]:
        before += 1
    assert before < 200


def test_a_peer_that_comes_back_on_its_port_is_reached_again(make: Make) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"before"])
    assert receive(here) == [b"before"]
    endpoint = here.endpoint
    here.close()
    again = make(endpoint)
    deadline = time.monotonic() + PATIENCE
    while (frames := again.receive()) is None:
        assert time.monotonic() < deadline
        there.send(0, [b"after"])
        again.wait(0.05)
    assert [bytes(frame) for frame in frames] == [b"after"]


def test_a_rank_can_move(make: Make) -> None:
    first, second, sender = make(), make(), make()
    sender.connect(0, first.endpoint)
    sender.connect(0, second.endpoint)
    send(sender, 0, [b"moved"])
    assert receive(second) == [b"moved"]
    assert first.receive() is None


def test_wake_ends_a_wait_from_another_thread(make: Make) -> None:
    here = make()
    waiter = threading.Thread(target=here.wait, args=(None,))
    waiter.start()
    here.wake()
    waiter.join(PATIENCE)
    assert not waiter.is_alive()


@pytest.mark.parametrize("times", [1, 2])
def test_closing_does_not_wait_for_messages_that_are_queued(make: Make, times: int) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"first"])
    while there.send(0, [b"h", bytes(1 << 20)]):
        pass
    began = time.monotonic()
    for _ in range(times):
        there.close()
    assert time.monotonic() - began < HANGS
    there.wake()


@pytest.mark.parametrize("looks", [1, 10])
def test_a_connection_is_made_anew_when_look_after_look_finds_it_stuck(
    make: Make, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """One look after a long time is not enough: nobody has read meanwhile, so the queue is full, and all is well."""
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"first"])
    while there.send(0, [b"h", bytes(1 << 20)]):
        pass
    renewed: list[int] = []
    monkeypatch.setattr(there, "reconnect", renewed.append)
    real, ahead = time.monotonic, 0.0
    monkeypatch.setattr("gossip.net.zmq_transport.time", SimpleNamespace(monotonic=lambda: real() + ahead))
    for _ in range(looks):
        ahead += 60.0
        there.wait(0)
    assert bool(renewed) == (looks > 1)


def test_without_descriptors_it_says_so_and_keeps_the_connections_that_there_are(make: Make) -> None:
    here, there = make(), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"first"])
    assert receive(here) == [b"first"]
    with no_descriptors():
        for connect in (lambda: there.reconnect(0), lambda: there.connect(1, here.endpoint)):
            with pytest.raises(TransportError, match=r"cannot connect to rank \d at .*Too many open files"):
                connect()
    send(there, 0, [b"second"])
    assert receive(here) == [b"second"]
    assert not there.send(1, [b"nobody"])


def test_hundreds_of_peers_can_be_connected_to(make: Make) -> None:
    """ZeroMQ's own limit is 1023 sockets, and a peer has two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    here, there = make(), make()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for rank in range(520):
            there.connect(rank, here.endpoint)
        send(there, 519, [b"the last one"])
        assert receive(here) == [b"the last one"]
    finally:
        there.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("host", ["x" * 70, "."])
def test_a_name_that_is_none_is_told(make: Make, host: str) -> None:
    with pytest.raises(TransportError, match="cannot listen on"):
        make(Endpoint(host, 0), insecure=True)


def test_a_frame_beyond_the_limit_never_arrives(make: Make) -> None:
    here, there = make(largest=1000), make()
    there.connect(0, here.endpoint)
    send(there, 0, [b"h", bytes(5000)])
    nothing(here)
    send(there, 0, [b"small"])
    assert receive(here) == [b"small"]


def test_the_advertised_host_is_what_others_are_told(make: Make) -> None:
    endpoint = make(advertise="worker-1.example").endpoint
    assert endpoint.host == "worker-1.example"
    assert endpoint.port > 0


def test_a_port_that_is_taken_is_said_so(make: Make) -> None:
    taken = make().endpoint
    with pytest.raises(TransportError, match=f"cannot listen on {taken}"):
        ZmqTransport(taken)


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0"])
def test_the_open_network_needs_keys(make: Make, bind: str) -> None:
    with pytest.raises(SettingsError, match="gossip keygen"):
        ZmqTransport(Endpoint.parse(bind))
    make(Endpoint.parse(bind), keys=new_keys())
    make(Endpoint.parse(bind), insecure=True)


def test_two_interfaces_of_one_host(make: Make) -> None:
    one, two = make(Endpoint("127.0.0.1", 0)), make(Endpoint("127.0.0.2", 0))
    one.connect(2, two.endpoint)
    two.connect(1, one.endpoint)
    send(one, 2, [b"to two"])
    send(two, 1, [b"to one"])
    assert receive(two) == [b"to two"]
    assert receive(one) == [b"to one"]
