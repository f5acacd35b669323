"""The files that CURVE keys (`gossip.keys`) are kept in: ``public.key`` and ``secret.key`` in one directory.

The secret half is as good as the peer itself: it is kept in a file that only its owner can read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gossip.errors import SettingsError
from gossip.keys import KeyPair

__all__ = ["read_keys", "write_keys"]

_PUBLIC, _SECRET = "public.key", "secret.key"


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
        raise SettingsError(f"directory={directory}: cannot write keys there: {error.strerror or error}") from error
    return paths


def read_keys(directory: Path) -> KeyPair:
    """Read the key pair in a directory; a secret that others can read is refused."""
    try:
        mode = (directory / _SECRET).stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{directory / _SECRET} can be read by others: chmod 600 it, or make new keys")
        return KeyPair((directory / _PUBLIC).read_bytes().strip(), (directory / _SECRET).read_bytes().strip())
    except OSError as error:
        raise SettingsError(
            f"directory={directory}: no keys there ({error.strerror or error}); gossip keygen {directory} makes some"
        ) from error
