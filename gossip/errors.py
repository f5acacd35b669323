"""The errors of this package.

Exception
  GossipError               everything that this package raises
    SettingsError           a setting, algorithm or fault specification is not valid; also a ValueError
    Rejected                a frame must not reach the parameters; has the `Reason`
    InvariantError          the state of the core contradicts itself: a bug, with the history that led to it
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

__all__ = ["GossipError", "InvariantError", "Reason", "Rejected", "SettingsError"]


class GossipError(Exception):
    """The base of all errors of this package."""


class SettingsError(GossipError, ValueError):
    """A setting, an algorithm or a fault specification is not valid."""


class Reason(str, Enum):
    """The reason why a frame was rejected. The value is its name in logs, counters and reports."""

    MALFORMED = "malformed"  #: not a message of this protocol
    TRUNCATED = "truncated"  #: shorter than its header says
    OVERSIZED = "oversized"  #: longer than any frame that is accepted
    CHECKSUM = "checksum"  #: bytes were changed in flight
    VERSION = "version"  #: another version of the protocol
    RUN = "run"  #: a peer of another run
    SHAPE = "shape"  #: a shard or a length that the model does not have
    DTYPE = "dtype"  #: values of another type than the model's
    NOT_FINITE = "not-finite"  #: NaN or infinity among the values
    WEIGHT = "weight"  #: a weight that is not a positive number in the allowed range
    STALE = "stale"  #: from or for an incarnation that has ended
    WINDOW = "window"  #: a sequence number further ahead than any peer may be
    STRANGER = "stranger"  #: addressed to another peer, or from this peer's own rank


class Rejected(GossipError):
    """A frame must not reach the parameters."""

    def __init__(self, reason: Reason, detail: str, origin: int | None = None) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
        #: The rank of the sender, as the frame claims it; None if the frame could not be read that far.
        self.origin = origin


class InvariantError(GossipError):
    """The state of the core contradicts itself. Never the network's fault, always a bug."""

    def __init__(self, message: str, history: Sequence[str] = ()) -> None:
        recent = "".join(f"\n  {line}" for line in history)
        super().__init__(f"{message}\nrecent history:{recent}" if recent else message)
        self.message = message
        self.history = history
