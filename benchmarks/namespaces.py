"""Machines on one switch with slow links, on this machine: network namespaces, joined by a bridge.

Needs root. Names are unique to the process, and everything is taken down again, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["INTERFACE", "address", "hosts", "ip", "slow_hosts", "switch_of", "tc", "unable"]

#: What the only network interface of each is called.
INTERFACE = "host0"
_NETWORK = "10.213.77"


def unable() -> str | None:
    """Return why this process cannot make namespaces, or None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root: sudo .venv/bin/python -m benchmarks.slow_network"
    absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"there is no {' and no '.join(absent)}: apt-get install iproute2" if absent else None


def address(host: int) -> str:
    """Return the address of a host."""
    return f"{_NETWORK}.{host + 1}"


@contextmanager
def slow_hosts(n: int, mbit: float) -> Iterator[list[str]]:
    """Make n namespaces whose links carry ``mbit`` Mbit/s each way; yield their names. For the main thread."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        with hosts(n, f"gb{os.getpid()}") as names:
            for host, name in enumerate(names):
                for space, device in ((name, INTERFACE), (switch_of(names), f"port{host}")):
                    _slow_down(space, device, mbit)
            yield names
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def hosts(n: int, tag: str) -> Iterator[list[str]]:
    """Make n namespaces on one switch, whose names begin with a tag that nobody else has; yield the names."""
    names = [f"{tag}-{host}" for host in range(n)]
    # The bridge is in a namespace of its own: nothing of this machine's network is touched.
    switch = switch_of(names)
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host, name in enumerate(names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            port = f"port{host}"
            ip("-n", name, "link", "add", INTERFACE, "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", name, "addr", "add", f"{address(host)}/24", "dev", INTERFACE)
            ip("-n", switch, "link", "set", port, "master", "bridge")
            for space, device in ((name, INTERFACE), (switch, port)):
                ip("-n", space, "link", "set", device, "up")
        yield names
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def switch_of(names: Sequence[str]) -> str:
    """Return the namespace of the switch that these hosts are on; host 0 is its ``port0``, and so on."""
    return f"{names[0].rpartition('-')[0]}-switch"


def _slow_down(space: str, device: str, mbit: float) -> None:
    """Let a device send at this rate, with a queue of 100 ms in front of it."""
    rule = ["root", "tbf", "rate", f"{mbit:g}mbit", "burst", "64kb", "latency", "100ms"]
    tc("-n", space, "qdisc", "add", "dev", device, *rule)


def ip(*arguments: str) -> None:
    """Run ``ip``; raise with what it says if it fails."""
    _run("ip", *arguments)


def tc(*arguments: str) -> None:
    """Run ``tc``; raise with what it says if it fails."""
    _run("tc", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
