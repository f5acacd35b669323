"""Reads an invitation to a running swarm: the one that the user was given, or the one in a run's directory."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from gossip.endpoint import Endpoint
from gossip.keys import KeyPair, valid_key
from launch.user_errors import CommandError
from peers.invitations import JOIN, WATCH, Invitation, write_invitation

__all__ = ["JOIN", "WATCH", "Invitation", "found", "read_invitation", "write_invitation"]


def read_invitation(path: Path) -> Invitation:
    """Read what `write_invitation` wrote."""
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CommandError(f"{path} contains a key, and other users can read it: run chmod 600 on it")
        told: Any = json.loads(path.read_text("utf-8"))
        members = {str(Endpoint.parse(place)): str(key) for place, key in told["members"].items()}
        if not members or not all(valid_key(key.encode()) for key in members.values() if key):
            raise ValueError("it names no peers, or a peer with an invalid key")
        halves = told["keys"]
        keys = None if halves is None else KeyPair(*(half.encode() for half in halves))
    except FileNotFoundError as error:
        raise CommandError(
            f"cannot read {path}: the file does not exist. A run has it once all its peers have started: if the run is "
            "just starting, try again; otherwise check that this is the directory of a run"
        ) from error
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} is not an invitation to a swarm: {error}") from error
    return Invitation(members, keys)


def found(where: str, name: str, file: Path | None = None) -> Invitation:
    """Return the invitation to the swarm that the user names.

    Args:
        where: host:port of a peer, or the directory of a run.
        name: `JOIN` or `WATCH`: which of the two in a run's directory.
        file: an invitation that the user was given.
    """
    if Path(where).is_dir():
        return read_invitation(file or Path(where) / name)
    if ":" not in where:
        raise CommandError(f"{where} is neither a directory nor host:port: name the directory of a run, or a peer")
    endpoint = str(Endpoint.parse(where))
    if file is None:
        return Invitation({endpoint: ""})
    invitation = read_invitation(file)
    if endpoint not in invitation.members:
        raise CommandError(f"{file} does not list {endpoint}; it lists {', '.join(sorted(invitation.members))}")
    return Invitation({endpoint: invitation.members[endpoint]}, invitation.keys)
