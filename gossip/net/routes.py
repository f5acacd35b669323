"""From which of its addresses a machine reaches another."""

from __future__ import annotations

import socket

__all__ = ["look_up", "route_to"]


def look_up(host: str) -> None:
    """Raise an OSError if no address is known of a host."""
    try:
        socket.getaddrinfo(host, None)
    except UnicodeError as error:  # of a label that is too long
        raise OSError(str(error)) from error


def route_to(host: str) -> str:
    """Return the address of this machine that packets to the host leave from; nothing is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
