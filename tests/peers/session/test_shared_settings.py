"""Settings that all peers need alike: peers that differ refuse to train, and each says where the difference is."""

from __future__ import annotations

import threading
from hashlib import blake2b
from typing import Any

import msgpack
import pytest
import torch
from swarms import LONGEST, Meeting, reserved_ports, together

import peers
from peers import Peer
from peers.session.rendezvous import StartError
from peers.session.shared_settings import SettingsAgreement
from peers.setup import Setup


def attach(peer: Peer) -> torch.optim.Optimizer:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    return optimizer


@pytest.mark.parametrize(
    ("name", "here", "there"),
    [("algorithm", "osgp", "adpsgd"), ("topology", "ring", "base"), ("compress", "none", "int8"), ("seed", 0, 7)],
)
def test_peers_of_a_list_of_hosts_refuse_settings_that_differ(name: str, here: Any, there: Any) -> None:
    settings: dict[str, Any] = {"topology": "ring", "start_timeout": LONGEST}

    def act(rank: int) -> str:
        own = settings | {name: there if rank == 2 else here}
        with peers.join({}, rank=rank, hosts=hosts, **own) as peer, pytest.raises(StartError) as error:
            attach(peer)
        return str(error.value)

    with reserved_ports(3) as ports:
        hosts = [f"127.0.0.1:{port}" for port in ports]
        said = together([lambda rank=rank: act(rank) for rank in range(3)])
    for rank in (0, 1):
        assert f"rank {rank} has {name}={here!r}, and rank 2 has {name}={there!r}" in said[rank]
    assert f"rank 2 has {name}={there!r}, and rank " in said[2]


def test_a_newcomer_with_other_settings_refuses_and_the_swarm_trains_on() -> None:
    meeting = Meeting(2)
    founders = [meeting.peer(rank) for rank in range(2)]
    optimizers = together([lambda peer=peer: attach(peer) for peer in founders])
    founders[1].close()
    newcomer = meeting.peer(1, incarnation=1000, contacts=(str(meeting.cards[0].endpoint),), algorithm="adpsgd")

    over = threading.Event()

    def train_on() -> str:
        while not over.is_set():
            optimizers[0].step()
        optimizers[0].step()
        founders[0].close()
        return ""

    def enter() -> str:
        said = ""
        try:
            optimizer = attach(newcomer)
            while not over.wait(0):
                optimizer.step()
        except StartError as error:
            said = str(error)
        newcomer.close()
        over.set()
        return said

    assert "rank 1 has algorithm='adpsgd', and rank 0 has algorithm='osgp'" in together([enter, train_on])[0]


def agreement(rank: int = 0, incarnation: int = 0, **changes: Any) -> SettingsAgreement:
    return SettingsAgreement(Setup(rank=rank, world_size=4, incarnation=incarnation, **changes).settled())


def test_a_difference_is_passed_on_to_those_who_are_no_neighbours() -> None:
    one, between, other = agreement(0), agreement(1), agreement(3, share=0.5)
    assert between.merge(other.encode())
    assert not between.merge(other.encode()), "heard twice, new once"
    assert one.merge(between.encode())
    assert one.conflict.startswith("rank 0 has other settings (world_size, algorithm, ")
    assert other.merge(between.encode()), "who hears of another variant says what its own is"
    assert between.merge(other.encode())
    assert one.merge(between.encode())
    assert "rank 0 has share=1.0, and rank 3 has share=0.5" in one.conflict


def test_peers_that_agree_add_few_bytes_to_the_news() -> None:
    """News go to the neighbours with every step."""
    one, other = agreement(0), agreement(1, algorithm="osgp")
    one.merge(other.encode())
    assert len(one.encode()) < 20


def test_a_swarm_that_trains_passes_no_other_settings_on() -> None:
    member, newcomer, bad = agreement(0), agreement(2, incarnation=1000), agreement(3, seed=5, incarnation=1000)
    member.close()
    newcomer.merge(member.encode())
    for one in (member, newcomer):
        assert one.merge(bad.encode()), "its own settings are told"
        assert not one.merge(bad.encode())
        assert not one.conflict
        bad.merge(one.encode())
        assert bad.conflict.startswith("rank 3 has seed=5, and rank 0 has seed=0")


def variant(text: str, rank: object = 1, digest: bytes = b"") -> bytes:
    packed: bytes = msgpack.packb({digest or blake2b(text.encode(), digest_size=8).digest(): [rank, text]})
    return packed


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", msgpack.packb([1]), msgpack.packb({"text": 1}), msgpack.packb({b"12345678": 1}), variant("{}", "a"),
     variant("{}", digest=b"short"), variant("{}", digest=b"12345678"), variant("nonsense"), variant("[1]"),
     variant("x" * 5000), variant("{}", -1), variant("{}", True)],
)  # fmt: skip
def test_hostile_bytes_are_no_settings(data: bytes) -> None:
    here = agreement()
    before = here.encode()
    with pytest.raises(ValueError, match=r"not msgpack|must be|no map|Expecting|digest"):
        here.merge(data)
    assert not here.conflict
    assert here.encode() == before
