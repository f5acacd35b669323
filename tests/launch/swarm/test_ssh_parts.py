"""What the launcher makes of a hostfile for ssh, and what the agent at the other end does; without any server."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from launch.swarm.agent import Agent
from launch.swarm.host import PeerProcess
from launch.swarm.hostfile import HostLine
from launch.swarm.launch_plan import LaunchPlan, PeerSeat
from launch.swarm.ssh import addressed, agent_command, explained
from launch.user_errors import CommandError

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh: apt-get install openssh-client")


def advertised(*hosts: HostLine) -> list[str]:
    return [host.advertise for host in addressed(hosts).values()]


@needs_ssh
def test_others_reach_a_host_by_what_ssh_connects_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("Host nick\n  HostName 10.1.2.3\n")
    monkeypatch.setenv("GOSSIP_SSH", f"ssh -F {config}")
    hosts = [HostLine("nick"), HostLine("node1.example.org"), HostLine("fd00::3"), HostLine("x", advertise="10.0.0.9")]
    assert advertised(*hosts) == ["10.1.2.3", "node1.example.org", "fd00::3", "10.0.0.9"]


@needs_ssh
def test_this_machine_is_reached_by_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIP_SSH", "ssh -F none")
    # Of the addresses of loopback only the first are called so; to this one packets leave from itself.
    monkeypatch.setattr(HostLine, "is_loopback", property(lambda self: self.host in ("localhost", "127.0.0.1")))
    assert advertised(HostLine("localhost"), HostLine("127.0.0.5")) == ["127.0.0.1", "127.0.0.5"]


@needs_ssh
def test_who_cannot_be_found_is_named_and_not_who_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIP_SSH", "ssh -F none")
    with pytest.raises(
        CommandError, match=r"^nowhere\.invalid: .*Check its spelling.* the line of localhost, which is this machine"
    ):
        addressed([HostLine("localhost"), HostLine("nowhere.invalid")])


@needs_ssh
def test_a_host_that_is_localhost_to_all_must_say_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIP_SSH", "ssh -F none")
    box = HostLine("localhost", port=2222)
    with pytest.raises(
        CommandError, match="localhost: other hosts cannot reach its peers as localhost; add advertise="
    ):
        addressed([box, HostLine("10.0.0.1")])
    assert advertised(box) == ["localhost"], "alone it is fine"
    assert advertised(HostLine("localhost", port=22, advertise="10.0.0.2"), HostLine("10.0.0.1")) == [
        "10.0.0.2",
        "10.0.0.1",
    ]


def test_an_ssh_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIP_SSH", "no-such-ssh -4")
    with pytest.raises(
        CommandError,
        match="cannot find no-such-ssh on this machine: install OpenSSH, or name an ssh program in GOSSIP_SSH",
    ):
        addressed([HostLine("node1")])


def test_the_command_of_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIP_SSH", "ssh -F 'my config'")
    monkeypatch.delenv("GOSSIP_REMOTE_PYTHON", raising=False)
    command = agent_command(HostLine("fd00::3", user="alice", port=2222))
    assert command[:3] == ["ssh", "-F", "my config"]
    assert command[-4:-1] == ["-p", "2222", "alice@fd00::3"]
    assert "BatchMode=yes" in command
    assert command[-1].endswith(f"gossip {sys.executable} python3")
    assert agent_command(HostLine("a", python="/opt/my python"))[-1].endswith("gossip '/opt/my python'")
    monkeypatch.setenv("GOSSIP_REMOTE_PYTHON", "/opt/python")
    assert agent_command(HostLine("a"))[-1].endswith("gossip /opt/python")
    assert agent_command(HostLine("a", python="/mine"))[-1].endswith("gossip /mine")


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (None, [], "did not answer within 7 s: check that 'ssh -p 2222 alice@node1 true' works"),
        (127, ["no Python there: /x"], "has no such Python"),
        (1, ["python3: No module named launch.swarm.agent"], "pip install gossip-runtime=="),
        (
            1,
            ["Traceback", "MemoryError"],
            "ended at once, with exit code 1; try 'ssh -p 2222 alice@node1 true' (Traceback / MemoryError)",
        ),
        (-9, [], "ended at once, with exit code -9"),
        (255, ["alice@node1: Permission denied (publickey)."], "refuses the ssh key"),
        (255, ["Host key verification failed."], "has a host key that is new to ssh"),
        (255, ["ssh: Could not resolve hostname node1"], "cannot be reached by ssh: check that it is up"),
    ],
)
def test_why_there_is_no_agent(
    monkeypatch: pytest.MonkeyPatch, code: int | None, stderr: list[str], words: str
) -> None:
    monkeypatch.delenv("GOSSIP_SSH", raising=False)
    text = explained(HostLine("node1", user="alice", port=2222), code, stderr, 7)
    assert words in text
    assert all(line in text for line in stderr), "what ssh says is shown"


@pytest.mark.parametrize(("host", "any_address"), [("10.0.0.1", "0.0.0.0"), ("fd00::3", "[::]"), ("node1", "0.0.0.0")])
def test_peers_listen_where_others_reach_them_and_at_their_old_port_again(host: str, any_address: str) -> None:
    seat = PeerSeat(0, 0, HostLine("nick", advertise=host))
    plan = LaunchPlan(("prog",), (seat,), {}, Path("/runs/one"), spread=True)
    setup = plan.process(seat, {}).setup
    assert (setup["bind"], setup["advertise"]) == (f"{any_address}:0", host)
    assert plan.bind(seat, 5555) == f"{any_address}:5555"
    assert plan.process(seat, {"bind": plan.bind(seat, 5555)}).setup["bind"] == f"{any_address}:5555"


class Out(io.StringIO):
    """What the agent writes, for a test to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def flush(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def of_peer(self, wanted: dict[str, Any]) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: {"rank": 3, "message": wanted} in self.messages(), 60)


def question(directory: Path, command: list[str], run_dir: Path | None = None) -> dict[str, Any]:
    told = {"python": "/launcher/python", "directory": str(directory), "command": command, "peers": 2}
    return {"check": {**told, "run_dir": str(run_dir or directory / "runs")}}


def test_the_agent_starts_with_its_own_python_and_obeys_signals(tmp_path: Path) -> None:
    out = Out()
    agent = Agent(out)
    script = tmp_path / "train.py"
    script.write_text("import time; print('here', flush=True); time.sleep(100)")
    agent.obey(question(tmp_path, ["/launcher/python", "train.py"]))
    assert out.messages()[0]["hello"]["problems"] == []
    run_dir = tmp_path / "runs/one"
    peer = PeerProcess(3, ["/launcher/python", "train.py"], {"run_dir": str(run_dir)}, str(run_dir / "rank-3/log.txt"))
    agent.obey(json.loads(json.dumps({"start": peer.encode()})))
    assert out.of_peer({"line": "here"})
    agent.obey({"tell": [3, {"cards": []}]})
    agent.obey({"signal": [3, int(signal.SIGTERM)]})
    assert out.of_peer({"exit": -signal.SIGTERM})
    assert (run_dir / "rank-3/log.txt").read_text() == "here\n"
    agent.close()


def test_a_peer_that_cannot_be_started_has_an_exit(tmp_path: Path) -> None:
    out = Out()
    agent = Agent(out)
    agent.obey(question(tmp_path, ["/launcher/python", "-m", "this"]))
    agent.obey({"start": PeerProcess(3, ["/no/such"], {"run_dir": str(tmp_path)}, str(tmp_path / "log")).encode()})
    agent.obey({"tell": [3, {"cards": []}]})
    agent.obey({"signal": [3, int(signal.SIGINT)]})
    assert out.of_peer({"exit": 127})
    assert "cannot start: [Errno 2] No such file or directory: '/no/such'" in out.getvalue()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/launcher/python", "train.py"], "has no script {here}/train.py: copy it there"),
        (["/launcher/python", "{here}/sub/train.py"], "has no script {here}/sub/train.py"),
        (["./prog"], "has no program ./prog"),
        (["no-such-program"], "has no program no-such-program"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, command: list[str], words: str) -> None:
    out = Out()
    Agent(out).obey(question(tmp_path, [word.format(here=tmp_path) for word in command]))
    (problem,) = out.messages()[0]["hello"]["problems"]
    assert words.format(here=tmp_path) in problem


def test_a_run_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = Out()
    Agent(out).obey(question(tmp_path, ["true"], tmp_path / "file/runs"))
    (problem,) = out.messages()[0]["hello"]["problems"]
    assert problem == f"cannot write to the run directory {tmp_path}/file/runs: choose another with --run-dir"


def test_a_run_that_is_there_already_is_told_unless_it_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs/one"
    (run_dir / "rank-3").mkdir(parents=True)
    asked = question(tmp_path, ["true"], run_dir)
    for resume, problems in ((False, 1), (True, 0)):
        out = Out()
        Agent(out).obey({"check": {**asked["check"], "resume": resume}})
        found = out.messages()[0]["hello"]["problems"]
        assert len(found) == problems
        assert all(f"already has a run in {run_dir}: continue it with --resume" in one for one in found)


def test_paths_below_the_directory_move_with_it_to_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / "train.py").write_text("print('here')")
    out = Out()
    agent = Agent(out)
    away = tmp_path / "away"
    agent.obey(question(away, ["/launcher/python", str(away / "train.py")]))
    assert out.messages()[0]["hello"]["warnings"] == [f"has no directory {away}: its peers run in {home}"]
    log = str(away / "runs/rank-3/log.txt")
    peer = PeerProcess(3, ["/launcher/python", str(away / "train.py")], {"run_dir": str(away / "runs")}, log)
    agent.obey({"start": peer.encode()})
    assert out.of_peer({"exit": 0})
    assert (home / "runs/rank-3/log.txt").read_text() == "here\n"
