"""A rank is one peer in one process: a second join, and a forked copy of the peer, are refused at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from swarms import LONGEST_PROCESS, clean_environment, reserved_ports

import peers
from gossip.errors import SettingsError
from peers import PeerError

#: A process of its own: a fork of the process that runs the tests would inherit the locks of its many threads.
FORKING = """
import os
import torch, peers

with peers.join() as peer:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for act in (optimizer.step, peer.consensus, peer.close):
        child = os.fork()
        if child == 0:
            said = "no error"
            try:
                act()
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(1, f"{act.__name__}: {said}\\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
    optimizer.step()
    os.write(1, b"goes on\\n")
"""


def test_a_step_in_a_forked_process_is_refused() -> None:
    found = subprocess.run(
        [sys.executable, "-c", FORKING],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LONGEST_PROCESS,
        check=True,
    )
    step, consensus, close, after = found.stdout.splitlines()
    assert "ForkedError: rank 0 is process" in step
    assert "ForkedError: rank 0 is process" in consensus
    assert close == "close: no error", "a fork has nothing to end"
    assert after == "goes on"


def test_a_second_join_of_the_same_rank_is_refused_until_the_first_has_ended() -> None:
    with reserved_ports(2) as ports:
        hosts = [f"127.0.0.1:{port}" for port in ports]
        with peers.join({}, hosts=hosts, rank=0), pytest.raises(PeerError, match="called again while rank 0"):
            peers.join({}, hosts=hosts, rank=0)
        with peers.join({}, hosts=hosts, rank=0):
            pass


def test_under_a_launcher_a_second_join_does_not_wait_for_it() -> None:
    with peers.join({}), pytest.raises(PeerError, match="called again while rank 0"):
        peers.join({"GOSSIP_CHANNEL": "0,1"})
    with pytest.raises(SettingsError, match=r"two open file descriptors\. A process that"):
        peers.join({"GOSSIP_CHANNEL": "997,998"})
