"""Settings for a kind of network, by name, so that users do not have to guess timeouts.

A peer learns round trips, lateness and step times from what arrives. A preset gives the values before anything has
arrived, and bounds for them. So a wrong preset costs time, never mass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gossip.errors import SettingsError
from gossip.link import Link
from gossip.membership.membership_settings import MembershipSettings, membership_preset
from gossip.settings import Settings
from gossip.values.layout import SHARD_BYTES
from topologies.naming import Catalog

__all__ = ["Preset", "names", "preset"]


@dataclass(frozen=True)
class Preset:
    """All settings that depend on the network."""

    #: The kind of network, in one line.
    summary: str
    settings: Settings
    link: Link
    membership: MembershipSettings
    #: The most bytes of a shard, and so of a parcel. There are two limits. A parcel of any size costs some tenths of a
    #: millisecond, so sending it should take several milliseconds. And it blocks its connection for bytes / bandwidth.
    #: 4 MiB take 34 ms at 1 Gbit/s, and 1 MiB takes 0.2 s at 50 Mbit/s.
    shard_bytes: int = SHARD_BYTES


_PRESETS: Catalog[Preset] = Catalog(
    "preset",
    SettingsError,
    {
        "loopback": Preset(
            "peers of one machine",
            # Round trips are far below a millisecond; what takes longer is a process that waits for a core.
            Settings(wait_ceiling=5.0, wait_floor=0.03, resend_first=0.25, resend_ceiling=1.0),
            Link(reconnect_first=0.01, reconnect_ceiling=0.5, keepalive=1.0, keepalive_timeout=5.0, handshake=3.0),
            membership_preset("loopback"),
            # No link is held: parcels go through shared memory, and fewer of them cost less.
            shard_bytes=16 << 20,
        ),
        "lan": Preset(
            "machines on a switch, 1 Gbit/s or more, round trips of a millisecond",
            Settings(),
            Link(),
            membership_preset("lan"),
        ),
        "wan": Preset(
            "machines far apart, or links of 100 Mbit/s and less, round trips up to a second",
            # The first resend waits for a round trip and a parcel's 0.2 s twice over; the floor for a round trip.
            Settings(wait_ceiling=30.0, wait_floor=0.5, resend_first=2.0, resend_ceiling=15.0),
            Link(reconnect_first=0.2, reconnect_ceiling=10.0, keepalive=5.0, keepalive_timeout=30.0, handshake=10.0),
            membership_preset("wan"),
            shard_bytes=1 << 20,
        ),
    },
)


def names() -> list[str]:
    """Return the names of all presets, from near to far."""
    return list(_PRESETS)


def preset(name: str, run: str = "run") -> Preset:
    """Return the preset ``name``, for the run of this name."""
    found = _PRESETS[name]
    return replace(found, settings=replace(found.settings, run=run))
