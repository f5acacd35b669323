"""Hosts of a row: network namespaces on a switch of their own, each with a cable that can be cut."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.namespaces import INTERFACE, address, hosts, ip, switch_of, tc

__all__ = ["Network", "network"]

_count = itertools.count()


class Network:
    """Some hosts. The launcher gets to them by `benchmarks.chaos.door`, which stands for ssh."""

    def __init__(
        self, names: Sequence[str], directory: Path, peers: int, called: Sequence[str], slots: int = 1
    ) -> None:
        self._names = names
        self._switch = switch_of(names)
        self._directory = directory
        #: What each host is called in the hostfile.
        self.called = list(called) or [address(host) for host in range(len(names))]
        #: How one gets to each host.
        self.ways = [["nsenter", f"--net=/run/netns/{name}"] for name in names]
        self._hostfile = directory / "hosts"
        self._hostfile.write_text("".join(f"{name} slots={slots}\n" for name in self.called[:peers]))

    @property
    def options(self) -> list[str]:
        """The options of a launch on these hosts."""
        return ["--hostfile", str(self._hostfile)]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of such a launch."""
        ways = self._directory / "ways"
        ways.write_text(json.dumps(dict(zip(self.called, self.ways, strict=True))))
        return {"GOSSIP_SSH": f"{sys.executable} {Path(__file__).with_name('door.py')} {ways}"}

    @staticmethod
    def address(host: int) -> str:
        """Return the address of a host."""
        return address(host)

    def unplug(self, host: int) -> None:
        """Take a host's network interface down."""
        ip("-n", self._names[host], "link", "set", INTERFACE, "down")

    def plug_in(self, host: int) -> None:
        """And up again."""
        ip("-n", self._names[host], "link", "set", INTERFACE, "up")

    def split(self, side: Collection[int]) -> None:
        """Put these hosts on a switch of their own."""
        ip("-n", self._switch, "link", "add", "other", "type", "bridge")
        ip("-n", self._switch, "link", "set", "other", "up")
        for host in side:
            ip("-n", self._switch, "link", "set", f"port{host}", "master", "other")

    def heal(self, side: Collection[int]) -> None:
        """And back on that of all."""
        for host in side:
            ip("-n", self._switch, "link", "set", f"port{host}", "master", "bridge")

    def disturb(self, *rule: str, hosts: Collection[int] = range(4)) -> None:
        """Let packets that leave the hosts live through something that ``tc`` knows."""
        for host in hosts:
            tc("-n", self._names[host], "qdisc", "replace", "dev", INTERFACE, "root", *rule)


@contextmanager
def network(
    directory: Path, n: int = 4, peers: int = 4, called: Sequence[str] = (), slots: int = 1
) -> Iterator[Network]:
    """Make n hosts; the first ``peers`` of them have as many peers each as they have slots."""
    with hosts(n, f"chaos{os.getpid()}x{next(_count)}") as names:
        yield Network(names, directory, peers, called, slots)
