"""From which of its addresses a machine reaches another."""

from __future__ import annotations

import socket

__all__ = ["route_to"]


def route_to(host: str) -> str:
    """Return the address of this machine that packets to the host leave from; nothing is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
