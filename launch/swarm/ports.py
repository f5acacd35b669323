"""A check before the launch that the ports of the peers are free."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from launch.swarm.launch_plan import PeerSeat
from launch.user_errors import CommandError

__all__ = ["check_ports"]


def check_ports(host: str, first: int, seats: Iterable[PeerSeat]) -> None:
    """Raise an error that names a port which the peers of this machine cannot have; 0 is any free one."""
    for seat in seats:
        port = first + seat.local_rank if first else 0
        if port > 65535:
            raise CommandError(
                f"--metrics-port {first}: rank {seat.rank} would get port {port}, above 65535; choose a lower port"
            )
        if seat.host.is_local:
            try:
                with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                    pass
            except OSError as error:
                raise CommandError(
                    f"--metrics-port {first}: rank {seat.rank} cannot serve on {host}:{port}: {error.strerror or error}"
                    "; choose another port"
                ) from error
