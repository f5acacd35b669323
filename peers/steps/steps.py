"""One interface for what a peer does around each step of the optimizer, whatever its algorithm exchanges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from peers.session.consensus import Terms

__all__ = ["Steps"]


class Steps(ABC):
    """The steps of one replica.

    For each: `begin`, then `evaluated` when the gradients are there, then the optimizer moves the values, then `end`
    and `exchange`.
    """

    #: Whether the peer's own values are the average of all replicas, so that there is no other average to look for.
    own_is_average: ClassVar[bool]

    @abstractmethod
    def begin(self) -> None:
        """Do what comes before the optimizer does anything: a closure has not computed its gradients yet."""

    def evaluated(self) -> None:  # noqa: B027 - most algorithms leave gradients as they are
        """Do what is done to gradients. An optimizer that calls its closure several times has several in a step."""

    @abstractmethod
    def end(self) -> None:
        """Do what comes after the optimizer has moved the values."""

    @abstractmethod
    def exchange(self) -> float:
        """Hand the finished step over; return the seconds for which this step waited for other peers."""

    def settle(self) -> None:  # noqa: B027 - most algorithms have nothing under way that a checkpoint lacks
        """Wait for what is under way and belongs into a checkpoint of this step."""

    @abstractmethod
    def pause(self) -> None:
        """Let no peer wait for this one until its next step: it has no more data for now."""

    @abstractmethod
    def consensus(self, terms: Terms) -> float:
        """Make all replicas the same without training; return the disagreement that is left.

        Raises:
            AgreementError: not all came, or they did not come near enough to each other.
        """

    @abstractmethod
    def close(self) -> None:
        """Stay for as long as other peers need this one. Called once, after the last step."""
