"""The steps of a replica that exchanges something else than mass: what all of them have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from peers.session.session import Engine

__all__ = ["Collective"]


class Collective(ABC):
    """As `peers.steps.gossip_steps.Stepping`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @abstractmethod
    def begin(self) -> None:
        """Do what is to be done before the optimizer moves the values."""

    @abstractmethod
    def end(self) -> None:
        """Do what is to be done after it."""

    @abstractmethod
    def exchange(self) -> float:
        """Hand the step over; return how many seconds it took to wait for others, in this step."""

    @abstractmethod
    def pause(self) -> None:
        """Let nobody wait for this peer until its next step: it has no more data for now."""

    @abstractmethod
    def catch_up(self) -> None:
        """Become what the others are, now that nobody trains."""

    def consensus(self, timeout: float, on_agreed: Callable[[], None] | None = None) -> float:
        """Wait for all and become the same; return 0, or infinity if not all came in time."""
        self.pause()
        agreed = self._engine.meet(timeout, self.catch_up)
        if agreed and on_agreed is not None:
            on_agreed()
        return 0.0 if agreed else math.inf

    @abstractmethod
    def close(self) -> None:
        """Stay as long as the others need this peer."""
