"""What is left of a swarm on Ray: what each peer returned, or why it ended for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gossip.errors import GossipError

__all__ = ["LostPeer", "PeerResult", "SwarmError", "SwarmResult"]


@dataclass(frozen=True)
class PeerResult:
    """How one peer ended."""

    rank: int
    #: What the function returned; None if it did not.
    value: Any = None
    #: Why the peer ended for good: what its function raised, or how its actor died. None if it finished.
    error: BaseException | None = None
    #: How often it was started again.
    restarts: int = 0
    #: What it last reported of itself: step, samples, loss, weight and so on; empty if it never trained.
    metrics: Mapping[str, Any] = field(default_factory=dict)
    #: The id of Ray's node that its last actor ran on; empty if none ever did.
    node: str = ""

    @property
    def finished(self) -> bool:
        """Whether its function returned."""
        return self.error is None


@dataclass(frozen=True)
class SwarmResult:
    """How all peers ended."""

    #: By rank.
    peers: tuple[PeerResult, ...]
    #: The run directory, on each node; empty if the run has none.
    run_dir: str = ""

    @property
    def values(self) -> dict[int, Any]:
        """What the functions returned, by the ranks of those that did."""
        return {peer.rank: peer.value for peer in self.peers if peer.finished}

    @property
    def errors(self) -> dict[int, BaseException]:
        """Why peers ended for good, by their ranks."""
        return {peer.rank: peer.error for peer in self.peers if peer.error is not None}

    @property
    def metrics(self) -> Mapping[str, Any]:
        """What the lowest rank that finished last reported of itself."""
        return next((peer.metrics for peer in self.peers if peer.finished), {})


class LostPeer(GossipError):
    """A peer ended without a result."""


class SwarmError(GossipError):
    """No peer of a swarm finished. The error that it comes from is the first one that a peer ended with."""

    def __init__(self, message: str, result: SwarmResult) -> None:
        super().__init__(message)
        #: How each peer ended.
        self.result = result
