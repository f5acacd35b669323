"""What the steps of `allreduce` and `parameter-server` have in common: all replicas follow one sequence of values."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

from peers.session.session import Session
from peers.steps.steps import Steps

__all__ = ["CollectiveSteps"]


class CollectiveSteps(Steps):
    """The steps of a replica that pushes no mass and takes part in a collective exchange instead."""

    own_is_average = True

    def __init__(self, session: Session) -> None:
        self._session = session

    @abstractmethod
    def catch_up(self) -> None:
        """Take over the values of the others, at a moment at which nobody trains."""

    def consensus(
        self,
        tolerance: float,  # noqa: ARG002 - the replicas become equal
        timeout: float,
        on_agreed: Callable[[], None] | None = None,
    ) -> float:
        """Wait for all peers and become the same; return 0, or infinity if some peers did not come in time."""
        self.pause()
        agreed = self._session.meet(timeout, self.catch_up)
        if agreed and on_agreed is not None:
            on_agreed()
        return 0.0 if agreed else math.inf
