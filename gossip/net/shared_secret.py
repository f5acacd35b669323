"""Key pairs that follow from one secret, which all peers of a swarm have in a file.

Whoever has the file knows the public key of every rank. So nothing has to be exchanged beforehand, and a process that
is started again has the keys that the others admit. Whoever has the file can also pretend to be any of them.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from gossip.errors import SettingsError
from gossip.keys import KeyPair
from gossip.net.zmq_transport import keys_from

__all__ = ["keys_of", "read_secret", "write_secret"]

#: Fewer bytes could be guessed.
_LEAST = 32


def keys_of(secret: bytes, run: str, who: int | str) -> KeyPair:
    """Return the key pair of a rank, or of what else has a name, in one run."""
    return keys_from(hmac.digest(secret, f"gossip keys 1\n{run}\n{who}".encode(), "sha256"))


def write_secret(path: Path) -> None:
    """Write a new secret, readable by its owner alone; never over another file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Created with its mode: there is no moment at which others could read it.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_LEAST) + "\n")
    except FileExistsError:
        raise SettingsError(f"{path} exists; a secret is not overwritten. Remove it, or choose another name") from None
    except OSError as error:
        raise SettingsError(f"secret_file={path} cannot be written: {error.strerror or error}") from error


def read_secret(path: Path) -> bytes:
    """Read a secret; a file that strangers can read is refused.

    A group may read a file that belongs to somebody else, as in the volume of a container that does not run as root.
    """
    try:
        found = path.stat()
        strangers = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid == os.geteuid() else 0)
        if found.st_mode & strangers:
            raise SettingsError(f"secret_file={path} can be read by others: chmod 600 it, or make a new one")
        secret = path.read_bytes().strip()
    except OSError as error:
        raise SettingsError(
            f"secret_file={path} cannot be read: {error.strerror or error}; gossip keygen --shared FILE makes one, "
            "which every peer needs"
        ) from error
    if len(secret) < _LEAST:
        raise SettingsError(
            f"secret_file={path} has {len(secret)} characters, and {_LEAST} are the least: gossip keygen --shared FILE "
            "makes a secret"
        )
    return secret
