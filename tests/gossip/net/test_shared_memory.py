"""Values between peers on one host go through shared memory: they arrive, stay as they are, and leave nothing."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from engines import LOOPBACK, PATIENCE, Engine, greet, steps, together
from hypothesis import given, settings
from hypothesis import strategies as st
from relay import Relay
from transports import receive, send, until

import topologies
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.faults.weather import Network, Weather
from gossip.net.disturbed_transport import DisturbedTransport
from gossip.net.driver import Driver
from gossip.net.shared_memory import owner as shared_memory
from gossip.net.shared_memory import sharing
from gossip.net.shared_memory import views as shared_views
from gossip.net.shared_memory.owner import NAME, OFFSET, SEALS, Reference, SharedMemory, create, find
from gossip.net.shared_memory.sharing import Board, Sharing, is_near
from gossip.net.shared_memory.views import BOARD, Views
from gossip.net.zmq_transport import ZmqTransport, new_keys
from gossip.policies import parse
from gossip.settings import Settings
from gossip.values.layout import Layout
from gossip.values.pool import Pool
from gossip.view.view import Roster
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Hello

SIZE = 1 << 18
FLOAT = np.dtype(np.float32)


def values(pool: Pool, number: float) -> np.ndarray:
    out = pool.take(SIZE // 4, FLOAT)
    out[:] = number
    return out


def frame(array: np.ndarray) -> memoryview:
    return array.view(np.uint8).data


def referred(array: np.ndarray) -> Reference:
    found = find(array.ctypes.data, array.nbytes)
    assert found is not None
    return found


def shows(view: memoryview) -> float:
    """Return the number that is all over a view."""
    found = np.frombuffer(view, FLOAT)
    assert (found == found[0]).all()
    return float(found[0])


@pytest.fixture
def pool() -> Pool:
    return Pool(1 << 30, SharedMemory())


@pytest.fixture
def views() -> Views:
    return Views(1 << 20)


@pytest.fixture
def pair() -> Iterator[tuple[ZmqTransport, ZmqTransport]]:
    """A sender, and a receiver that is rank 0 to it and has said that it can read."""
    sender, receiver = ZmqTransport(LOOPBACK), ZmqTransport(LOOPBACK)
    sender.connect(0, receiver.endpoint)
    trusted(sender, receiver)
    yield sender, receiver
    sender.close()
    receiver.close()


def trusted(sender: ZmqTransport, receiver: ZmqTransport) -> None:
    def works() -> bool:
        sender.send(0, [b"hello"])
        while receiver.receive() is not None:
            continue
        return sender._outlets[0].sharing.works

    until(works, sender, receiver, why="it never said that it can read")
    while receiver.receive() is not None:
        continue
    # The last greeting may still be on its way.
    send(sender, 0, receiver, [b"last"])
    while bytes(receive(receiver, sender)[0]) != b"last":
        continue


# What goes over the wire


@pytest.mark.parametrize("encrypted", [False, True])
def test_values_do_not_go_over_the_wire(pool: Pool, encrypted: bool) -> None:
    mine, yours = (new_keys(), new_keys()) if encrypted else (None, None)
    receiver = ZmqTransport(LOOPBACK, keys=mine, admitted=[yours.public] if yours else [])
    sender = ZmqTransport(LOOPBACK, keys=yours)
    with Relay(receiver.endpoint) as relay:
        try:
            sender.connect(0, relay.endpoint, mine.public if mine else None)
            trusted(sender, receiver)
            before = relay.nbytes
            for number in range(20):
                kept = values(pool, number)
                send(sender, 0, receiver, [b"header", frame(kept)])
                got = receive(receiver, sender)
                assert shows(got[1]) == number
                assert got[1].readonly
            assert relay.nbytes - before < 20 * 500, "headers and references, and that is all"
            assert sender.bytes_shared == 20 * SIZE
            plain = np.full(SIZE // 4, 7.0, FLOAT)
            send(sender, 0, receiver, [b"plain", frame(plain)])
            assert shows(receive(receiver, sender)[1]) == 7
            assert relay.nbytes - before > SIZE, "what is not in shared memory goes over the wire, and is counted"
        finally:
            sender.close()
            receiver.close()


def test_a_swarm_hands_over_everything_by_reference_and_agrees() -> None:
    n, layout = 4, Layout.cut(1 << 16, 1 << 17, np.float64)
    roster = Roster(dict.fromkeys(range(n), 0), lambda m: topologies.parse("one-peer-exponential", m))
    rules = Settings(
        wait_floor=60.0, wait_ceiling=60.0, weight_floor=0.0, weight_cap=1e5, resend_first=60.0, resend_ceiling=60.0
    )
    transports = [ZmqTransport(LOOPBACK) for _ in range(n)]
    engines = []
    for rank, transport in enumerate(transports):
        for other in set(range(n)) - {rank}:
            transport.connect(other, transports[other].endpoint)
        mass = Mass(layout, np.full(1 << 16, float(rank)), owner=SharedMemory())
        core = Core(Address(rank, 0), mass, roster, parse("sgp"), rules)
        engines.append(Engine(core, transport, Driver(core, transport)))
    greet(transports, layout, rules)

    codec = WireCodec(rules.run, layout)

    def works() -> bool:
        for transport in transports:
            while transport.receive() is not None:  # the questions of everybody are among it
                continue
        asking = [
            (rank, other)
            for rank, transport in enumerate(transports)
            for other, outlet in transport._outlets.items()
            if not outlet.sharing.works
        ]
        # The question goes with a message; a connection may have been made anew. A message that comes late is heard by
        # the engines, so it is a greeting.
        for rank, other in asking:
            transports[rank].send(other, codec.encode(Hello(Address(rank, 0), Address(other, 0))))
        return not asking

    until(works, *transports, why="somebody cannot read")
    for engine in engines:
        engine.driver.__enter__()
    try:
        for _ in range(4):
            together(engines, steps(1))
            # Otherwise a shard whose last parcel is not answered yet would pass.
            assert all(engine.driver.flush(PATIENCE) for engine in engines)
    finally:
        for engine in engines:
            engine.driver.close()
    for engine in engines:
        np.testing.assert_allclose(engine.core.mass.values, 1.5, atol=1e-12)
        assert engine.transport.bytes_shared == 4 * layout.total_bytes
        assert engine.core.rejections.total == 0


def test_bad_weather_copies_and_everything_arrives_as_it_was(pool: Pool) -> None:
    inner, receiver = ZmqTransport(LOOPBACK), ZmqTransport(LOOPBACK)
    sender = DisturbedTransport(inner, 1, Network(Weather(duplicate=0.5, delay=(0.0, 0.004), seed=3)))
    try:
        sender.connect(0, receiver.endpoint)
        trusted(inner, receiver)
        kept = [values(pool, number) for number in range(30)]
        for number, array in enumerate(kept):
            send(sender, 0, receiver, [b"%d" % number, frame(array)])
        missing = set(range(30))
        while missing:
            header, view = receive(receiver, sender)
            assert shows(view) == int(bytes(header))
            missing.discard(int(bytes(header)))
        assert inner.bytes_shared >= 30 * SIZE
    finally:
        sender.close()
        receiver.close()


# How long memory lives


@given(st.lists(st.tuples(st.sampled_from(["send", "again", "deliver", "answer", "merge"]), st.integers(0, 99))))
@settings(max_examples=150, deadline=None)
def test_what_anybody_reads_never_changes(story: list[tuple[str, int]]) -> None:
    """Copies are made, delivered late or twice, answered or taken back before or after, and merged whenever."""
    pool, views = Pool(3 * SIZE, SharedMemory()), Views(1 << 20)
    kept: list[np.ndarray] = []
    on_the_way: list[tuple[int, Reference]] = []
    read: list[tuple[int, memoryview]] = []
    for number, (what, which) in enumerate(story):
        if what == "send":
            kept.append(values(pool, number))
            on_the_way.append((number, referred(kept[-1])))
        elif what == "again" and kept:
            array = kept[which % len(kept)]
            on_the_way.append((int(array[0]), referred(array)))
        elif what == "deliver" and on_the_way:
            sent, reference = on_the_way.pop(which % len(on_the_way))
            alive = any(array[0] == sent for array in kept) or any(one == sent for one, _ in read)
            view = views.open(reference)
            assert view is not None or not alive, "who has not been answered has to be read"
            if view is not None:
                read.append((sent, view))
        elif what == "answer" and kept:
            del kept[which % len(kept)]
        elif what == "merge" and read:
            del read[which % len(read)]
        for sent, view in read:
            assert shows(view) == sent
    array = view = None
    kept.clear()
    read.clear()
    assert views.held == 0
    again = {values(pool, 0).ctypes.data for _ in range(3)}
    assert all(place in shared_memory._pieces for place in again)


def test_memory_is_used_again_once_nobody_reads_it_and_not_before(pool: Pool, views: Views) -> None:
    array = values(pool, 1)
    reference, place = referred(array), array.ctypes.data
    view = views.open(reference)
    del array
    other = values(pool, 2)
    assert other.ctypes.data != place
    assert shows(view) == 1
    another = views.open(reference)
    assert shows(another) == 1, "a second reference to what is still read"
    del view
    third = values(pool, 3)
    assert third.ctypes.data != place
    del another
    fourth = values(pool, 4)
    assert fourth.ctypes.data == place
    assert views.open(reference) is None, "it is used for something else"
    assert views.refused == 1
    del fourth
    assert values(pool, 5).ctypes.data == place, "who was refused has left no lock"


def test_a_fork_does_not_let_go_for_its_parent(pool: Pool, views: Views) -> None:
    array = values(pool, 1)
    place = array.ctypes.data
    view = views.open(referred(array))
    del array
    child = os.fork()
    if child == 0:
        del view
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert values(pool, 2).ctypes.data != place
    assert shows(view) == 1
    child = os.fork()
    if child == 0:
        time.sleep(PATIENCE)
        os._exit(0)
    try:
        del view
        kept = [values(pool, 3) for _ in range(2)]
        assert place in [one.ctypes.data for one in kept], "nor does it hold on for it"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_view_of_memory_that_was_given_up_stays_and_then_nothing_does(views: Views) -> None:
    before = descriptors()
    array = values(Pool(0, SharedMemory()), 1)
    view = views.open(referred(array))
    del array
    assert shows(view) == 1
    del view
    views.sweep()
    assert descriptors() == before


# Who dies

CHILD = """
import sys, time
sys.path.insert(0, {tests!r})
import numpy as np
from engines import LOOPBACK
from gossip.endpoint import Endpoint
from gossip.values.pool import Pool
from gossip.net.shared_memory.owner import SharedMemory
from gossip.net.zmq_transport import ZmqTransport
transport = ZmqTransport(LOOPBACK)
print(transport.endpoint, flush=True)
"""


@pytest.fixture
def child() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a process with a transport; its first line says where that is."""
    started = []

    def start(code: str) -> subprocess.Popen[str]:
        program = CHILD.format(tests=str(Path(__file__).parents[2] / "support")) + textwrap.dedent(code)
        started.append(
            subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


READS = """
held = []
while True:
    transport.wait(0.05)
    while (frames := transport.receive()) is not None:
        if len(frames) == 2:
            held.append(frames[1])
            print("holds", transport._views.held, flush=True)
"""


def test_a_receiver_that_is_killed_holds_nothing(pool: Pool, child: Callable[[str], subprocess.Popen[str]]) -> None:
    process = child(READS)
    sender = ZmqTransport(LOOPBACK)
    try:
        sender.connect(0, Endpoint.parse(process.stdout.readline().strip()))

        def works() -> bool:
            sender.send(0, [b"hello"])
            return sender._outlets[0].sharing.works

        until(works, sender, why="it never said that it can read")
        array = values(pool, 1)
        place = array.ctypes.data
        assert sender.send(0, [b"header", frame(array)])
        assert process.stdout.readline() == "holds 1\n"
        del array
        assert values(pool, 2).ctypes.data != place, "it may still read"
        process.send_signal(signal.SIGKILL)
        process.wait()
        again = [values(pool, number) for number in range(2)]
        assert place in [one.ctypes.data for one in again]
        until(lambda: not sender.send(0, [b"header", frame(again[0])]), sender, why="nobody is there")
    finally:
        sender.close()


SENDS = """
transport.connect(0, Endpoint.parse(sys.stdin.readline().strip()))
array = Pool(1 << 30, SharedMemory()).take({size}, np.dtype(np.float32))
array[:] = 42
while not (transport.send(0, [b"hello"]) and transport._outlets[0].sharing.works):
    transport.wait(0.01)
assert transport.send(0, [b"header", array.view(np.uint8).data]) and transport.bytes_shared
time.sleep(600)
"""


@pytest.mark.parametrize("before", [True, False], ids=["before it is read", "while it is read"])
def test_a_sender_that_is_killed(child: Callable[[str], subprocess.Popen[str]], before: bool) -> None:
    receiver = ZmqTransport(LOOPBACK)
    try:
        process = child(SENDS.format(size=SIZE // 4))
        process.stdout.readline()
        process.stdin.write(f"{receiver.endpoint}\n")
        process.stdin.flush()
        if before:
            # It is opened only after its owner has died.
            read = receiver._views.open
            receiver._views.open = lambda reference: (process.kill(), process.wait(), read(reference))[-1]
            got = []
            until(lambda: got.append(receiver.receive()) or receiver._views.refused, receiver, why="it was read")
            assert all(frames is None or len(frames) == 1 for frames in got)
            assert receiver.receive() is None
            return
        while len(frames := receive(receiver)) == 1:
            continue
        process.kill()
        process.wait()
        assert shows(frames[1]) == 42
        receiver.close()
        assert shows(frames[1]) == 42
    finally:
        receiver.close()


# Who cannot read


def test_who_may_not_read_is_sent_the_values(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_views, "_PROCESSES", "/nowhere")
    sender, receiver = ZmqTransport(LOOPBACK), ZmqTransport(LOOPBACK)
    try:
        sender.connect(0, receiver.endpoint)
        for number in range(5):
            send(sender, 0, receiver, [b"header", frame(values(pool, number))])
            assert shows(receive(receiver, sender)[1]) == number
        assert receiver._views.refused, "it was asked"
        assert sender.bytes_shared == 0
    finally:
        sender.close()
        receiver.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_does_not_read(pool: Pool) -> None:
    reference, board = referred(kept := values(pool, 1)), Board(BOARD)
    question = Reference.unpack(board.question(1, 5))
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        views = Views(1 << 20)
        views.answer(question)
        os._exit(0 if views.open(reference) is None and views.refused == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert board.read(1) == 0
    board.close()
    assert kept[0] == 1


def test_root_does_not_read_what_is_not_its_own(pool: Pool, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = referred(kept := values(pool, 1))
    monkeypatch.setattr(shared_views.os, "geteuid", lambda: os.getuid() + 1)
    assert views.open(reference) is None
    assert kept[0] == 1


def test_who_can_read_no_more_is_sent_the_values_in_the_end(
    pool: Pool, pair: tuple[ZmqTransport, ZmqTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = pair
    monkeypatch.setattr(shared_views, "_PROCESSES", "/nowhere")
    array = values(pool, 1)
    for refused in (1, 2):
        assert sender.send(0, [b"header", frame(array)])
        until(lambda refused=refused: receiver.receive() or receiver._views.refused >= refused, receiver, why="lost")
    assert sender.bytes_shared == 2 * SIZE
    assert sender.send(0, [b"header", frame(array)])
    assert shows(receive(receiver, sender)[1]) == 1
    assert sender.bytes_shared == 2 * SIZE


@pytest.mark.parametrize("shared", [(True, False), (False, True)])
def test_either_side_may_do_without(pool: Pool, shared: tuple[bool, bool]) -> None:
    sender, receiver = (ZmqTransport(LOOPBACK, shared=one) for one in shared)
    try:
        sender.connect(0, receiver.endpoint)
        for number in range(5):
            send(sender, 0, receiver, [b"header", frame(values(pool, number))])
            assert shows(receive(receiver, sender)[1]) == number
        assert sender.bytes_shared == 0
    finally:
        sender.close()
        receiver.close()


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("10.0.0.1", "localhost", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("127.0.0.1", "10.0.0.2", False),
    ],
)
def test_only_peers_on_this_host_are_asked(here: str, there: str, expected: bool) -> None:
    assert is_near(Endpoint(here, 1), Endpoint(there, 2)) is expected


# Whether somebody can read


def test_a_peer_is_believed_once_it_answers_and_doubted_when_something_is_sent_again(pool: Pool, views: Views) -> None:
    now = [100.0]
    board = Board(BOARD)
    peer = Sharing(board, lambda: now[0])
    array, other = values(pool, 1), values(pool, 2)

    def share(what: np.ndarray) -> bool:
        return peer.reference(what.ctypes.data, what.nbytes) is not None

    first = peer.question()
    assert first is not None
    assert peer.question() == first, "it could not be sent"
    peer.asked()
    assert peer.question() is None
    assert not share(array)
    now[0] += sharing._PAUSE
    assert peer.question() == first, "it may have got lost"
    views.answer(Reference.unpack(first))
    assert share(array)
    assert peer.question() is None
    now[0] += 1000
    assert share(array), "sent again, by reference once more"
    second = peer.question()
    assert second not in (None, first)
    assert not share(array), "and the third time not"
    assert share(other), "others still are"
    views.answer(Reference.unpack(first))
    now[0] += sharing._PAUSE
    assert not share(values(pool, 3)), "an answer to an earlier question is none to this"
    views.answer(Reference.unpack(second))
    assert share(values(pool, 4))
    assert not share(np.zeros(SIZE)), "not in shared memory"
    board.close()
    board.close()


def test_a_peer_that_reads_nothing_has_a_bounded_number_of_references(
    pool: Pool, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_MANY", 4)
    board = Board(BOARD)
    peer = Sharing(board)
    views.answer(Reference.unpack(peer.question()))
    kept = [values(pool, number) for number in range(6)]
    assert [peer.reference(one.ctypes.data, SIZE) is not None for one in kept] == [True] * 4 + [False] * 2
    kept.clear()

    kept = [values(pool, number) for number in range(6)]
    assert [peer.reference(one.ctypes.data, SIZE) is not None for one in kept] == [True] * 4 + [False] * 2
    board.close()


# Who lies


def lies(name: str, tmp_path: Path, honest: Reference) -> tuple[Reference, list[int]]:
    """Return a bad reference, and descriptors to close."""
    if name == "bad pid":
        return honest._replace(pid=2**32 - 1), []
    if name == "no such descriptor":
        return honest._replace(fd=2**31 - 1), []
    if name == "another file":
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        os.truncate(fd, 1 << 20)
    elif name == "fifo":
        os.mkfifo(tmp_path / "fifo")
        fd = os.open(tmp_path / "fifo", os.O_RDWR)
    elif name == "file with our name":
        fd = os.open(tmp_path / f"memfd:{NAME} (deleted)", os.O_RDWR | os.O_CREAT)
        os.truncate(fd, 1 << 20)
    elif name == "another name":
        fd, _ = create("other", OFFSET + SIZE)
    elif name == "board":
        fd, _ = create(BOARD, OFFSET + SIZE)
    elif name == "no seals":
        fd = os.memfd_create(NAME, os.MFD_ALLOW_SEALING)
        os.truncate(fd, OFFSET + SIZE)
    elif name == "may shrink":
        fd = os.memfd_create(NAME, os.MFD_ALLOW_SEALING)
        os.truncate(fd, OFFSET + SIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS & ~fcntl.F_SEAL_SHRINK)
    elif name == "huge":
        fd, _ = create(NAME, 1 << 40)
    elif name == "no header":
        fd, _ = create(NAME, 16)
    else:
        changes = {
            "inode": {"inode": honest.inode + 1},
            "generation": {"mark": honest.mark + 1},
            "nothing": {"extent": 0},
            "one byte too many": {"extent": SIZE + 1},
            "huge length": {"extent": 2**64 - 1},
        }
        return honest._replace(**changes[name]), []
    return Reference(os.getpid(), fd, os.fstat(fd).st_ino, 0, 8), [fd]


@pytest.mark.parametrize(
    "name",
    [
        "bad pid",
        "no such descriptor",
        "another file",
        "fifo",
        "file with our name",
        "another name",
        "board",
        "no seals",
        "may shrink",
        "huge",
        "no header",
        "inode",
        "generation",
        "nothing",
        "one byte too many",
        "huge length",
    ],
)
def test_a_bad_reference_is_refused(name: str, tmp_path: Path, pool: Pool, views: Views) -> None:
    honest = referred(kept := values(pool, 1))
    reference, opened = lies(name, tmp_path, honest)
    gc.collect()
    before = descriptors()
    assert views.open(reference) is None
    if name != "board":
        views.answer(reference)
    assert views.refused >= 1
    views.close()
    assert descriptors() == before
    for fd in opened:
        os.close(fd)
    assert shows(views.open(honest)) == 1, "and honest ones are read as before"
    assert (kept == 1).all()


def test_an_answer_stays_on_the_board_and_is_written_to_boards_alone(pool: Pool, views: Views) -> None:
    board, kept = Board(BOARD), values(pool, 1)
    question = Reference.unpack(board.question(3, 7))
    for place in (4096, 2**61, 2**64 - 1):
        views.answer(question._replace(extent=place))
    views.answer(referred(kept)._replace(extent=OFFSET // 8))
    assert views.refused == 4
    assert (kept == 1).all()
    views.answer(question)
    assert board.read(3) == 7
    assert not any(board.read(place) for place in range(4096) if place != 3)
    board.close()


@pytest.mark.parametrize(
    "note",
    [b"\xc1", b"\xc1reference", b"\xc1question ", b"\xc1reference" + bytes(31), b"\xc1nonsense." + bytes(32)],
)
def test_notes_that_are_none_are_passed_over(pair: tuple[ZmqTransport, ZmqTransport], note: bytes) -> None:
    sender, receiver = pair
    send(sender, 0, receiver, [note])
    send(sender, 0, receiver, [b"after"])
    assert bytes(receive(receiver, sender)[0]) == b"after"


# What is left


def descriptors() -> int:
    """Return how many there are of what is opened here; sockets come and go."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += any(name in str(link.readlink()) for name in ("memfd:", "pytest"))
    return count


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count(f"memfd:{NAME}")


def test_nothing_grows_with_parcels_and_nothing_is_left(pool: Pool) -> None:
    gc.collect()
    at_first = descriptors(), mappings()
    sender, receiver = ZmqTransport(LOOPBACK), ZmqTransport(LOOPBACK)
    sender.connect(0, receiver.endpoint)
    trusted(sender, receiver)
    footprints = []
    for number in range(300):
        send(sender, 0, receiver, [b"header", frame(values(pool, number))])
        assert shows(receive(receiver, sender)[1]) == number
        if number >= 100:
            footprints.append((descriptors(), mappings()))
    assert set(footprints) == {footprints[0]}
    sender.close()
    receiver.close()
    pool.close()
    gc.collect()
    assert (descriptors(), mappings()) == at_first


def test_beyond_a_number_of_pieces_memory_is_plain() -> None:
    memory = SharedMemory(len(shared_memory._pieces) + 2)
    pieces = [memory.allocate(SIZE) for _ in range(3)]
    assert [find(one.ctypes.data, SIZE) is not None for one in pieces] == [True, True, False]
    assert memory.reclaim(pieces[2])
    del pieces[0]
    again = memory.allocate(SIZE)
    assert find(again.ctypes.data, SIZE) is not None, "one was given up, so there is room"
    assert memory.allocate(0).size == 0
    del pieces[:], again
    assert find(memory.allocate(1 << 10).ctypes.data, 1 << 10) is None, "too small for a file"


def test_a_pool_that_is_closed_keeps_nothing(pool: Pool) -> None:
    before = descriptors()
    kept, other = values(pool, 1), values(pool, 2)
    del other
    assert descriptors() > before + 2
    pool.close()
    assert kept[0] == 1
    del kept
    assert descriptors() == before


def test_without_memfd_memory_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError("no")

    monkeypatch.setattr(os, "memfd_create", fails)
    memory = SharedMemory().allocate(SIZE)
    assert find(memory.ctypes.data, SIZE) is None
    sender = ZmqTransport(LOOPBACK)
    sender.connect(0, sender.endpoint)
    assert sender._outlets[0].sharing is None
    sender.close()


def test_beyond_a_number_of_views_values_are_copied(pool: Pool) -> None:
    views = Views(1 << 20, most=1)
    arrays = [values(pool, number) for number in range(3)]
    read = [views.open(referred(array)) for array in arrays]
    assert [shows(view) for view in read] == [0, 1, 2]
    assert views.held == 1
    places = [array.ctypes.data for array in arrays]
    arrays.clear()
    again = {values(pool, 9).ctypes.data for _ in range(2)}
    kept = [values(pool, 9) for _ in range(3)]
    assert again <= set(places[1:])
    assert places[0] not in {one.ctypes.data for one in kept}
    assert [shows(view) for view in read] == [0, 1, 2]


def test_a_mapping_is_kept_for_as_long_as_its_owner_has_the_memory(pool: Pool, views: Views) -> None:
    before = mappings()
    array = values(pool, 1)
    for _ in range(3):
        assert shows(views.open(referred(array))) == 1
    assert mappings() == before + 2, "the owner's, and one here"
    del array
    pool._free.clear()
    assert mappings() == before + 1
    views.open(referred(other := values(pool, 2)))
    assert mappings() == before + 2, "when the next is mapped the old one is let go of"
    assert other[0] == 2


def test_a_view_cannot_be_written_to(pool: Pool, views: Views) -> None:
    view = views.open(referred(kept := values(pool, 1)))
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        np.frombuffer(view, np.uint8)[0] = 1
    assert kept[0] == 1
    assert mmap.PAGESIZE == OFFSET
