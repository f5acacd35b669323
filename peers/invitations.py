"""An invitation to a running swarm: where some of its peers are, and a key pair that they admit.

Each run with a directory has two in it, readable by their owner alone: ``join.json`` permits joining and watching,
``watch.json`` only watching. In a swarm without keys they contain only the places of the peers. `gossip launch` writes
them, or rank 0 where there is no launcher.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gossip.keys import KeyPair

__all__ = ["JOIN", "WATCH", "Invitation", "write_invitation", "write_invitations"]

JOIN, WATCH = "join.json", "watch.json"


@dataclass(frozen=True)
class Invitation:
    """The peers to ask, and the key pair to ask with."""

    #: The public key of each peer, by host:port; empty where there are none.
    members: Mapping[str, str]
    keys: KeyPair | None = field(default=None, repr=False)


def write_invitation(path: Path, invitation: Invitation) -> None:
    """Write it so that only its owner can read it."""
    keys = invitation.keys
    halves = None if keys is None else [keys.public.decode(), keys.secret.decode()]
    text = json.dumps({"members": dict(invitation.members), "keys": halves}, indent=1)
    # Made anew with its mode: there is no moment at which others could read the secret.
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")


def write_invitations(
    directory: Path, members: Mapping[str, str], keys: Mapping[str, KeyPair | None], warn: Callable[[str], None]
) -> None:
    """Write all invitations of a run into its directory; an error is a warning.

    Args:
        directory: of the run.
        members: the public key of each peer, by host:port.
        keys: the key pair of each invitation, by the name of its file.
        warn: is called with a sentence that the user should read.
    """
    for name, pair in keys.items():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_invitation(directory / name, Invitation(members, pair))
        except OSError as error:
            warn(f"cannot write {name}, which joining or watching the run needs: {error}")
