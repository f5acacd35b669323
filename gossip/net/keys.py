"""CURVE keys: who a peer is, provably, and the files that they are kept in.

A key pair is 32 + 32 bytes, written as 40 + 40 characters in ZeroMQ's Z85. The secret half is as good as the peer
itself: it is kept in a file that only its owner can read, never on a command line and never in a log.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from gossip.errors import SettingsError

__all__ = ["KeyPair", "read_keys", "valid_key", "write_keys"]

_Z85 = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
_PUBLIC, _SECRET = "public.key", "secret.key"


@dataclass(frozen=True)
class KeyPair:
    """A peer's identity. The secret half does not show in a repr, so that it cannot end up in a log."""

    public: bytes
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("public", "secret"):
            if not valid_key(getattr(self, name)):
                raise SettingsError(f"the {name} key is not a CURVE key: 40 characters of Z85")


def valid_key(key: bytes) -> bool:
    """Whether this is written like half of a CURVE key pair."""
    return len(key) == 40 and _Z85.issuperset(key)


def write_keys(directory: Path, pair: KeyPair) -> tuple[Path, Path]:
    """Write ``public.key`` and ``secret.key`` into a directory, the secret with mode 0600; never over another key."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        paths = directory / _PUBLIC, directory / _SECRET
        for path in paths:
            if path.exists():
                raise SettingsError(f"{path} exists; a key is not overwritten. Remove it, or choose another directory")
        for path, key, mode in zip(paths, (pair.public, pair.secret), (0o644, 0o600), strict=True):
            # Created with its mode: there is no moment at which others could read the secret.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(key + b"\n")
    except OSError as error:
        raise SettingsError(f"cannot write keys to {directory}: {error.strerror or error}") from error
    return paths


def read_keys(directory: Path) -> KeyPair:
    """Read the key pair in a directory; a secret that others can read is refused."""
    try:
        mode = (directory / _SECRET).stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{directory / _SECRET} can be read by others: chmod 600 it, or make new keys")
        return KeyPair((directory / _PUBLIC).read_bytes().strip(), (directory / _SECRET).read_bytes().strip())
    except OSError as error:
        raise SettingsError(f"no keys in {directory} ({error.strerror or error}): gossip keygen {directory}") from error
