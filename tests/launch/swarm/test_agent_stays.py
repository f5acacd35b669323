"""The agent in a job of Slurm: it stays until its peers have ended, and passes a SIGTERM on to them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from proxies import until
from ssh_launch import gone
from swarms import clean_environment

#: A peer that ends by SIGTERM, and says so by its exit code.
_PEER = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
pathlib.Path(sys.argv[1]).write_text(str(__import__("os").getpid()))
while True:
    signal.pause()
"""
SOON = 60.0


@pytest.mark.parametrize("stays", [True, False])
def test_it_ends_with_its_peers_only_if_it_stays(tmp_path: Path, stays: bool) -> None:
    ready = tmp_path / "ready"
    agent = subprocess.Popen(
        [sys.executable, "-m", "launch.swarm.agent", *(["--stay"] if stays else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    asked = {"python": sys.executable, "directory": str(tmp_path), "command": ["sh"], "run_dir": str(tmp_path / "run")}
    peer: dict[str, Any] = {
        "rank": 3,
        "command": [sys.executable, "-c", _PEER, str(ready)],
        "setup": {"run_dir": str(tmp_path / "run")},
        "log": str(tmp_path / "log"),
    }
    for message in ({"check": {**asked, "peers": 1}}, {"start": peer}):
        agent.stdin.write(json.dumps(message) + "\n")
    agent.stdin.close()  # the launcher is gone
    until(lambda: ready.exists() and bool(ready.read_text()), "the peer runs", SOON)
    pid = int(ready.read_text())
    if stays:
        assert agent.poll() is None
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(SOON) == 0
        said = [json.loads(line) for line in agent.stdout]
        assert said[-1] == {"rank": 3, "message": {"exit": 7}}
    else:
        assert agent.wait(SOON) == 0
        subprocess.run(["kill", "-TERM", str(pid)], check=True)  # it has gone on without the agent
    agent.stdout.close()
    assert gone(pid)
