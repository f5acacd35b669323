"""A list of machines and how many peers each takes, as users of OpenMPI and DeepSpeed know it.

A line is a host and its settings; ``#`` begins a comment::

    node1 slots=4
    alice@node2:2222 slots=2 advertise=10.0.0.2
    [fd00::3]:2222 python=/opt/venv/bin/python
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launch.user_errors import CommandError

__all__ = ["LOCAL", "HostLine", "parse_hostfile", "read_hostfile", "selected"]

_EXPECTED = "a line reads: [user@]host[:port] [slots=N] [advertise=ADDRESS] [python=PATH]"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\$?")
#: More slots on one machine are a typing error.
_MOST_SLOTS = 4096


@dataclass(frozen=True)
class HostLine:
    """A machine of the list."""

    host: str
    slots: int = 1
    user: str = ""
    #: Of ssh; 0 for the usual one.
    port: int = 0
    #: The address by which the peers of other machines reach those of this one; empty: the host.
    advertise: str = ""
    #: The interpreter there; empty: the launcher's own path if it exists there, else python3.
    python: str = ""
    #: Which of the slots are used, where a choice was made; a slot's number is the local rank, and so the GPU.
    chosen: tuple[int, ...] | None = None
    #: The Slurm job whose allocation it is in: `srun` reaches it, and not ssh.
    job: str = ""

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """The slots that take a peer."""
        return tuple(range(self.slots)) if self.chosen is None else self.chosen

    @property
    def is_local(self) -> bool:
        """Whether peers are started on it without ssh: it is this machine, and no user or port asks for ssh."""
        if self.user or self.port or self.python:
            return False
        own = socket.gethostname().lower()
        return self.host.lower() in (*_LOOPBACK, own, own.partition(".")[0])

    @property
    def is_loopback(self) -> bool:
        """Whether its name means something else on every machine."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        return self.host


LOCAL = HostLine("localhost")


def read_hostfile(path: Path) -> list[HostLine]:
    """Read a hostfile; a mistake in it is an error that names the line."""
    try:
        text = path.read_text("utf-8-sig")  # editors on Windows begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"cannot read the hostfile {path}: {reason or error}") from error
    return parse_hostfile(text, str(path))


def parse_hostfile(text: str, name: str = "hostfile") -> list[HostLine]:
    """Read the text of a hostfile; ``name`` stands in errors."""
    hosts: list[HostLine] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host = _parse_line(words)
        except ValueError as error:
            raise CommandError(f"{name}, line {number}: {error}; {_EXPECTED}") from None
        key = "this machine" if host.is_local else host.host.lower()
        if key in seen:
            raise CommandError(
                f"{name}, line {number}: {host} is already listed in line {seen[key]}: list it once, with the sum of "
                "the slots; for a second ssh port of the same host, add a name to ~/.ssh/config"
            )
        seen[key] = number
        hosts.append(host)
    if not hosts:
        raise CommandError(f"{name} lists no host; {_EXPECTED}")
    return hosts


def selected(hosts: Sequence[HostLine], include: str, exclude: str) -> list[HostLine]:
    """Return the hosts that take part, in the order of the hostfile.

    The choice is written as DeepSpeed has it, ``node1@node2:0,2``: hosts, and slots of them where not all are meant. A
    comma may stand between hosts too: what follows it is a slot if it is a number and slots are being listed.
    """
    if include and exclude:
        raise CommandError(f"--include {include} and --exclude {exclude} cannot be combined: give one of them")
    if not include and not exclude:
        return list(hosts)
    named = _parse_choice("--include" if include else "--exclude", include or exclude, hosts)
    chosen = []
    for host in hosts:
        ranks = [rank for rank in host.local_ranks if (rank in named.get(host.host, ())) == bool(include)]
        if ranks:
            chosen.append(host if len(ranks) == len(host.local_ranks) else replace(host, chosen=tuple(ranks)))
    if not chosen:
        raise CommandError(f"--exclude {exclude} leaves no slot of {_listed(hosts)}; exclude fewer")
    return chosen


def _parse_choice(option: str, text: str, hosts: Sequence[HostLine]) -> dict[str, set[int]]:
    """Return the selected slots, by host."""
    there = {host.host: host for host in hosts}
    named: dict[str, set[int]] = {}
    for part in text.split("@"):
        listing: HostLine | None = None  # whose slots are being listed
        for word in part.split(","):
            slot = word.strip()
            if listing is None or not (slot.isascii() and slot.isdigit()):
                name, listing = slot, None
                if slot.strip("[]") not in there:
                    name, colon, slot = slot.rpartition(":")
                    if not colon:
                        name = slot
                if name.strip("[]") not in there:
                    raise CommandError(f"{option} {text}: the hostfile has no host {name!r}; it has: {_listed(hosts)}")
                host = there[name.strip("[]")]
                if slot == name:
                    named.setdefault(host.host, set()).update(host.local_ranks)
                    continue
                listing = host
            if not (slot.isascii() and slot.isdigit()) or int(slot) not in listing.local_ranks:
                raise CommandError(
                    f"{option} {text}: {listing} has no slot {slot!r}; the hostfile has: {_listed(hosts)}"
                )
            named.setdefault(listing.host, set()).add(int(slot))
    return named


def _listed(hosts: Sequence[HostLine]) -> str:
    return ", ".join(
        f"{host} (slot 0)"
        if host.local_ranks == (0,)
        else f"{host} (slots {host.local_ranks[0]}-{host.local_ranks[-1]})"
        for host in hosts
    )


def _parse_line(words: list[str]) -> HostLine:
    user, at, address = words[0].rpartition("@")
    if at and not _USER.fullmatch(user):
        raise ValueError(f"{user!r} is not a user name")
    host, port = _parse_address(address)
    told: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key not in ("slots", "advertise", "python"):
            raise ValueError(f"unknown word {word!r}")
        if not equals or not value:
            raise ValueError(f"{key} needs a value, as in {key}={'4' if key == 'slots' else '...'}")
        if key in told:
            raise ValueError(f"{key} is given twice")
        told[key] = value
    slots = told.get("slots", "1")
    if not _number(slots, _MOST_SLOTS):
        raise ValueError(f"slots must be a number from 1 to {_MOST_SLOTS}, not {slots!r}")
    advertise = told.get("advertise", "")
    if advertise:
        advertise, extra = _parse_address(advertise)
        if extra:
            raise ValueError(
                f"advertise must be an address without a port, not {told['advertise']!r}: peers choose free ports"
            )
    return HostLine(host, int(slots), user, port, advertise, told.get("python", ""))


def _parse_address(text: str) -> tuple[str, int]:
    """Read ``host``, ``host:port``, an IPv6 address, or one in brackets with or without a port."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or not _is_ipv6(host):
            raise ValueError(f"{text!r} is not an IPv6 address in brackets, such as [fd00::3] or [fd00::3]:2222")
        return host, _parse_port(text, rest[1:]) if rest else 0
    if text.count(":") > 1:
        if not _is_ipv6(text):
            raise ValueError(f"{text!r} is not an IPv6 address; with a port, write [fd00::3]:2222")
        return text, 0
    host, colon, port = text.partition(":")
    if not _NAME.fullmatch(host):
        raise ValueError(f"{host!r} is not a host name or address")
    return host, _parse_port(text, port) if colon else 0


def _parse_port(text: str, port: str) -> int:
    if not _number(port, 65535):
        raise ValueError(f"the port of {text!r} must be a number from 1 to 65535, not {port!r}")
    return int(port)


def _number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= most


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
