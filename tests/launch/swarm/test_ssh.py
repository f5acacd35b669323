"""Peers on other machines: real ssh servers, first on loopback, then each in a network of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ssh_launch import Launch, gone, processes, since
from ssh_server import ROOT, Keys, Network, Program, Server, find_program

import gossip.version
import launch.swarm.host
from gossip.version import __version__
from gossip.wire.frames import VERSION

NewServer = Callable[..., Server]

# Longer than everything that a test waits for, so that what it started is cleaned up by the test itself.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return find_program(tmp_path_factory.mktemp("sshd"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("ssh") / "keys")


@pytest.fixture
def server(program: Program, keys: Keys, tmp_path: Path) -> Iterator[NewServer]:
    """Start servers, and stop them in the end."""
    servers: list[Server] = []

    def new(**how: object) -> Server:
        servers.append(Server(program, keys, tmp_path / f"server-{len(servers)}", **how).start())
        return servers[-1]

    yield new
    for one in servers:
        one.stop()


@pytest.fixture
def launching(tmp_path: Path) -> Iterator[Launch]:
    one = Launch(tmp_path / "launch")
    yield one
    one.clean()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Three machines: the launcher is on the first."""
    one = Network(3)
    yield one
    one.close()


def agree(run: Launch, ranks: int) -> None:
    results = [run.result(rank) for rank in range(ranks)]
    for result in results[1:]:
        assert result == pytest.approx(results[0], abs=5e-3)
    assert results[0] != results[0][:1] * len(results[0]), "a model that was trained"


def with_changes(directory: Path, package: str, file: str, pattern: str, text: str) -> dict[str, str]:
    """Copy both packages with one file changed, and return the environment that makes a host use them."""
    for module in (gossip.version, launch.swarm.host):  # a module knows where it is; the package may be spread
        source = Path(str(module.__file__)).parent
        shutil.copytree(source, directory / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    changed = directory / package / file
    changed.write_text(re.sub(pattern, text, changed.read_text(), count=1, flags=re.MULTILINE))
    assert text in changed.read_text()
    return {"PYTHONPATH": f"{directory}:{os.environ.get('PYTHONPATH', '')}"}


def program_file(path: Path, text: str) -> Path:
    """Write a program for the shell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_all_hosts_that_cannot_take_part_are_named_and_nothing_is_started(
    server: NewServer, keys: Keys, launching: Launch, tmp_path: Path
) -> None:
    hidden = [launching.work.parent] if ROOT else []
    other = with_changes(tmp_path / "other", "gossip", "version.py", r'^__version__ = ".*"', '__version__ = "9.9"')
    wire = with_changes(tmp_path / "wire", "gossip", "version.py", r"^WIRE = \d+", "WIRE = 999")
    bare = program_file(tmp_path / "bare", f'exec {sys.executable} -E -S "$@"')  # without any package
    cases = {
        "127.0.0.2": (server(address="127.0.0.2"), "", ""),
        "127.0.0.3": (
            server(address="127.0.0.3"),
            "python=/nowhere/python",
            "has no such Python: add python=PATH to its line",
        ),
        "127.0.0.4": (
            server(address="127.0.0.4", environment=other),
            "",
            f"has gossip 9.9, and this machine has {__version__}: install the same",
        ),
        "127.0.0.5": (
            server(address="127.0.0.5", environment=wire),
            "",
            f"speaks version 999 of the protocol, and this machine {VERSION}",
        ),
        "127.0.0.6": (
            server(address="127.0.0.6"),
            f"python={bare}",
            "has no gossip, or an old version: pip install gossip-runtime==",
        ),
        "127.0.0.7": (
            server(address="127.0.0.7", user="stranger"),
            "",
            "true' must work without a password",
        ),
    }
    if hidden:
        away = server(address="127.0.0.8", hidden=hidden)
        cases["127.0.0.8"] = (away, "", f"has no script {away.home / 'train.py'}: copy it there")
    closed = server(address="127.0.0.9")
    closed.stop()
    cases["127.0.0.9"] = (closed, "", "cannot be reached by ssh: check that it is up")
    hosts = "".join(f"{host}:{one.port} slots=2 {more}\n" for host, (one, more, _) in cases.items())
    launching.start(hosts, ssh=keys.ssh)
    assert launching.ended() == 2, launching.output
    lines = launching.output.splitlines()
    for host, (_, _, words) in cases.items():
        told = [line for line in lines if line.startswith(f"gossip: {host}: ") and "warning" not in line]
        if words:
            assert len(told) == 1, launching.output
            assert words in told[0]
        else:
            assert told == []
    bad = [host for host, (_, _, words) in cases.items() if words]
    assert lines[-1].startswith(f"gossip: error: {', '.join(bad)} cannot take part, so nothing was started")
    assert not list(launching.notes.iterdir()), "something was started"
    assert not (launching.work / "runs").exists()
    for one, _, _ in cases.values():
        assert all(gone(pid, 10) for pid in processes(f"HOME={one.home}")), "an agent was left behind"


def test_an_unknown_host_key_is_told(server: NewServer, keys: Keys, launching: Launch) -> None:
    one = server()
    launching.start(f"root@127.0.0.1:{one.port}\n", ssh=keys.client("user", known="nothing"))
    assert launching.ended() == 2
    assert "gossip: 127.0.0.1: has a host key that is new to ssh, or has changed" in launching.output
    assert "Host key verification failed" in launching.output, "what ssh itself says"


def test_a_host_that_hangs_is_given_up_in_time(
    server: NewServer, keys: Keys, launching: Launch, tmp_path: Path
) -> None:
    hangs = program_file(tmp_path / "hangs", "exec cat >/dev/null")
    one = server()
    began = time.monotonic()
    launching.start(f"127.0.0.1:{one.port} python={hangs}\n", "--start-timeout", "2s", ssh=keys.ssh)
    assert launching.ended(60) == 2
    assert since(began) < 45
    assert "gossip: 127.0.0.1: did not answer within 2 s" in launching.output
    assert all(gone(pid, 10) for pid in processes(str(hangs)))


@pytest.mark.skipif(not ROOT, reason="only root can hide a directory from a server")
def test_a_host_without_the_directory_uses_the_home_and_keeps_its_logs_there(
    server: NewServer, keys: Keys, launching: Launch, tmp_path: Path
) -> None:
    one = server(hidden=[launching.work.parent])
    shutil.copy(launching.work / "train.py", one.home)
    # A login shell that has something to say must not disturb either.
    chatty = program_file(tmp_path / "chatty", f'echo "Welcome!"; echo "[]"; exec {sys.executable} "$@"')
    launching.start(f"127.0.0.1:{one.port} slots=2 python={chatty}\n", ssh=keys.ssh)
    assert launching.ended() == 0, launching.output
    assert (
        f"gossip: 127.0.0.1: warning: has no directory {launching.work}: its peers run in {one.home}"
        in launching.output
    )
    assert {told["directory"] for told in launching.joined(2).values()} == {str(one.home)}
    for rank in range(2):
        assert f"joined {rank}\n" in (one.home / f"runs/one/rank-{rank}/log.txt").read_text()
    agree(launching, 2)


def test_a_lost_connection_is_told_and_the_peers_finish(server: NewServer, keys: Keys, launching: Launch) -> None:
    one = server()
    launching.gate(2)
    launching.start(f"127.0.0.1:{one.port} slots=2\n", ssh=keys.ssh)
    peers = launching.joined(2)
    one.stop()
    assert launching.ended() == 3, launching.output
    assert "the connection to 127.0.0.1 is lost; its peers continue, unwatched" in launching.output
    launching.open_gates()
    assert all(gone(told["pid"]) for told in peers.values())
    agree(launching, 2)


def test_a_host_that_freezes_does_not_hold_up_the_end(server: NewServer, keys: Keys, launching: Launch) -> None:
    one = server()
    launching.gate(2)
    launching.start(f"127.0.0.1:{one.port} slots=2\n", "--stop-timeout", "1s", ssh=keys.ssh)
    launching.joined(2)
    one.freeze()
    os.killpg(launching.pid, signal.SIGINT)
    assert launching.ended(40) == 130, launching.output
    assert "it no longer obeys" in launching.output


def test_swarm_over_two_hosts(server: NewServer, keys: Keys, launching: Launch, network: Network) -> None:
    first, second = (
        server(address=network.address(number), port=22, namespace=network.machines[number]) for number in (1, 2)
    )
    # A nickname of ssh's configuration is enough; other peers get the address behind it.
    ssh = keys.client("user", extra=f"Host second\n  HostName {second.address}\n")
    launching.gate(3)
    hosts = f"# two machines\n{first.address} slots=2\nroot@second:22 slots=2\n"
    launching.start(hosts, "--exclude", "second:0", ssh=ssh, namespace=network.machines[0])
    told = launching.joined(3)
    assert [one["local_rank"] for one in told.values()] == [0, 1, 1]
    homes = [first.address, first.address, second.address]
    for one in told.values():
        assert [card.partition(":")[0] for card in one["cards"]] == homes
    secrets = {one["secret"] for one in told.values()}
    assert len(secrets) == 3
    assert all(len(secret) == 40 for secret in secrets)
    # Everything that has to do with it runs now: the launcher, ssh, sshd, agents, peers.
    assert len(processes("launch.swarm.agent")) >= 4
    for secret in secrets:
        assert processes(secret) == {}, "a secret key shows"
    launching.open_gates()
    assert launching.ended() == 0, launching.output
    assert "3 of 3 peers finished" in launching.output
    agree(launching, 3)
    for one in (first, second):
        assert all(gone(pid) for pid in processes(f"HOME={one.home}")), "an agent was left behind"


def test_the_search_for_secrets_finds_them() -> None:
    for how in ({"env": {"KEY": "a-secret-in-the-environment"}}, {"args": ["a-secret-on-the-command-line"]}):
        code = "print(flush=True); input()"
        command = [sys.executable, "-c", code, *how.get("args", ())]  # type: ignore[misc]
        with subprocess.Popen(command, env=how.get("env"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # type: ignore[arg-type]
            assert process.stdout is not None
            process.stdout.readline()
            text = "a-secret-in-the-environment" if "env" in how else "a-secret-on-the-command-line"
            assert process.pid in processes(text)
            process.communicate(b"\n")


def test_this_machine_and_another_and_a_peer_that_is_restarted_there(
    server: NewServer, keys: Keys, launching: Launch, network: Network
) -> None:
    there = server(address=network.address(1), port=22, namespace=network.machines[1])
    hosts = f"localhost slots=2\n{there.address}\n"
    options = ("--fault", "kill:2@5", "--restart", "1", "--algorithm", "adpsgd")
    launching.start(hosts, *options, ssh=keys.ssh, steps=400, namespace=network.machines[0], returns=2)
    launching.said("rank 2 was ended by SIGKILL", "rank 2 is restarted")
    assert launching.ended(150) == 0, launching.output
    lives = launching.lives(2)
    assert [one["incarnation"] for one in lives] == [0, 1000]
    assert lives[0]["endpoint"] == lives[1]["endpoint"], "others look for it at its old address"
    assert lives[0]["pid"] != lives[1]["pid"]
    assert [card.partition(":")[0] for card in lives[0]["cards"]] == [network.address(0)] * 2 + [network.address(1)]


def test_a_host_that_is_not_there_takes_bounded_time(
    server: NewServer, keys: Keys, launching: Launch, network: Network
) -> None:
    there = server(address=network.address(1), port=22, namespace=network.machines[1])
    launcher, nobody = network.machines[0], network.address(98)
    # Packets to it leave, and nothing ever comes back.
    neighbour = ["ip", "-n", launcher, "neigh", "replace", nobody, "lladdr", "02:00:00:00:00:63", "dev", "eth0"]
    subprocess.run(neighbour, check=True)
    began = time.monotonic()
    launching.start(f"{there.address}\n{nobody}\n", ssh=f"{keys.ssh} -o ConnectTimeout=2", namespace=launcher)
    assert launching.ended(60) == 2
    assert since(began) < 45
    assert f"gossip: {nobody}: cannot be reached by ssh: check that it is up" in launching.output
    assert "timed out" in launching.output
    assert not list(launching.notes.iterdir())


def test_peers_finish_without_the_launcher(server: NewServer, keys: Keys, launching: Launch, network: Network) -> None:
    servers = [
        server(address=network.address(number), port=22, namespace=network.machines[number]) for number in (1, 2)
    ]
    launching.gate(2)
    hosts = "".join(f"{one.address}\n" for one in servers)
    launching.start(hosts, ssh=keys.ssh, namespace=network.machines[0])
    peers = {told["pid"] for told in launching.joined(2).values()}
    others = {pid for one in servers for pid in processes(f"HOME={one.home}")} - peers
    ours = set(processes(f"GOSSIP_SSH={keys.ssh}"))
    assert len(others) == 2, "an agent on each host"
    os.kill(launching.pid, signal.SIGKILL)
    assert all(gone(pid) for pid in others | ours), "agents and ssh leave quietly"
    launching.open_gates()
    assert all(gone(pid) for pid in peers)
    agree(launching, 2)


def test_ctrl_c_stops_remote_peers(server: NewServer, keys: Keys, launching: Launch, network: Network) -> None:
    servers = [
        server(address=network.address(number), port=22, namespace=network.machines[number]) for number in (1, 2)
    ]
    launching.gate(2)
    hosts = "".join(f"{one.address}\n" for one in servers)
    launching.start(hosts, ssh=keys.ssh, namespace=network.machines[0])
    peers = launching.joined(2)
    os.killpg(launching.pid, signal.SIGINT)  # as a terminal does it: to the whole foreground
    assert launching.ended() == 130, launching.output
    assert all(gone(told["pid"], 0) for told in peers.values())
    assert "no longer obeys" not in launching.output
    for one in servers:
        assert all(gone(pid) for pid in processes(f"HOME={one.home}")), "an agent was left behind"
