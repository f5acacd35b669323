"""The machine of a plan: hosts and their slots, the speed of links, and how fast a process computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossip.costs.volumes import Volume
from gossip.errors import SettingsError
from gossip.grids import Grid

__all__ = ["LinkSpeed", "Machine", "Pace"]


@dataclass(frozen=True)
class LinkSpeed:
    """A link: bytes per second in each direction, and the seconds that a message of no bytes takes."""

    rate: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise SettingsError(f"rate of a link must be above 0 bytes per second, not {self.rate}")
        if not 0 <= self.latency < math.inf:
            raise SettingsError(f"latency of a link must be a number of seconds from 0 on, not {self.latency}")

    def seconds(self, volume: Volume) -> float:
        """Return the time that a volume takes."""
        return volume.messages * self.latency + volume.size / self.rate


@dataclass(frozen=True)
class Pace:
    """How long a process computes: forward and backward of the whole model take ``fixed + each * samples`` seconds."""

    each: float
    fixed: float = 0.0

    def __post_init__(self) -> None:
        for field in ("each", "fixed"):
            if not 0 <= getattr(self, field) < math.inf:
                raise SettingsError(f"{field} must be a number of seconds from 0 on, not {getattr(self, field)}")

    @classmethod
    def of_flops(cls, work: float, flops: float) -> Pace:
        """Return the pace for a model of this many multiply-adds per sample: a backward pass is two forward passes."""
        if not flops > 0:
            raise SettingsError(f"flops must be above 0 operations per second, not {flops}")
        return cls(3 * 2 * work / flops)


@dataclass(frozen=True)
class Machine:
    """Hosts with slots, and their links. A process takes a slot; slots are filled host by host, in the order of ranks.

    ``inside`` is what each process gets towards the others of its host. ``between`` is the link of a host, which all of
    its processes share.
    """

    hosts: tuple[int, ...]
    inside: LinkSpeed
    between: LinkSpeed

    def __post_init__(self) -> None:
        if not self.hosts or min(self.hosts) < 1:
            raise SettingsError(f"hosts must have one slot or more each, and not be empty: {list(self.hosts)}")

    @property
    def processes(self) -> int:
        """The number of all slots."""
        return sum(self.hosts)

    def host_of(self) -> list[int]:
        """Return the host of each rank."""
        return [host for host, slots in enumerate(self.hosts) for _ in range(slots)]

    def spanning(self, grid: Grid) -> int:
        """Return how many crews leave the host where most do: 0 if every crew is on one host."""
        hosts = self.host_of()
        leaving = [0] * len(self.hosts)
        for replica in range(grid.replicas):
            touched = {hosts[rank] for rank in grid.crew(replica)}
            if len(touched) > 1:
                for host in touched:
                    leaving[host] += 1
        return max(leaving)
