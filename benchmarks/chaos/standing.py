"""A process that stands for another one, which the nursery forks: the launcher signals and awaits this one."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["stand_for"]


def stand_for(nursery: str, arguments: list[str]) -> NoReturn:
    """Have the nursery fork a process that is started as this one was, and end as it ends.

    Args:
        nursery: the path of its socket.
        arguments: the command line.
    """
    channel = [int(number) for number in os.environ["GOSSIP_CHANNEL"].split(",")]
    spaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("net", "mnt")]
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(nursery)
    told = {"arguments": arguments, "environment": dict(os.environ), "directory": str(Path.cwd())}
    socket.send_fds(control, [json.dumps(told).encode()], [0, 1, 2, *channel, *spaces])
    for file in (*channel, *spaces):
        os.close(file)
    pid = int(control.recv(64))

    def pass_on(number: int, _frame: Any) -> None:
        os.kill(pid, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    status = int(control.recv(64) or -signal.SIGKILL)
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)
