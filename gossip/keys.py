"""CURVE keys: the identity of a peer, which it can prove.

A key pair is 32 + 32 bytes, written as 40 + 40 characters in ZeroMQ's Z85. The secret half is as good as the peer
itself: it never appears on a command line and never in a log. `gossip.net.key_files` reads and writes the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossip.errors import SettingsError

__all__ = ["KeyPair", "valid_key"]

_Z85 = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")


@dataclass(frozen=True)
class KeyPair:
    """A peer's identity. The secret half does not show in a repr, so that it cannot end up in a log."""

    public: bytes
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("public", "secret"):
            if not valid_key(getattr(self, name)):
                raise SettingsError(
                    f"{name}: not a CURVE key, which has 40 characters of Z85; `gossip keygen` makes a pair"
                )


def valid_key(key: bytes) -> bool:
    """Whether this is written like half of a CURVE key pair."""
    return len(key) == 40 and _Z85.issuperset(key)
