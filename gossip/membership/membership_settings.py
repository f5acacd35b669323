"""The settings of membership: their meaning, and the cost of larger and smaller values.

A death is better declared late than falsely. Peers stop waiting for a late member long before it is suspect, let alone
dead (`gossip.exchange.patience`), so a late verdict only costs the memory of a few unanswered parcels. A false verdict
costs a peer all its mass. So intervals are 1.5 times as long as in other SWIM implementations, and leave room for a
loaded machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from gossip.errors import SettingsError
from topologies.naming import Catalog

__all__ = ["MembershipSettings", "membership_preset"]


@dataclass(frozen=True)
class MembershipSettings:
    """How a peer watches the others. The defaults suit a local network. Times are in seconds; n counts the living."""

    #: A peer probes one member per interval, so each member once in n intervals. A shorter interval finds deaths sooner
    #: and costs more in proportion: a probe and its answer per interval and peer, for any n. A suspicion lasts a
    #: multiple of it, so the interval also bounds pauses: no death is declared within 5 intervals of the last sign of
    #: life.
    interval: float = 1.5
    #: The bounds of the time that a peer waits for an answer before it asks helpers and pings again. The time is the
    #: mean + 4 deviations of the round trips. The floor allows for a receiver that waits for a CPU core. The ceiling
    #: leaves time in the interval for the helpers to ping and to answer.
    timeout_floor: float = 0.2
    timeout_ceiling: float = 0.5
    #: The number of other members that are asked to probe a member that does not answer. More helpers tolerate more
    #: loss and more broken paths. Each costs 4 messages, but only if an answer is missing.
    helpers: int = 3
    #: The largest factor by which an overloaded peer stretches its timeouts and intervals. A larger factor protects
    #: others longer from an overloaded peer's accusations; such a peer then notices a real death later.
    health_limit: int = 8
    #: A suspect has suspicion * max(1, log10 n) * interval to refute, if many confirm the suspicion: news take a time
    #: in proportion to log n. It has suspicion_spread times as long if no other peer confirms it: then the accuser may
    #: be at fault.
    suspicion: float = 4.0
    suspicion_spread: float = 6.0
    #: The number of independent confirmations that reduce a suspicion to its least time.
    confirmations: int = 3
    #: While there are news, they go to `fanout` random members per interval. All peers know after about
    #: log n / log(1 + fanout) intervals. Without news nothing is sent.
    spread_interval: float = 0.2
    fanout: int = 3
    #: Each peer passes each update on repeats * log2(n + 1) times. With fewer repeats some peer may miss it until the
    #: next sync.
    repeats: float = 3.0
    #: The most bytes of updates in one message. 2 KiB hold about 20 updates; with less, many changes spread slower.
    piggyback_bytes: int = 2048
    #: The interval at which a peer compares tables with a random member. For large n it is longer:
    #: sync_interval * (1 + log2(n / 32)). A comparison costs half a kilobyte if the tables are equal. It finds missed
    #: news; a shorter interval finds them sooner.
    sync_interval: float = 30.0
    #: The interval at which a peer sends a message to a dead member, so that the parts of a swarm that was cut find
    #: each other again. A shorter interval finds them sooner, and costs one message per peer and interval while any
    #: member is dead.
    revisit_interval: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise SettingsError(f"{field.name} must be above 0, not {getattr(self, field.name)}")
        if not self.timeout_floor <= self.timeout_ceiling or self.timeout_ceiling * 3 > self.interval * (1 + 1e-9):
            raise SettingsError(
                "timeout_floor <= timeout_ceiling <= interval / 3 must hold, so that a probe, a probe by helpers and "
                f"their answer fit into the interval: not {self.timeout_floor}, {self.timeout_ceiling}, {self.interval}"
            )
        if not 256 <= self.piggyback_bytes <= 8192:
            raise SettingsError(f"piggyback_bytes must be from 256 to 8192, not {self.piggyback_bytes}")
        if not self.suspicion_spread >= 1:
            raise SettingsError(f"suspicion_spread must be 1 or more, not {self.suspicion_spread}")

    def suspicion_least(self, n: int) -> float:
        """Return the duration of a suspicion that many peers have confirmed."""
        return self.suspicion * max(1.0, math.log10(max(1, n))) * self.interval

    def repeats_for(self, n: int) -> int:
        """Return the number of times that an update is passed on."""
        return math.ceil(self.repeats * math.log2(n + 1))

    def sync_for(self, n: int) -> float:
        """Return the interval between two comparisons of tables: it grows with log n."""
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
