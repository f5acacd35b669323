"""How an agreement can fail, for the training script to see."""

from __future__ import annotations

from gossip.errors import GossipError

__all__ = ["AgreementError", "DivergenceError"]


class AgreementError(GossipError):
    """The peers did not come to an agreement, so their models differ."""

    def __init__(self, message: str, disagreement: float) -> None:
        super().__init__(message)
        #: How far this peer was from its neighbours; infinity if that was not measured.
        self.disagreement = disagreement


class DivergenceError(AgreementError):
    """The model of this peer holds NaN or infinity. The other peers agree without it."""
