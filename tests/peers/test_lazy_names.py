"""`import peers` does not import torch, so that the launcher can read settings and columns where they are defined."""

from __future__ import annotations

import subprocess
import sys

import pytest

import peers
from peers import joining, peer


def imported(script: str) -> str:
    """Run a script that ends by asking for torch, and return what it prints last."""
    ask = "\nimport sys\nprint('torch' in sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", script + ask]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
    return result.stderr


@pytest.mark.parametrize(
    "script",
    [
        "import peers.setup, peers.table.status_rows, peers.table.pulse",
        "from peers.setup import Setup; Setup().settled()",
        "from launch import cli\nassert cli.main(['--help']) == 0",
        (
            "import pkgutil, importlib, launch\n"
            "names = [one.name for one in pkgutil.walk_packages(launch.__path__, 'launch.')]\n"
            "assert 'launch.swarm.launching' in names\n"
            "for name in names: importlib.import_module(name)"
        ),
    ],
    ids=["setup and reporting", "a setup settled", "gossip --help", "all of launch"],
)
def test_torch_stays_out(script: str) -> None:
    assert imported(script) == "False\n"


def test_a_peer_needs_torch() -> None:
    assert imported("from peers import Peer") == "True\n"


def test_the_public_names_are_those_of_their_modules() -> None:
    assert set(peers.__all__) <= set(dir(peers))
    assert (peers.join, peers.Peer, peers.PeerError) == (joining.join, peer.Peer, peer.PeerError)
    assert peers.Evaluation is peer.Evaluation
    star: dict[str, object] = {}
    exec("from peers import *", star)
    assert set(peers.__all__) <= star.keys()


def test_another_name_is_told_to_be_missing() -> None:
    with pytest.raises(AttributeError, match="module 'peers' has no attribute 'nonsense'"):
        getattr(peers, "nonsense")  # noqa: B009
