"""Frames over TCP by ZeroMQ: the one module that knows it. The promises are those of `gossip.net.transport`.

One PULL socket is bound, and two PUSH sockets are connected to each peer that is sent to, one for parcels and one for
everything small, so that an answer does not queue behind megabytes. What is to stay behind a parcel goes over the
parcels' socket, however small it is. Every conversation is made of one-way streets, so
there is no identity to hand over when a peer restarts.

To peers on this host, values that lie in shared memory are not sent: a note says where they are; see
`gossip.net.shared_memory.owner` and `gossip.net.shared_memory.sharing`. Notes are between transports, and never reach
the core.

With keys every connection is encrypted and authenticated by CURVE: a PUSH knows the key of the peer it connects to, and
the PULL admits only keys on its list, by ZAP at the handshake and again for every message, so that a key which
is revoked is out at once. Without keys it binds to loopback only, unless insecurity is asked for by name. Some keys are
only good for looking: what comes from them is marked, and the core takes nothing else from there.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import zmq
import zmq.utils.z85

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.keys import KeyPair
from gossip.link import Link
from gossip.net.shared_memory.owner import REFERENCE_BYTES, SMALLEST, Reference
from gossip.net.shared_memory.sharing import Board, Sharing, is_near
from gossip.net.shared_memory.views import BOARD, Views
from gossip.net.transport import TransportError
from gossip.values.buffers import Buffer
from gossip.wire.limits import HEADER_LIMIT

__all__ = ["ZmqTransport", "keys_from", "new_keys"]

_ZAP = "inproc://zeromq.zap.01"
#: What transports say to each other starts so, and no message of the core does: in msgpack, 0xc1 is nothing.
_NOTE = 0xC1
_REFERENCE = b"\xc1reference"
_QUESTION = b"\xc1question "


def new_keys() -> KeyPair:
    """Make a new key pair."""
    return KeyPair(*zmq.curve_keypair())


def keys_from(seed: bytes) -> KeyPair:
    """Return the key pair whose secret half is these 32 bytes."""
    secret = zmq.utils.z85.encode(seed)
    return KeyPair(zmq.curve_public(secret), secret)


@dataclass
class _Outlet:
    """The two ways to one peer."""

    #: To ask all trackers takes a while, so it is done for a number of them at a time.
    _MANY: ClassVar = 256

    parcels: zmq.Socket[bytes]
    words: zmq.Socket[bytes]
    endpoint: Endpoint
    key: bytes | None
    #: When it was last looked at.
    looked_at: float
    #: Whether it can read our memory; None: it is on another host.
    sharing: Sharing | None
    #: Seconds, between looks, for which not both could be written to.
    stuck: float = 0.0
    #: Payloads that ZeroMQ may still hold, by where they are. Until the tracker says that one has left nothing else
    #: can take its place: ZeroMQ refers to it. This does not, or its memory would not be used again for long.
    leaving: dict[int, zmq.MessageTracker] = field(default_factory=dict)

    def writable(self) -> bool:
        """Whether both are connected and take more. To ask lets ZeroMQ give back what lost connections had used."""
        parcels, words = (int(one.getsockopt(zmq.EVENTS)) & zmq.POLLOUT for one in (self.parcels, self.words))
        return bool(parcels and words)

    def holds(self, payload: Buffer) -> bool:
        """Whether the payload has not left yet."""
        tracker = self.leaving.get(_identity(payload))
        return tracker is not None and not tracker.done

    def keep(self, payload: Buffer, tracker: zmq.MessageTracker) -> None:
        """Remember that the payload leaves; now and then, forget those that have left."""
        if len(self.leaving) >= self._MANY:
            self.leaving = {place: one for place, one in self.leaving.items() if not one.done}
        self.leaving[_identity(payload)] = tracker


class ZmqTransport:
    """Frames over TCP by ZeroMQ."""

    #: The most sockets of a transport, two for each peer: ZeroMQ's own limit of 1023 ends at 511 peers.
    _SOCKETS = 1 << 14
    #: Messages that ZeroMQ queues for one peer. The core bounds the bytes, and a large payload is not copied for it, so
    #: this may be generous.
    _SEND_QUEUE = 1024
    #: Messages from one peer that may lie unread: a sender that keeps no budget is slowed down by it.
    _RECEIVE_QUEUE = 64
    #: Messages up to this size are copied, and go ahead of parcels if they may. A queue full of them, for a peer that
    #: stands still, is no more than a parcel.
    _SMALL = 4 << 10
    #: Seconds between two looks at the connections.
    _LOOK = 0.2
    #: Looks in a row, at least, that find a connection of no use before it is made anew.
    _LOOKS = 4
    #: Milliseconds that small messages have for leaving when the transport is closed.
    _LAST_WORDS = 100

    def __init__(
        self,
        bind: Endpoint,
        *,
        advertise: str | None = None,
        keys: KeyPair | None = None,
        admitted: Iterable[bytes] = (),
        speaks_as: KeyPair | None = None,
        insecure: bool = False,
        largest: int = 64 << 20,
        link: Link | None = None,
        shared: bool = True,
    ) -> None:
        """Bind.

        Args:
            bind: the interface and port to listen on.
            advertise: the host by which others reach this one, if it is not the one it binds to.
            keys: this peer's identity; without it nothing is encrypted.
            admitted: the public keys that may connect.
            speaks_as: the keys by which others let this one in, if they do not know its own: an invitation's.
            insecure: let a bind to other interfaces than loopback do without keys.
            largest: frames beyond this number of bytes end the connection that they come over.
            link: how connections are kept up.
            shared: hand values to peers on this host, and take them, through shared memory where they are in it.
        """
        if keys is None and not insecure and not bind.is_loopback:
            raise SettingsError(
                f"{bind} can be reached from other machines, and there are no keys: make some with "
                "'gossip keygen DIR', or a secret_file for all: 'gossip keygen --shared FILE', or say insecure by name"
            )
        self._keys = keys
        self._speaks_as = speaks_as or keys
        #: Public keys that are good for looking only, and whether the last message came from one.
        self._lookers: set[str] = set()
        self._looks_only = False
        self._link = link or Link()
        #: Public keys, as the user id of a message spells them.
        self._admitted = {key.decode() for key in admitted}
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, self._SOCKETS)
        self._outlets: dict[int, _Outlet] = {}
        self._looked_at = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller = zmq.Poller()
        self._poller.register(self._wake_out, zmq.POLLIN)
        self._zap: zmq.Socket[bytes] | None = None
        self._views = Views(largest) if shared else None
        self._board: Board | None = None
        #: Bytes that went by reference instead of through sockets.
        self.bytes_shared = 0
        try:
            if keys is not None:
                self._zap = self._context.socket(zmq.REP)
                self._zap.setsockopt(zmq.LINGER, 0)
                self._zap.bind(_ZAP)
                self._poller.register(self._zap, zmq.POLLIN)
            self._inlet = self._context.socket(zmq.PULL)
            self._set_up(self._inlet)
            self._inlet.setsockopt(zmq.MAXMSGSIZE, max(largest, HEADER_LIMIT))
            self._inlet.setsockopt(zmq.IPV6, bind.is_ipv6)
            if keys is not None:
                self._inlet.setsockopt(zmq.CURVE_SERVER, 1)
                self._inlet.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
                self._inlet.setsockopt(zmq.ZAP_DOMAIN, b"gossip")
            self._inlet.bind(f"tcp://{_numeric(bind)}")
            self._poller.register(self._inlet, zmq.POLLIN)
        except (zmq.ZMQError, OSError, UnicodeError) as error:
            self.close()
            raise TransportError(f"cannot listen on {bind}: {error}") from error
        bound = Endpoint.parse(self._inlet.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))
        self._endpoint = Endpoint(advertise or bind.host, bound.port)

    @property
    def endpoint(self) -> Endpoint:
        """Where others reach this one; the port is the real one, also where any was asked for."""
        return self._endpoint

    @property
    def bytes_mapped(self) -> int:
        """How much of others' memory is mapped here."""
        return 0 if self._views is None else self._views.nbytes

    @property
    def looks_only(self) -> bool:
        """Whether the sender of the message that was received last may look, and no more."""
        return self._looks_only

    def admit(self, key: bytes, *, looks_only: bool = False) -> None:
        """Let the bearer of a public key in from now on, as a member or to look."""
        self._admitted.add(key.decode())
        (self._lookers.add if looks_only else self._lookers.discard)(key.decode())

    def revoke(self, key: bytes) -> None:
        """Let the bearer of a public key in no more, nor anything that it has sent and we have not read."""
        self._admitted.discard(key.decode())

    def connect(self, rank: int, endpoint: Endpoint, key: bytes | None = None) -> None:
        """Make a rank reachable, or reachable somewhere else; with keys, only who has the key can be it."""
        if (key is None) != (self._keys is None):
            raise SettingsError(f"rank {rank}: either all peers have keys or none")
        if self._context.closed:
            raise TransportError(f"rank {rank} cannot be connected to: this transport is closed")
        parcels = self._connected(rank, endpoint, key)
        try:
            # Otherwise pyzmq would copy small payloads, and nobody could tell when they have left.
            parcels.copy_threshold = 0
            words = self._connected(rank, endpoint, key)
            words.setsockopt(zmq.LINGER, self._LAST_WORDS)
        except TransportError:
            parcels.close(linger=0)
            raise
        self.disconnect(rank)  # only now: whoever cannot be connected to anew keeps the connection that there is
        self._outlets[rank] = _Outlet(parcels, words, endpoint, key, time.monotonic(), self._sharing(endpoint))

    def reconnect(self, rank: int) -> None:
        """Connect anew to where a rank is; what was in flight there may be lost. Unknown ranks stay unknown."""
        outlet = self._outlets.get(rank)
        if outlet is not None:
            self.connect(rank, outlet.endpoint, outlet.key)

    def disconnect(self, rank: int) -> None:
        """Forget a rank and all that was queued for it."""
        outlet = self._outlets.pop(rank, None)
        if outlet is not None:
            outlet.parcels.close(linger=0)
            outlet.words.close(linger=0)

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        """Send without blocking or copying; all that is ``ordered`` goes over the socket for parcels.

        Return False if the rank is unknown, not connected, its queue full, or the payload in flight there already.
        """
        outlet = self._outlets.get(rank)
        if outlet is None:
            return False
        if outlet.sharing is not None and self._send_reference(outlet, outlet.sharing, frames, ordered):
            return True
        try:
            if sum(map(len, frames)) <= self._SMALL:
                (outlet.parcels if ordered else outlet.words).send_multipart(frames, flags=zmq.NOBLOCK)
                return True
            if outlet.holds(frames[-1]):
                return False
            tracker = outlet.parcels.send_multipart(frames, flags=zmq.NOBLOCK, copy=False, track=True)
        except zmq.Again:
            return False
        if tracker is not None:
            outlet.keep(frames[-1], tracker)
        return True

    def receive(self) -> Sequence[Buffer] | None:
        """Return a message that has arrived from somebody admitted, uncopied, or None."""
        while not self._context.closed:
            try:
                frames = self._inlet.recv_multipart(flags=zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            user = None if self._keys is None else frames[0].get("User-Id")
            if user is None or user in self._admitted:
                self._looks_only = user in self._lookers
                buffers = [frame.buffer for frame in frames]
                if len(buffers) > 1 or not buffers[0].nbytes or buffers[0][0] != _NOTE:
                    return buffers
                message = self._looked_up(buffers[0])
                if message is not None:
                    return message
        return None

    def wait(self, timeout: float | None) -> None:
        """Return when a message is there, `wake` was called, or ``timeout`` seconds have passed."""
        if self._context.closed:
            raise TransportError(f"the transport at {self._endpoint} is closed")
        self._look_after_outlets()
        ready = dict(self._poller.poll(None if timeout is None else _milliseconds(timeout)))
        if self._wake_out.fileno() in ready:
            self._wake_out.recv(4096)
        if self._zap is not None and self._zap in ready:
            self._authenticate(self._zap)

    def _look_after_outlets(self) -> None:
        """Connect anew to whom nothing could be written for long: after an answer that was no ZMTP, ZeroMQ gives up."""
        now = time.monotonic()
        if now - self._looked_at < self._LOOK:
            return
        self._looked_at = now
        for rank, outlet in list(self._outlets.items()):
            # A peer that has not looked for long knows little: the queue may be full, and the connection well all the
            # while.
            passed = min(now - outlet.looked_at, self._link.handshake / self._LOOKS)
            outlet.stuck = 0.0 if outlet.writable() else outlet.stuck + passed
            outlet.looked_at = now
            if outlet.stuck > self._link.handshake:
                with suppress(TransportError):  # such as too few descriptors: the next look tries again
                    self.reconnect(rank)

    def wake(self) -> None:
        """End a `wait` from another thread."""
        try:
            self._wake_in.send(b"!")
        except (BlockingIOError, OSError):
            return  # it is awake, or closed

    def close(self) -> None:
        """Give everything back; calling it again does nothing. Last words have a moment to leave, parcels none."""
        self._context.destroy()
        self._outlets.clear()
        self._wake_in.close()
        self._wake_out.close()
        if self._views is not None:
            self._views.close()
        if self._board is not None:
            self._board.close()

    def _set_up(self, one: zmq.Socket[bytes]) -> None:
        one.setsockopt(zmq.LINGER, 0)
        one.setsockopt(zmq.SNDHWM, self._SEND_QUEUE)
        one.setsockopt(zmq.RCVHWM, self._RECEIVE_QUEUE)
        # A peer that is refused at the handshake hears nothing more, gives up after this, and comes again.
        one.setsockopt(zmq.HANDSHAKE_IVL, _milliseconds(self._link.handshake))
        # By TCP, not by ZeroMQ's heartbeats: 4.3.5 ends the process if a heartbeat waits in a full queue behind
        # messages, the connection fails, and then the queue is read. It answers, over the connection that has failed.
        keepalive = max(1, round(self._link.keepalive))
        one.setsockopt(zmq.TCP_KEEPALIVE, 1)
        one.setsockopt(zmq.TCP_KEEPALIVE_IDLE, keepalive)
        one.setsockopt(zmq.TCP_KEEPALIVE_INTVL, keepalive)
        one.setsockopt(zmq.TCP_KEEPALIVE_CNT, max(1, round(self._link.keepalive_timeout / keepalive)))
        one.setsockopt(zmq.TCP_MAXRT, _milliseconds(self._link.keepalive_timeout))

    def _connected(self, rank: int, endpoint: Endpoint, key: bytes | None) -> zmq.Socket[bytes]:
        try:
            outlet = self._context.socket(zmq.PUSH)
        except zmq.ZMQError as error:  # too many sockets, or too few descriptors
            raise TransportError(f"cannot connect to rank {rank} at {endpoint}: {error}") from error
        self._set_up(outlet)
        outlet.setsockopt(zmq.IPV6, True)
        outlet.setsockopt(zmq.IMMEDIATE, 1)
        outlet.setsockopt(zmq.RECONNECT_IVL, _milliseconds(self._link.reconnect_first))
        outlet.setsockopt(zmq.RECONNECT_IVL_MAX, _milliseconds(self._link.reconnect_ceiling))
        if self._speaks_as is not None and key is not None:
            outlet.setsockopt(zmq.CURVE_SERVERKEY, key)
            outlet.setsockopt(zmq.CURVE_PUBLICKEY, self._speaks_as.public)
            outlet.setsockopt(zmq.CURVE_SECRETKEY, self._speaks_as.secret)
        try:
            outlet.connect(f"tcp://{endpoint}")
        except zmq.ZMQError as error:
            outlet.close(linger=0)
            raise TransportError(f"cannot connect to rank {rank} at {endpoint}: {error}") from error
        return outlet

    def _sharing(self, endpoint: Endpoint) -> Sharing | None:
        if self._views is None or not is_near(self._endpoint, endpoint):
            return None
        self._views.sweep()
        try:
            self._board = self._board or Board(BOARD)
        except OSError:
            return None
        return Sharing(self._board)

    def _send_reference(self, outlet: _Outlet, sharing: Sharing, frames: Sequence[Buffer], ordered: bool) -> bool:
        """Send where the values are, if that is possible; and ask whether it is, if that is not known."""
        try:
            question = sharing.question()
            if question is not None:
                outlet.words.send(_QUESTION + question, flags=zmq.NOBLOCK)
                sharing.asked()
            if len(frames) != 2 or len(frames[1]) < SMALLEST:
                return False
            reference = sharing.reference(_identity(frames[1]), len(frames[1]))
            if reference is None:
                return False
            way = outlet.parcels if ordered else outlet.words
            way.send(b"".join((_REFERENCE, reference, frames[0])), flags=zmq.NOBLOCK)
        except zmq.Again:
            return False
        self.bytes_shared += len(frames[1])
        return True

    def _looked_up(self, note: memoryview) -> Sequence[Buffer] | None:
        """Return the message that a reference stands for; None if it stands for none, or the note is another."""
        kind, rest = note[: len(_REFERENCE)], note[len(_REFERENCE) :]
        reference = Reference.unpack(rest[:REFERENCE_BYTES])
        if self._views is None or reference is None:
            return None
        if kind == _REFERENCE:
            values = self._views.open(reference)
            return None if values is None else [rest[REFERENCE_BYTES:], values]
        if kind == _QUESTION:
            self._views.answer(reference)
        return None

    def _authenticate(self, zap: zmq.Socket[bytes]) -> None:
        """Answer a handshake: ZeroMQ's RFC 27. The user id that goes with each message is the key."""
        version, request, _, _, _, mechanism, *credentials = zap.recv_multipart()
        key = zmq.utils.z85.encode(credentials[0]) if mechanism == b"CURVE" and credentials else b""
        if key.decode() in self._admitted:
            zap.send_multipart([version, request, b"200", b"OK", key, b""])
        else:
            # 300, not 400: a peer that is refused may come again, for it may have been admitted by then.
            zap.send_multipart([version, request, b"300", b"not admitted", b"", b""])


def _identity(payload: Buffer) -> int:
    """Return what tells memory apart while it is in use: where it is, whichever view of it is at hand."""
    return int(np.frombuffer(payload, np.uint8).ctypes.data)


def _milliseconds(seconds: float) -> int:
    return max(0, math.ceil(seconds * 1000))


def _numeric(bind: Endpoint) -> Endpoint:
    """Return what to bind to: ZeroMQ takes names of interfaces there, so names of hosts are looked up first."""
    if bind.is_ipv6 or bind.host.replace(".", "").isdigit():
        return bind
    found = socket.getaddrinfo(bind.host, None, socket.AF_INET, socket.SOCK_STREAM)
    return Endpoint(str(found[0][4][0]), bind.port)
