"""A real Slurm cluster: munged, slurmctld and a slurmd on each of three nodes, all of them network namespaces.

Each node has an address and a host name of its own, so several clusters do not meet, and what peers say to each other
goes over a network. Where there is no Slurm, its packages are fetched with apt-get and unpacked into a directory of the
tests: an installation would leave services on the developer's machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from proxies import until
from ssh_server import ROOT, Network, run
from swarms import clean_environment

#: Seconds for anything that has to happen, on a machine that is busy.
SOON = 200.0
_CONFIGURATION = """
ClusterName=gossip
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName=n[0-2] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_MACHINES = ("head", "n0", "n1", "n2")


@dataclass(frozen=True)
class Programs:
    """Where Slurm's programs are, and the libraries that were unpacked with them."""

    path: str
    libraries: str = ""
    plugins: str = ""

    def find(self, name: str) -> str:
        """Return the path of a program; Debian gives those that its alternatives name another name."""
        found = shutil.which(name, path=self.path) or shutil.which(f"{name}-wlm", path=self.path)
        assert found, f"there is no {name} in {self.path}"
        return found

    def environment(self) -> dict[str, str]:
        libraries = {"LD_LIBRARY_PATH": self.libraries} if self.libraries else {}
        return {**clean_environment(), "PATH": self.path, **libraries}


def find_programs(directory: Path) -> Programs:
    """Return the Slurm of the system or else a fetched one; skip if there is none to be had."""
    if not ROOT or any(shutil.which(name) is None for name in ("ip", "nsenter", "unshare", "mount")):
        pytest.skip("nodes of Slurm are network namespaces: these need root, ip (iproute2), and nsenter (util-linux)")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin"
    if all(shutil.which(name, path=path) for name in ("slurmctld", "slurmd", "munged", "srun")):
        return Programs(path)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("there is no Slurm, and no apt-get to fetch it with: install slurmctld, slurmd and munge")
    directory.mkdir(exist_ok=True)
    options = ["--yes", "--download-only", "--no-install-recommends"]
    options += ["-o", f"Dir::Cache::archives={directory}", "-o", "Debug::NoLocking=1"]
    fetch = ["apt-get", "install", *options, "slurmctld", "slurmd", "slurm-client", "munge"]
    for attempt in (fetch, ["apt-get", "update"], fetch):
        done = subprocess.run(attempt, capture_output=True, text=True, timeout=SOON)
        if attempt is fetch and done.returncode == 0:
            break
    else:
        pytest.skip(f"there is no Slurm, and apt-get does not fetch it: {done.stderr.strip().splitlines()[-1:]}")
    root = directory / "root"
    for package in directory.glob("*.deb"):
        run("dpkg", "-x", package, root)
    libraries = sorted({str(found.parent) for found in root.rglob("*.so*")})
    plugins = next(root.rglob("auth_munge.so")).parent
    own = ":".join(str(root / name) for name in ("usr/sbin", "usr/bin", "sbin", "bin"))
    return Programs(f"{own}:{path}", ":".join(libraries), str(plugins))


class Cluster:
    """A head and three nodes, each a network namespace; commands run on the head."""

    def __init__(self, programs: Programs, directory: Path) -> None:
        self._programs, self.directory = programs, directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.network = Network(len(_MACHINES))
        try:
            self._configure()
            self._daemon("head", "munged", "-F", "--force", *self._munge())
            until((directory / "munge.socket").exists, "munged listens", SOON)
            self._daemon("head", "slurmctld", "-D")
            for node in _MACHINES[1:]:
                self._daemon(node, "slurmd", "-D", "-N", node, "-d", programs.find("slurmstepd"))
            self.await_idle()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        directory = self.directory
        key = os.open(directory / "munge.key", os.O_WRONLY | os.O_CREAT, 0o400)
        os.write(key, secrets.token_bytes(128))
        os.close(key)
        plugins = f"PluginDir={self._programs.plugins}\n" if self._programs.plugins else ""
        (directory / "slurm.conf").write_text(_CONFIGURATION.format(directory=directory) + plugins)
        (directory / "state").mkdir()
        places = "".join(f"{self.network.address(index)} {name}\n" for index, name in enumerate(_MACHINES))
        for name in _MACHINES:
            # Debian gives a host's own name an address of loopback; the node of rank 0 is like that.
            own = "127.0.1.1 n0\n" if name == "n0" else ""
            (directory / f"hosts-{name}").write_text(f"127.0.0.1 localhost\n{own}{places}")

    def _munge(self) -> list[str]:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return [f"--{option}={self.directory / f'munge.{end}'}" for option, end in files.items()]

    def _on(self, machine: str, *command: str) -> list[str]:
        """Return what runs a command on a machine: with its network, its host name and its list of hosts."""
        steps = f'mount --bind {self.directory}/hosts-{machine} /etc/hosts; hostname {machine}; exec "$@"'
        namespace = f"--net=/run/netns/{self.network.machines[_MACHINES.index(machine)]}"
        return ["nsenter", namespace, "unshare", "--mount", "--uts", "sh", "-ec", steps, "sh", *command]

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**self._programs.environment(), "SLURM_CONF": str(self.directory / "slurm.conf"), **more}

    def _daemon(self, machine: str, name: str, *arguments: str) -> None:
        with (self.directory / f"{name}-{machine}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    self._on(machine, self._programs.find(name), *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=self._environment({}),
                    start_new_session=True,
                )
            )

    def start(self, *command: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
        """Start a command on the head."""
        return subprocess.Popen(
            self._on("head", *command),
            cwd=cwd,
            env=self._environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, cwd: Path, seconds: float = SOON, **environment: str) -> tuple[int, str]:
        """Run a command on the head; return its exit code and its output."""
        process = self.start(*command, cwd=cwd, **environment)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{shlex.join(command)} goes on:\n{process.communicate()[0]}") from None
        return process.returncode, output

    def asked(self, *command: str) -> str:
        """Return what a command of Slurm prints; it must succeed."""
        code, output = self.run(*command, cwd=self.directory)
        assert code == 0, output
        return output.strip()

    def submit(self, script: str, *options: str, cwd: Path, **environment: str) -> str:
        """Give `sbatch` a script for the shell; return the number of the job, which writes to ``cwd/job.out``."""
        path = cwd / "job.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        code, output = self.run(
            "sbatch", "--output=job.out", "--open-mode=append", *options, str(path), cwd=cwd, **environment
        )
        assert code == 0, output
        return re.findall(r"\d+", output)[-1]

    def state(self, job: str) -> str:
        """Return the state of a job, as in RUNNING."""
        return re.findall(r"JobState=(\w+)", self.asked("scontrol", "show", "job", job))[0]

    def await_state(self, job: str, *states: str) -> None:
        """Wait until a job is in one of these states."""
        self._until(lambda: self.state(job) in states, f"job {job} is {' or '.join(states)}")

    def await_idle(self) -> None:
        """Wait until nothing runs on any node: processes of a cancelled job may take half a minute."""
        self._until(lambda: self.asked("sinfo", "-h", "-o", "%T %D").split() == ["idle", "3"], "all nodes are idle")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Ask Slurm again and again; each question is some processes, so not as often as one can."""
        deadline = time.monotonic() + SOON
        while True:
            with contextlib.suppress(AssertionError):  # the controller may not be up
                if condition():
                    return
            assert time.monotonic() < deadline, f"it never came about: {what}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """Return the ends of all logs."""
        files = sorted([*self.directory.glob("*.out"), *self.directory.glob("*.log")])
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in files)

    def pids(self) -> set[int]:
        """Return all processes on the machines of this cluster, whoever started them."""
        listed = [run("ip", "netns", "pids", machine) for machine in self.network.machines]
        return {int(word) for text in listed for word in text.split()}

    def close(self) -> None:
        """End every daemon, and whatever a job has left; all of it runs in the namespaces of this cluster."""
        while left := self.pids():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for daemon in self._daemons:
                daemon.poll()
        for daemon in self._daemons:
            daemon.wait(SOON)
        self.network.close()
