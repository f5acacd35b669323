"""Faults that have to happen inside of a peer, in the user's code or in its gossip thread: ``WHAT:RANK@STEP``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import peers
from gossip import events

__all__ = ["Sabotage"]

_HOUR = 3600.0


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
            "diverge": self._diverge,
            "clock-back": lambda: _set_clock(-_HOUR),
            "clock-on": lambda: _set_clock(_HOUR),
        }
        self._coming = [(step, deeds[what]) for what, rank, step in self._said if rank == peer.rank]
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

    def _diverge(self) -> None:
        """Fill the model with NaN, as a training that diverged."""
        assert self._peer is not None
        assert self._peer._replica is not None
        for values in self._peer._replica.values():
            values.fill_(torch.nan)
        self._peer._replica.restore([torch.full_like(values, torch.nan) for values in self._peer._replica.values()])


def _parse(text: str) -> tuple[str, int, int]:
    what, _, when = text.partition(":")
    rank, _, step = when.partition("@")
    return what, int(rank), int(step)


def _hang() -> None:
    threading.Event().wait()


def _set_clock(seconds: float) -> None:
    """Let this process's clock on the wall jump."""
    real = time.time
    time.time = lambda: real() + seconds
