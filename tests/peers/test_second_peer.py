"""A rank is one peer in one process: a second join, and a forked copy of the peer, are refused at once."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest
import torch
from swarms import reserved_ports, swarm
from torch import nn

import peers
from gossip.errors import SettingsError
from peers import Peer, PeerError


def forked(act: Callable[[], object]) -> str:
    """Return the error of an act in a forked process, or nothing if there was none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            act()
        except BaseException:  # noqa: BLE001 - the test looks at it
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as text:
        found = text.read()
    os.waitpid(child, 0)
    return found


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_step_in_a_forked_process_is_refused() -> None:
    def body(peer: Peer) -> list[str]:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        said = [forked(act) for act in (optimizer.step, peer.consensus, peer.close)]
        optimizer.step()
        return said

    step, consensus, close = swarm(1, body)[0]
    assert "ForkedError: rank 0 is process" in step
    assert "ForkedError: rank 0 is process" in consensus
    assert close == "", "a fork has nothing to end"


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
