"""Which of the peers this process is, where no launcher has said so: by its number in a job, or by its host's name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError

__all__ = ["INDEX", "rank_here"]

#: What Kubernetes calls the number of a pod in an Indexed Job.
INDEX = "JOB_COMPLETION_INDEX"


def rank_here(environment: Mapping[str, str], hosts: Sequence[str], name: str = "") -> int | None:
    """Return the rank of this process, or None if nothing says which it is.

    A pod of an Indexed Job has a number. A pod of a StatefulSet has a host name with a number, as any other machine has
    a name: its rank is the place of that name among the hosts, if it is there once.

    Args:
        environment: of this process.
        hosts: host:port of all peers, by rank.
        name: of this machine; empty: as the system has it.
    """
    if index := environment.get(INDEX):
        if not (index.isascii() and index.isdigit()):
            raise SettingsError(f"{INDEX}={index!r} in the environment must be a whole number of 0 or more")
        return int(index)
    name = (name or socket.gethostname()).lower()
    found = [rank for rank, host in enumerate(hosts) if _is(Endpoint.parse(host).host.lower(), name)]
    return found[0] if len(found) == 1 else None


def _is(host: str, name: str) -> bool:
    """Whether a host of the list is the machine of this name; one of both may have its domain."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        short = "." not in host or "." not in name
        return host.partition(".")[0] == name.partition(".")[0] if short else host == name
    return False
