"""The system's ssh: how it is called, where it connects to, and what its failures mean.

``GOSSIP_SSH`` names the program to call instead of ``ssh``, with options, as in ``ssh -F config -o ConnectTimeout=3``.
``GOSSIP_REMOTE_PYTHON`` names the interpreter for all hosts whose line of the hostfile names none.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from gossip.version import __version__
from launch.swarm.hostfile import HostLine
from launch.user_errors import CommandError

__all__ = ["BOOTSTRAP", "addressed", "agent_command", "explained"]

#: Seconds that ssh has for a connection, and after which a silent one is tried: three times, then it is lost.
_CONNECT, _ALIVE = 10, 10
#: Chooses an interpreter and becomes the agent. It stands on a command line, so it holds nothing that is secret.
BOOTSTRAP = (
    'for python in "$@"; do command -v "$python" >/dev/null 2>&1 && exec "$python" -m launch.swarm.agent {options}; '
    "done; "
    'echo "no Python found: $*" >&2; exit 127'
)


def agent_command(line: HostLine) -> list[str]:
    """Return the command that runs the agent on a host."""
    chosen = line.python or os.environ.get("GOSSIP_REMOTE_PYTHON", "")
    there = [
        "exec",
        "sh",
        "-c",
        BOOTSTRAP.format(options=""),
        "gossip",
        *([chosen] if chosen else [sys.executable, "python3"]),
    ]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": _CONNECT,
        "ServerAliveInterval": _ALIVE,
        "ServerAliveCountMax": 3,
        "ControlMaster": "no",  # a master would outlive the launch; one that is there already is used
        "ForwardX11": "no",
    }
    return [
        *_ssh(),
        "-T",
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        *_target(line),
        shlex.join(there),
    ]


def addressed(hosts: Sequence[HostLine]) -> dict[HostLine, HostLine]:
    """Return the hosts with the address by which others reach their peers, where the hostfile does not say.

    That is the name which ssh connects to, so that a nickname of ssh's configuration will do in the hostfile. This
    machine, where it is called localhost, is known by the address from which packets to the others leave.
    """
    known = {host: host.advertise or (host.host if host.is_local else _real_name(host)) for host in hosts}
    others = [name for name in known.values() if not HostLine(name).is_loopback]
    for host, name in known.items():
        if others and HostLine(name).is_loopback:
            if not host.is_local:
                raise CommandError(
                    f"{host}: other hosts cannot reach its peers as {name}; add advertise=ADDRESS to its "
                    "line of the hostfile"
                )
            known[host] = _own_address(host, others[0])
    return {host: replace(host, advertise=name) for host, name in known.items()}


def explained(line: HostLine, code: int | None, stderr: Sequence[str], seconds: float) -> str:
    """Return why no agent runs on a host, and what to do; ``code`` is None if ssh has not ended in time."""
    said = " / ".join(stderr[-4:])
    by_hand = shlex.join([*_ssh(), *_target(line)])
    if code is None:
        reason = f"did not answer within {seconds:g} s: check that '{by_hand} true' works, or raise --start-timeout"
    elif "No module named" in said:
        # Of Python's complaint only the end matters: where it looked, and for what.
        reason = f"has no gossip, or an old version: pip install gossip-runtime=={__version__} into its Python"
    elif code == 127:
        reason = "has no such Python: add python=PATH to its line of the hostfile, or set GOSSIP_REMOTE_PYTHON"
    elif code != 255:
        reason = f"ended at once, with exit code {code}; try '{by_hand} true'"
    elif "Permission denied" in said:
        reason = f"refuses the ssh key: '{by_hand} true' must work without a password"
    elif "Host key verification failed" in said:
        reason = (
            f"has a host key that is new to ssh, or has changed: run '{by_hand}', and accept the key if it is right"
        )
    else:
        reason = f"cannot be reached by ssh: check that it is up, and that '{by_hand} true' works"
    return f"{reason} ({said})" if said else reason


def _ssh() -> list[str]:
    return shlex.split(os.environ.get("GOSSIP_SSH", "")) or ["ssh"]


def _target(line: HostLine) -> list[str]:
    port = ["-p", str(line.port)] if line.port else []
    return [*port, f"{line.user}@{line.host}" if line.user else line.host]


def _real_name(line: HostLine) -> str:
    """Ask ssh what it connects to; the network is not touched."""
    command = [*_ssh(), "-G", *_target(line)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CONNECT, check=False)  # noqa: S603
    except FileNotFoundError:
        raise CommandError(
            f"cannot find {command[0]} on this machine: install OpenSSH, or name an ssh program in GOSSIP_SSH"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"the command {shlex.join(command)} failed: {error}") from error
    if done.returncode:
        raise CommandError(f"the command {shlex.join(command)} failed: {' / '.join(done.stderr.splitlines()[-3:])}")
    names = [text.partition(" ")[2] for text in done.stdout.splitlines() if text.startswith("hostname ")]
    return names[0] if names else line.host


def _own_address(host: HostLine, other: str) -> str:
    """Return the address of this machine that packets to another leave from; nothing is sent."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(other, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except socket.gaierror as error:
        raise CommandError(
            f"{other}: {error.strerror}. Check its spelling in the hostfile. If ssh knows this name and nobody else "
            f"here does, the launcher cannot find out by which of its own addresses {other} reaches it: add "
            f"advertise=ADDRESS to the line of {host}, which is this machine"
        ) from error
    except OSError as error:
        raise CommandError(
            f"{host}: cannot find the address at which others reach it; add advertise=ADDRESS to its line of the "
            f"hostfile ({other}: {error.strerror or error})"
        ) from error
