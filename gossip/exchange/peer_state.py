"""What all parts of a core have in common: who the peer is, what it holds, and whom it believes to be there."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossip.books.mass import Mass
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.view.view import View
from gossip.wire.messages import Address

__all__ = ["PeerState"]


@dataclass
class PeerState:
    """One peer, in its present life."""

    me: Address
    mass: Mass
    view: View
    policy: Policy
    settings: Settings
    #: The next turn of each shard.
    turns: list[int]
    #: The latest turn of each shard that anybody is known to have pushed; stays -1 where turns do not matter.
    furthest: list[int] = field(init=False)
    #: What the average peer holds of a shard, according to what is known of who left and who joined.
    fair: float = 1.0
    #: Whether steps only mix and measure how far others are.
    measuring: bool = False
    #: While measuring: how far the last mass that was merged into each shard lay from our own; see `distance`.
    gaps: dict[int, float] = field(default_factory=dict)
    #: The shards that were NaN or infinity when last looked at: what is merged into them is lost.
    diverged: set[int] = field(default_factory=set)
    #: Whether this peer leaves, and takes nothing in any more.
    leaving: bool = False

    def __post_init__(self) -> None:
        self.furthest = [-1] * self.mass.layout.shards

    @property
    def floor(self) -> float:
        """The weight of a shard that no push goes below."""
        return self.settings.weight_floor * self.fair

    def edges(self, turn: int) -> list[tuple[Address, float]]:
        """Return to whom goes which fraction at a turn, by the schedule and the policy."""
        edges = self.view.out_edges(turn)
        if self.policy.fraction is None or self.measuring:  # a peer that wants to agree must not stray
            return edges
        return [(address, self.policy.fraction) for address, _ in edges]

    def deals_with(self, address: Address) -> bool:
        """Whether the address is a member in this very incarnation, and not declared dead."""
        return self.view.incarnation(address.rank) == address.incarnation and not self.view.fenced(address)
