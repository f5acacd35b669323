"""Faults that have to happen inside of a peer, in the user's code or in its gossip thread: ``WHAT:RANK@STEP``."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import torch

import peers
from gossip import events
from gossip.net.zmq_transport import ZmqTransport

__all__ = ["Sabotage"]

_HOUR = 3600.0
#: Messages that are kept.
_RECORDED = 400


class Sabotage:
    """What is to happen in this process, once it is known which rank it is."""

    def __init__(self, said: Sequence[str]) -> None:
        self._said = [_parse(text) for text in said]
        self._coming: list[tuple[int, Callable[[], None]]] = []
        self._gossip_hangs = threading.Event()
        self._peer: peers.Peer | None = None

    def attend(self, peer: peers.Peer) -> None:
        """Be there at every step of this peer, if anything is to happen to it: the user's code logs once in each."""
        self._peer = peer
        if peer._setup.incarnation:
            return
        deeds: dict[str, Callable[[], None]] = {
            "trainer-hangs": _hang,
            "gossip-hangs": self._gossip_hangs.set,
            "diverge": lambda: self._overwrite(math.nan),
            "huge": lambda: self._overwrite(1e30),
            "revoke": self._revoke,
            "clock-back": lambda: _set_clock(-_HOUR),
            "clock-on": lambda: _set_clock(_HOUR),
        }
        if ("record", peer.rank) in [one[:2] for one in self._said]:
            _record(peer)
        self._coming = [(step, deeds[what]) for what, rank, step in self._said if rank == peer.rank and what in deeds]
        if self._coming:
            log = peer.log

            def logs(**values: Any) -> None:
                for one in [one for one in self._coming if one[0] <= peer.step]:
                    self._coming.remove(one)
                    one[1]()
                log(**values)

            peer.log = logs  # type: ignore[method-assign]

    def saw(self, _effect: events.Effect) -> None:
        """Hang, in the gossip thread, if that is what is to happen: as on a disk that never answers."""
        if self._gossip_hangs.is_set():
            _hang()

    def _overwrite(self, value: float) -> None:
        """Fill the model with a value, as a training that went wrong."""
        assert self._peer is not None
        replica = self._peer._attached().replica
        replica.restore([torch.full_like(values, value) for values in replica.values()])

    def _revoke(self) -> None:
        """Let nobody in any more by the invitation."""
        assert self._peer is not None
        transport = self._peer._transport
        assert isinstance(transport, ZmqTransport)
        transport.revoke(self._peer._setup.join_key.encode())


def _parse(text: str) -> tuple[str, int, int]:
    what, _, when = text.partition(":")
    rank, _, step = when.partition("@")
    return what, int(rank), int(step)


def _record(peer: peers.Peer) -> None:
    """Keep what this peer receives at first, as somebody on the wire could."""
    directory = peer._records.directory
    assert directory is not None
    transport = peer._transport
    receive = transport.receive
    left = _RECORDED
    file = (directory / "recording").open("wb", buffering=0)

    def received() -> Any:
        nonlocal left
        frames = receive()
        if frames is not None and left:
            left -= 1
            file.write(msgpack.packb([bytes(frame) for frame in frames]))
        return frames

    transport.receive = received  # type: ignore[method-assign]


def _hang() -> None:
    threading.Event().wait()


def _set_clock(seconds: float) -> None:
    """Let this process's clock on the wall jump."""
    real = time.time
    time.time = lambda: real() + seconds
