"""The address of a peer: ``host:port`` in options and logs, ``tcp://host:port`` for ZeroMQ."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from gossip.errors import SettingsError

__all__ = ["Endpoint"]


class Endpoint(NamedTuple):
    """A host, as a name or an IPv4 or IPv6 address, and a TCP port; port 0 asks for any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read ``host:port``, ``1.2.3.4:port`` or ``[::1]:port``."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if bracketed else host
        if not colon or not bare or (":" in bare) != bracketed or not set(bare) <= _ALLOWED:
            raise SettingsError(f"{text!r} is not of the form host:port; write an IPv6 address in brackets: [::1]:5555")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise SettingsError(f"{text!r}: the port must be a number from 0 to 65535, not {port!r}")
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the endpoint."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an IPv6 address."""
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%")
