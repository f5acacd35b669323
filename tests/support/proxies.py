"""Networks that misbehave: TCP proxies, and a relay of whole messages, as threads of the test.

A `Proxy` is one directed link: whoever connects to it is connected on to its target. It can cut connections after
so many bytes, delay, flip bits, and stop forwarding in the middle of a frame. All draws come from a seed, which is
printed; by how the system cuts a stream into reads they still fall on different messages in each run.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import zmq

_CHUNK = 1 << 16
_GREETING = 64
#: Longer than what ZMTP says before the first message.
_HANDSHAKE = 2048


@dataclass
class Weather:
    """What a proxy does to those bytes that go from the one who connects to the target. 0 is: nothing of the kind."""

    #: Bytes between two cuts of the connection, on average.
    cut: int = 0
    #: Seconds that a read waits before it is passed on, at most.
    delay: float = 0.0
    #: Bytes between two bits that are flipped, on average, wherever they fall: in the framing too.
    flip: int = 0
    #: The part of the frames of which a bit is flipped; only in what ZMTP carries, never in its framing.
    spoil: float = 0.0
    #: The part of the bytes of ZMTP's framing, flags and lengths, of which a bit is flipped.
    muddle: float = 0.0


@dataclass
class Count:
    """What a proxy did."""

    connections: int = 0
    cut: int = 0
    flipped: int = 0
    muddled: int = 0
    spoilt_messages: int = 0
    forwarded: int = 0


class Proxy:
    """One directed link to a target."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = target
        self.weather = Weather()
        self.count = Count()
        #: Set while nothing is forwarded because of `stall`.
        self.stalled = threading.Event()
        self._draws = random.Random(seed)
        self._lock = threading.Lock()
        self._limit: int | None = None
        self._resumed = threading.Event()
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        #: What comes from these is swallowed.
        self._deaf: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.endpoint = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._spawn(self._accept)

    def stall(self, after: int) -> None:
        """Forward so many bytes more towards the target, and then none until `resume` or `cut`."""
        with self._lock:
            self._resumed.clear()
            self.stalled.clear()
            self._limit = after

    def resume(self) -> None:
        with self._lock:
            self._limit = None
            self._resumed.set()

    def deafen(self) -> None:
        """Swallow from now on what is sent over connections that stand; new ones are well."""
        with self._lock:
            self._deaf |= self._open

    def cut(self) -> None:
        """Break every connection that stands."""
        with self._lock:
            for one in self._open:
                _break(one)

    def close(self) -> None:
        self._closing.set()
        self.resume()
        _break(self._server)
        self.cut()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a proxy's thread hangs"
        self._server.close()

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            host, _, port = self.target.rpartition(":")
            try:
                far = socket.create_connection((host, int(port)), timeout=5)
            except OSError:
                _reset(near)
                continue
            far.settimeout(None)
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.count.connections += 1
                self._open |= {near, far}
            ends = [2]
            self._spawn(self._pump, near, far, True, ends)
            self._spawn(self._pump, far, near, False, ends)

    def _pump(self, source: socket.socket, sink: socket.socket, forward: bool, ends: list[int]) -> None:
        frames = Frames(self)
        next_flip = next_cut = 0  # bytes until then; drawn once there is such weather
        safe = _HANDSHAKE
        whole = False
        with suppress(OSError):  # one of the ends is gone, so the other goes as well
            while data := source.recv(_CHUNK):
                if source in self._deaf:
                    continue
                weather = self.weather
                chunk = bytearray(data)
                if not forward:
                    sink.sendall(chunk)
                    continue
                every = weather.flip
                next_flip = (next_flip or self._distance(every)) if every else 0
                while every and next_flip <= len(chunk):
                    if next_flip > safe:
                        chunk[next_flip - 1] ^= 1 << self._draws.randrange(8)
                        self.count.flipped += 1
                    next_flip += self._distance(every)
                next_flip = max(0, next_flip - len(chunk))
                safe -= len(chunk)
                frames.spoil(chunk, weather.spoil, weather.muddle)
                if weather.delay:
                    self._closing.wait(self._draws.uniform(0, weather.delay))
                next_cut = (next_cut or self._distance(weather.cut)) if weather.cut else 0
                if weather.cut and next_cut <= len(chunk):
                    sink.sendall(chunk[:next_cut])
                    self.count.cut += 1
                    break
                next_cut = max(0, next_cut - len(chunk))
                self._forward(sink, chunk)
            else:
                whole = forward
        if whole:
            # Who connected has closed: what it had sent still arrives, and then the target closes as well.
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
        else:
            for one in (source, sink):
                _break(one)
        with self._lock:
            ends[0] -= 1
            if not ends[0]:
                self._open -= {source, sink}
                _reset(source)
                _reset(sink)

    def _forward(self, sink: socket.socket, chunk: bytearray) -> None:
        with self._lock:
            allowed = len(chunk) if self._limit is None else min(self._limit, len(chunk))
            if self._limit is not None:
                self._limit -= allowed
        sink.sendall(chunk[:allowed])
        self.count.forwarded += allowed
        if allowed < len(chunk):
            self.stalled.set()
            self._resumed.wait()
            sink.sendall(chunk[allowed:])
            self.count.forwarded += len(chunk) - allowed

    def _distance(self, mean: int) -> int:
        return self._draws.randint(1, 2 * mean) if mean else 0


class Frames:
    """Follows ZMTP in the clear, to tell what it carries from its framing."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._draws = random.Random(proxy._draws.random())
        self._skip = _GREETING
        self._head = bytearray()
        self._left = 0
        self._victim = -1
        self._more = False
        self._command = False
        self._spoilt = False

    def spoil(self, chunk: bytearray, part: float, muddle: float) -> None:
        """Take in the next bytes, and flip a bit in such a part of the frames, and of the bytes of their framing."""
        at = min(self._skip, len(chunk))
        self._skip -= at
        while at < len(chunk):
            if not self._left:
                self._head.append(chunk[at])
                # Not in commands: they are the handshake, and in what answers it the sender could be muddled up.
                if muddle and not self._head[0] & 4 and self._draws.random() < muddle:
                    chunk[at] ^= 1 << self._draws.randrange(8)
                    self._proxy.count.muddled += 1
                at += 1
                long = self._head[0] & 2
                if len(self._head) < (9 if long else 2):
                    continue
                self._begin(part)
                continue
            here = min(self._left, len(chunk) - at)
            if 0 <= self._victim < here:
                chunk[at + self._victim] ^= 1 << self._draws.randrange(8)
                self._proxy.count.flipped += 1
                self._spoilt = True
            self._victim -= here
            self._left -= here
            at += here
            if not self._left:
                self._end()

    def _begin(self, part: float) -> None:
        self._command, self._more = bool(self._head[0] & 4), bool(self._head[0] & 1)
        self._left = int.from_bytes(self._head[1:], "big")
        self._head.clear()
        hit = self._left and not self._command and self._draws.random() < part
        self._victim = self._draws.randrange(self._left) if hit else -1
        if not self._left:
            self._end()

    def _end(self) -> None:
        if not self._command and not self._more:
            self._proxy.count.spoilt_messages += self._spoilt
            self._spoilt = False


class Proxies:
    """The proxies of a test, by (origin, target)."""

    def __init__(self) -> None:
        self.links: dict[tuple[int, int], Proxy] = {}
        self._seed = 0
        self._through: Callable[[int, int], bool] = lambda _origin, _target: True

    def set_up(self, seed: int = 0, through: Callable[[int, int], bool] | None = None) -> None:
        """Say what new links draw from, and which of them go through a proxy at all, by origin and target."""
        sys.stdout.write(f"seed {seed}\n")
        self._seed, self._through = seed, through or self._through

    def route(self, origin: int, target: int, endpoint: str) -> str:
        if not self._through(origin, target):
            return endpoint
        if (origin, target) not in self.links:
            seed = self._seed * 10_000 + origin * 100 + target
            self.links[origin, target] = Proxy(endpoint, seed)
        self.links[origin, target].target = endpoint
        return self.links[origin, target].endpoint

    def into(self, rank: int) -> list[Proxy]:
        return [proxy for (_, target), proxy in self.links.items() if target == rank]

    def out_of(self, rank: int) -> list[Proxy]:
        return [proxy for (origin, _), proxy in self.links.items() if origin == rank]

    def sum(self, what: str) -> int:
        return sum(getattr(proxy.count, what) for proxy in self.links.values())

    def storm(self, weather: Weather) -> None:
        for proxy in self.links.values():
            proxy.weather = weather

    def heal(self) -> None:
        """End the bad weather. Connections that it has muddled are left as they are: to recover is the peers' task."""
        for proxy in self.links.values():
            proxy.weather = Weather()
            proxy.resume()

    def close(self) -> None:
        for proxy in self.links.values():
            proxy.close()


@dataclass
class Relay:
    """Passes whole messages of ZeroMQ on to a target, some of them twice or late, out of order."""

    target: str
    seed: int
    #: How many messages may be held back while later ones overtake them.
    held: int = 4
    doubled: int = 0
    overtaken: int = 0
    calm: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._context = zmq.Context(io_threads=1)
        self._inlet, self._outlet = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        for one in (self._inlet, self._outlet):
            one.setsockopt(zmq.LINGER, 0)
        self._inlet.bind("tcp://127.0.0.1:0")
        self._outlet.connect(f"tcp://{self.target}")
        self.endpoint = self._inlet.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(10)
        assert not self._thread.is_alive(), "a relay's thread hangs"
        self._context.destroy(linger=0)

    def _run(self) -> None:
        draws = random.Random(self.seed)
        waiting: deque[list[bytes]] = deque()
        while not self._closing.is_set():
            if self._inlet.poll(5):
                waiting.append(self._inlet.recv_multipart())
                if not self.calm.is_set() and len(waiting) <= self.held:
                    continue
            if not waiting:
                continue
            place = 0 if self.calm.is_set() else draws.randrange(len(waiting))
            self.overtaken += place > 0
            message = waiting[place]
            del waiting[place]
            twice = not self.calm.is_set() and draws.random() < 0.5
            self.doubled += twice
            if twice:
                waiting.append(message)  # the copy comes later, behind others
            if self._outlet.poll(1000, zmq.POLLOUT):
                self._outlet.send_multipart(message)


class Impostor:
    """A server that begins like ZMTP and goes on with nonsense."""

    def __init__(self) -> None:
        self.met = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
        while True:
            try:
                one, _ = self._server.accept()
            except OSError:
                return
            with one:
                one.settimeout(5)
                with suppress(OSError):
                    one.recv(1)
                    one.sendall(greeting + b"\x04\xffnonsense" * 50)
                    while one.recv(_CHUNK):
                        pass
            self.met += 1

    def close(self) -> None:
        _break(self._server)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the impostor's thread hangs"
        self._server.close()


def _break(one: socket.socket) -> None:
    with suppress(OSError):  # it is broken already
        one.shutdown(socket.SHUT_RDWR)


def _reset(one: socket.socket) -> None:
    """Close without a farewell: the other end sees a reset."""
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def until(condition: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
    """Wait for something that nobody signals."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it never came about: {what}"
        time.sleep(0.002)
