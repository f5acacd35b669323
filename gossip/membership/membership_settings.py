"""The settings of membership: what each means, what follows from it, and what more or less of it costs.

Deaths are told late rather than falsely. A member that is late is not waited for long before it is suspect, let alone
dead (`gossip.exchange.patience`), so a late verdict costs the memory of a few unanswered parcels; a false one costs a
peer all its mass. Hence intervals half again as long as other SWIM implementations have, and room for a machine that is
loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from gossip.errors import SettingsError
from topologies.naming import Catalog

__all__ = ["MembershipSettings", "membership_preset"]


@dataclass(frozen=True)
class MembershipSettings:
    """How a peer watches the others. The defaults suit a local network; times are in seconds, n counts the living."""

    #: One member is probed per interval, each once in n of them. Shorter finds deaths sooner and costs in proportion:
    #: a probe and its answer per interval and peer, whatever n is. Suspicion lasts a multiple of it, so it also is what
    #: a pause may last: no death is declared within 5 intervals of the last sign of life.
    interval: float = 1.5
    #: How long an answer is waited for before others are asked to try and we try again: mean + 4 deviations of the
    #: round trips, within these. The floor stands for a receiver that waits for a core; at the ceiling there is
    #: still time in the interval for the others to try and to answer.
    timeout_floor: float = 0.2
    timeout_ceiling: float = 0.5
    #: How many others are asked to probe a member that does not answer us. More tolerates more loss and more broken
    #: paths, and costs 4 messages each, but only where an answer is missing.
    helpers: int = 3
    #: A peer that finds itself unwell stretches its timeouts and intervals, at most by this factor. More protects
    #: others from an overloaded peer's accusations longer; it is then the slower to notice a real death.
    health_limit: int = 8
    #: A suspect has suspicion * max(1, log10 n) * interval to refute, if many confirm the suspicion, since rumours take
    #: time in proportion to log n; and suspicion_spread times as long if nobody does: then the fault may be ours.
    suspicion: float = 4.0
    suspicion_spread: float = 6.0
    #: Independent confirmations that bring a suspicion down to its least time.
    confirmations: int = 3
    #: While there is something to tell, `fanout` random members are told every so often. All know after about
    #: log n / log(1 + fanout) rounds. Nothing is sent while there is nothing to tell.
    spread_interval: float = 0.2
    fanout: int = 3
    #: Each update is passed on repeats * log2(n + 1) times by each peer. Less may miss somebody until the next sync.
    repeats: float = 3.0
    #: The most bytes of updates in one message. About 20 updates in 2 KiB; less spreads many changes slower.
    piggyback_bytes: int = 2048
    #: Tables are compared with a random member so often, n / 32 doublings apart: sync_interval * (1 + log2(n / 32)).
    #: Half a kilobyte if they are equal. It finds what rumours missed; shorter finds it sooner.
    sync_interval: float = 30.0
    #: And one member that is believed dead is greeted so often, so that the parts of a swarm that was cut find each
    #: other again. Shorter: sooner, with one message of each peer per interval as long as anybody is dead.
    revisit_interval: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise SettingsError(f"{field.name} is above 0: {getattr(self, field.name)}")
        if not self.timeout_floor <= self.timeout_ceiling or self.timeout_ceiling * 3 > self.interval * (1 + 1e-9):
            raise SettingsError(
                "a probe, a probe by others and their answer fit into the interval: timeout_floor <= timeout_ceiling "
                f"<= interval / 3, not {self.timeout_floor}, {self.timeout_ceiling}, {self.interval}"
            )
        if not 256 <= self.piggyback_bytes <= 8192:
            raise SettingsError(f"piggyback_bytes is from 256 to 8192: {self.piggyback_bytes}")
        if not self.suspicion_spread >= 1:
            raise SettingsError(f"suspicion_spread is 1 or more: {self.suspicion_spread}")

    def suspicion_least(self, n: int) -> float:
        """Return how long a suspicion lasts that many share."""
        return self.suspicion * max(1.0, math.log10(max(1, n))) * self.interval

    def repeats_for(self, n: int) -> int:
        """Return how often an update is passed on."""
        return math.ceil(self.repeats * math.log2(n + 1))

    def sync_for(self, n: int) -> float:
        """Return how long between two comparisons of tables: the larger the swarm the rarer, as log n."""
        return self.sync_interval * (1 + max(0.0, math.log2(max(1, n) / 32)))


_PRESETS: Catalog[MembershipSettings] = Catalog(
    "preset",
    SettingsError,
    {
        # Peers of one machine share its cores, so what takes long is no round trip but a process that waits for a core:
        # no shorter intervals than between machines, only shorter timeouts.
        "loopback": MembershipSettings(timeout_floor=0.1, sync_interval=15.0, revisit_interval=5.0),
        "lan": MembershipSettings(),
        "wan": MembershipSettings(
            interval=5.0,
            timeout_floor=0.5,
            timeout_ceiling=1.6,
            spread_interval=0.5,
            sync_interval=60.0,
            revisit_interval=30.0,
        ),
    },
)


def membership_preset(name: str) -> MembershipSettings:
    """Return the settings for a kind of network: loopback, lan or wan."""
    return _PRESETS[name]
