"""What can go wrong in the protocol.

Exception
  GossipError               everything that this package raises
    SettingsError           a setting, algorithm or fault that cannot be meant; also a ValueError
    Rejected                a frame that must not reach the parameters; carries the `Reason`
    InvariantError          the core's own state is broken: a bug, with the history that led to it
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

__all__ = ["GossipError", "InvariantError", "Reason", "Rejected", "SettingsError"]


class GossipError(Exception):
    """The base of all errors of this package."""


class SettingsError(GossipError, ValueError):
    """A setting, an algorithm or a fault specification cannot be meant as it was given."""


class Reason(str, Enum):
    """Why a frame was rejected. The value is what logs, counters and reports call it."""

    MALFORMED = "malformed"  #: not a message of this protocol
    TRUNCATED = "truncated"  #: shorter than its header says
    OVERSIZED = "oversized"  #: longer than anything we would ever accept
    CHECKSUM = "checksum"  #: bytes changed on the way
    VERSION = "version"  #: another version of the protocol
    RUN = "run"  #: a peer of another run
    SHAPE = "shape"  #: a shard or a length that the model does not have
    DTYPE = "dtype"  #: values of another type than the model's
    NOT_FINITE = "not-finite"  #: NaN or infinity among the values
    WEIGHT = "weight"  #: a weight that is not a positive, sane number
    STALE = "stale"  #: from or for an incarnation that is over
    WINDOW = "window"  #: a sequence number further ahead than any peer may be
    STRANGER = "stranger"  #: addressed to somebody else, or from our own rank


class Rejected(GossipError):
    """A frame that must not reach the parameters."""

    def __init__(self, reason: Reason, detail: str, origin: int | None = None) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
        #: Who sent it, as far as the frame can be believed.
        self.origin = origin


class InvariantError(GossipError):
    """The state of the core contradicts itself. Never the network's fault, always a bug."""

    def __init__(self, message: str, history: Sequence[str] = ()) -> None:
        recent = "".join(f"\n  {line}" for line in history)
        super().__init__(f"{message}\nrecent history:{recent}" if recent else message)
        self.message = message
        self.history = history
