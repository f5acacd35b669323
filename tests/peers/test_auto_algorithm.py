"""algorithm="auto": every peer finds the same method by itself, from settings that all of them have alike."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from swarms import swarm

import peers
from gossip.choosing import recommend, situation
from gossip.errors import SettingsError
from peers.peer import Peer
from peers.session.shared_settings import SettingsAgreement, shared
from peers.setup import Setup, from_environment

KNOWN = {"algorithm": "auto", "link": "50Mbit", "step_time": 0.25, "parameters": 10_000_000}
#: The third of three tasks of srun.
SLURM = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "3"}


def chosen(setup: Setup) -> tuple[str, str, float, str]:
    settled = setup.settled()
    return settled.algorithm, settled.compress, settled.share, settled.topology


def test_all_ranks_settle_on_the_same() -> None:
    settled = [Setup(rank=rank, world_size=8).changed(**KNOWN).settled() for rank in range(8)]
    assert {chosen(one) for one in settled} == {("osgp", "int8", 0.125, "one-peer-exponential")}
    agreements = [SettingsAgreement(one) for one in settled]
    for one in agreements:
        one.merge(agreements[0].encode())
        assert one.conflict == ""


def test_what_is_settled_is_what_the_model_recommends() -> None:
    setup = Setup(world_size=8).changed(algorithm="auto", preset="wan", stragglers=("1=4x",))
    assert setup.recommended() == recommend(situation(8, slowest=4.0, kind="wan"))
    brief = setup.changed(stragglers=("1=4x@10-20",))
    assert brief.recommended() == recommend(situation(8, kind="wan")), "slow for a while only"
    assert Setup(algorithm="sgp").recommended() is None


def test_a_newcomer_that_is_told_the_settings_chooses_the_same_wherever_it_is() -> None:
    founder = Setup(world_size=8).changed(algorithm="auto").settled()
    told = {name: value for name, value in shared(founder).items() if name not in ("algorithm", "compress", "share")}
    newcomer = Setup(bind="0.0.0.0:0", incarnation=1, rank=9).changed(**told, algorithm="auto")
    assert chosen(newcomer) == chosen(founder)
    assert founder.link == "loopback"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({}, "loopback"),
        ({"bind": "0.0.0.0:0"}, "lan"),
        ({"preset": "wan"}, "wan"),
        ({"hosts": ("a:1", "a:2")}, "loopback"),
        ({"hosts": ("a:1", "b:1")}, "lan"),
        ({"link": "2Gbit"}, "2Gbit"),
    ],
)
def test_the_kind_of_link_follows_from_what_all_see_alike(found: dict[str, Any], kind: str) -> None:
    assert Setup(world_size=2).changed(algorithm="auto", **found).settled().link == kind


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}, "loopback"),
        ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "head"}, "lan"),
        ({**SLURM, "SLURM_STEP_NODELIST": "n[0-1]"}, "lan"),
        ({**SLURM, "SLURM_STEP_NODELIST": "n0"}, "loopback"),
    ],
)
def test_under_other_launchers_too(environment: dict[str, str], kind: str) -> None:
    assert from_environment(environment).changed(algorithm="auto").settled().link == kind


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(SettingsError, match="algorithm='auto:h=8': auto takes no parameters"):
        Setup().changed(algorithm="auto:h=8").settled()
    with pytest.raises(SettingsError, match="'quick' is not a link"):
        Setup().changed(algorithm="auto", link="quick").settled()
    with pytest.raises(SettingsError, match=r"step_time must be 0 \(not known\) or a number of seconds, not -1"):
        Setup().changed(step_time=-1)
    with pytest.raises(SettingsError, match=r"parameters must be 0 \(not known\) or the number of values, not -1"):
        Setup().changed(parameters=-1)


def train(peer: Peer) -> int:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    peer.consensus()
    return peer.step


def test_a_swarm_without_a_launcher_trains_by_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert swarm(3, train, **KNOWN) == [3, 3, 3]
    assert "3 peers train together: osgp on one-peer-exponential" in caplog.text


def test_the_reason_is_logged_and_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with peers.join({}, run_dir=str(tmp_path), **KNOWN):
        pass
    assert "algorithm=auto: sgp with none: there is nobody to exchange with" in caplog.text
    events = [json.loads(line) for line in (tmp_path / "rank-0" / "events.jsonl").read_text().splitlines()]
    assert [one["text"] for one in events if one["event"] == "chosen"] == [
        "sgp with none: there is nobody to exchange with"
    ]
