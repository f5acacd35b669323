"""A peer belongs to the process that joined: a forked copy of it has no gossip thread, and would wait for ever."""

from __future__ import annotations

import os

from gossip.errors import GossipError

__all__ = ["ForkedError", "OwnProcess"]


class ForkedError(GossipError, RuntimeError):
    """A peer was used in a process that was forked from its own."""


class OwnProcess:
    """The process that a peer lives in."""

    def __init__(self, rank: int) -> None:
        self._rank, self._process = rank, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise an error in any other process."""
        if not self.is_here:
            raise ForkedError(
                f"rank {self._rank} is process {self._process}, and this is process {os.getpid()}, a fork of it: the "
                "peer and its optimizer work only where peers.join() was called. Train there, and let forked "
                "processes do nothing but load data"
            )
