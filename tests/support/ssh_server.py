"""Real ssh servers for tests, each with keys and configuration of its own, on loopback or in a network namespace.

Where there is no sshd, the package is fetched with apt-get and unpacked into a directory of the tests: an installation
would leave a server on port 22 of the developer's machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = os.geteuid() == 0


def run(*command: str | Path, timeout: float = 60.0) -> str:
    """Run a command that must succeed, and return its output."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{shlex.join(str(word) for word in command)}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Program:
    """An sshd, and the libraries that were unpacked with it."""

    path: str
    libraries: str = ""

    def environment(self) -> dict[str, str]:
        return {**os.environ, **({"LD_LIBRARY_PATH": self.libraries} if self.libraries else {})}


def find_program(directory: Path) -> Program:
    """Return the sshd of the system or else a fetched one; skip if there is none to be had."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh: apt-get install openssh-client")
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found:
        return Program(found)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("there is no sshd, and no apt-get to fetch it with: install OpenSSH's server")
    directory.mkdir(exist_ok=True)
    fetch = ["apt-get", "download", "openssh-server", "libwrap0"]
    for attempt in (fetch, ["apt-get", "update"], fetch) if ROOT else (fetch,):
        done = subprocess.run(attempt, cwd=directory, capture_output=True, text=True, timeout=100)
        if attempt is fetch and done.returncode == 0:
            break
    else:
        pytest.skip(f"there is no sshd, and apt-get does not fetch it: {done.stderr.strip().splitlines()[-1:]}")
    for package in directory.glob("*.deb"):
        run("dpkg", "-x", package, directory / "root")
    libraries = sorted({str(path.parent) for path in directory.rglob("*.so.*")})
    return Program(str(directory / "root/usr/sbin/sshd"), ":".join(libraries))


class Keys:
    """A key of the servers, one of the user, and the configuration of ssh that uses them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        for name in ("host", "user", "stranger"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", directory / name)
        (directory / "known").write_text(f"* {(directory / 'host.pub').read_text()}")
        self.ssh = self.client("user")

    def client(self, identity: str, known: str = "known", extra: str = "") -> str:
        """Write a configuration of ssh, and return what GOSSIP_SSH should be for it."""
        path = self.directory / f"config-{len(list(self.directory.glob('config-*')))}"
        path.write_text(
            f"{extra}\nHost *\n  IdentityFile {self.directory / identity}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.directory / known}\n  GlobalKnownHostsFile none\n"
            "  StrictHostKeyChecking yes\n  UpdateHostKeys no\n"
        )
        return f"ssh -F {path}"


@dataclass
class Server:
    """One sshd, with a home directory of its own for root."""

    program: Program
    keys: Keys
    directory: Path
    address: str = "127.0.0.1"
    port: int = 0
    #: The network namespace that it runs in; empty for that of the tests.
    namespace: str = ""
    #: What the sessions have in their environment.
    environment: dict[str, str] = field(default_factory=dict)
    #: Whose key it takes.
    user: str = "user"
    #: Directories that are empty for it.
    hidden: Sequence[Path] = ()

    def start(self) -> Server:
        self.directory.mkdir()
        self.home = self.directory / "home"
        self.home.mkdir()
        self.port = self.port or free_port(self.address)
        config = self.directory / "config"
        # Where the tests were told to take the packages from elsewhere, so are the servers.
        path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {}
        values = " ".join(f'"{name}={value}"' for name, value in {**path, **self.environment}.items())
        config.write_text(
            f"Port {self.port}\nListenAddress {self.address}\nHostKey {self.keys.directory / 'host'}\nPidFile none\n"
            f"AuthorizedKeysFile {self.keys.directory / self.user}.pub\nStrictModes no\nUsePAM no\nUseDNS no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"MaxStartups 100\n{f'SetEnv {values}' if values else ''}\n"
        )
        command = [self.program.path, "-D", "-e", "-f", str(config)]
        if ROOT:
            # sshd insists on a user and on a directory in /run: it gets them, and nobody else does.
            passwd = self.directory / "passwd"
            passwd.write_text(f"root:*:0:0:root:{self.home}:/bin/sh\nsshd:*:65533:65534::/run/sshd:/bin/false\n")
            steps = [f"mount --bind {passwd} /etc/passwd", "mount -t tmpfs tmpfs /run", "mkdir -m 755 /run/sshd"]
            steps += [f"mount -t tmpfs tmpfs {path}" for path in self.hidden]
            command = ["unshare", "-m", "sh", "-ec", "; ".join([*steps, f"exec {shlex.join(command)}"])]
        self._process = subprocess.Popen(
            [*inside(self.namespace), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.program.environment(),
            start_new_session=True,
        )
        said: list[str] = []
        listening = threading.Event()
        threading.Thread(target=self._listen, args=(said, listening), daemon=True).start()
        assert listening.wait(30), said
        assert any("Server listening" in line for line in said), said
        return self

    def _listen(self, said: list[str], listening: threading.Event) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                said.append(line)
                if "Server listening" in line:
                    listening.set()
        listening.set()

    def freeze(self) -> None:
        """Stop the server and all its connections, without closing any."""
        self._signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End the server and its connections."""
        self._signal(signal.SIGKILL)
        self._process.wait(10)

    def _signal(self, number: int) -> None:
        """Signal the server and what sshd has started for connections, but not what runs in them."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
                if name.startswith("sshd"):
                    parents[int(path.parent.name)] = int(rest.split()[1])
        own = {self._process.pid}
        while more := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= more
        for pid in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def inside(namespace: str) -> list[str]:
    """Return what runs a command in a network namespace."""
    return ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []


def free_port(address: str) -> int:
    """Return a port that was free just now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


#: The number of the next network of this process.
_NETWORKS = itertools.count(1)


class Network:
    """Machines on one switch: network namespaces, whose cables end at a bridge in one more of them."""

    def __init__(self, count: int) -> None:
        if not ROOT or shutil.which("ip") is None or shutil.which("nsenter") is None:
            pytest.skip("network namespaces need root, ip (iproute2) and nsenter (util-linux)")
        self._made: list[str] = []
        # One process may have several networks at a time: that of a fixture, and that of a test.
        name = f"gossip-{os.getpid()}-{next(_NETWORKS)}"
        self.machines = [f"{name}-{number}" for number in range(count)]
        switch = f"{name}-switch"
        try:
            self._add(switch)
            run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", switch, "link", "set", "bridge", "up")
            for number, name in enumerate(self.machines):
                self._add(name)
                cable = f"port{number}"
                run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", cable, "netns", switch)
                run("ip", "-n", switch, "link", "set", cable, "master", "bridge", "up")
                run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
                run("ip", "-n", name, "link", "set", "eth0", "up")
        except AssertionError:
            self.close()
            raise

    @staticmethod
    def address(number: int) -> str:
        return f"10.77.0.{number + 1}"

    def _add(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._made.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def close(self) -> None:
        for name in self._made:
            run("ip", "netns", "delete", name)
