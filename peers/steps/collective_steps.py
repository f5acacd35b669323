"""What the steps of `allreduce` and `parameter-server` have in common: all replicas follow one sequence of values."""

from __future__ import annotations

from abc import abstractmethod

from peers.session.agreement_errors import AgreementError
from peers.session.consensus import Terms
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

    def compare(self) -> None:
        """Make this replica equal to the others, all of which have caught up.

        Raises:
            AgreementError: the replicas could not be made equal.
        """

    def consensus(self, terms: Terms) -> float:
        """Wait for all peers and become the same; return the disagreement that is left: none."""
        self.pause()
        try:
            self._session.meet(terms, self.catch_up, self.compare)
        except AgreementError:
            self.pause()  # those who go on must not wait for this peer
            raise
        terms.on_agreed()
        return 0.0
