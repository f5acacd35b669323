"""What the launcher knows of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launch.swarm.host import Host
from launch.swarm.launch_plan import PeerSeat

__all__ = ["LaunchedPeer"]


@dataclass
class LaunchedPeer:
    """What is known of one rank."""

    seat: PeerSeat
    host: Host
    lives: int = 0
    running: bool = False
    #: Whether this life has reported its status, so that it knows what to do when asked to stop...
    listens: bool = False
    #: ...and whether it has trained.
    trains: bool = False
    card: list[Any] | None = None
    #: Whether the card is of this life. One of a former life says where the rank listens, but not where its crew meets.
    fresh: bool = False
    step: int = 0
    kills: int = 0
    #: How it ended: None while it has not; 0 is well.
    code: int | None = None
    #: How it ended, in its own words.
    ending: str = ""
    #: Whether it had to stop because another process has its rank.
    rank_taken: bool = False
    #: Whether it ended by a fault that was asked for.
    on_purpose: bool = False
    keys: list[str] | None = None

    @property
    def joined(self) -> bool:
        """Whether the script has called `peers.join`."""
        return self.card is not None or self.listens
