"""A run that no launcher started can be watched and joined too, if it has a directory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from swarms import LONGEST, reserved_ports, together

import peers
from gossip.net.zmq_transport import new_keys
from launch.watch.invitation import read_invitation
from launch.watch.lookout import Lookout
from peers import Peer
from peers.invitations import JOIN, WATCH, Invitation, write_invitation


def attach(peer: Peer) -> None:
    model = torch.nn.Linear(2, 1)
    peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))


def looked(path: Path) -> list[int]:
    """Return the ranks of the swarm that an invitation shows."""
    with Lookout(read_invitation(path)) as lookout:
        return [member["rank"] for member in lookout.look(timeout=LONGEST)["members"]]


def test_a_swarm_of_one_invites(tmp_path: Path) -> None:
    with peers.join({}, run_dir=tmp_path / "run") as peer:
        attach(peer)
        for name in (JOIN, WATCH):
            path = tmp_path / "run" / name
            assert path.stat().st_mode & 0o777 == 0o600
            assert read_invitation(path).keys is None
            assert looked(path) == [0]


def test_without_a_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with peers.join({}):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_peers_of_a_store_admit_the_keys_of_rank_0s_invitations(tmp_path: Path, encrypted: bool) -> None:
    all_here, looks_over = threading.Barrier(2), threading.Barrier(2)

    def task(rank: int, port: int) -> None:
        environment = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        run_dir = tmp_path / f"of-{rank}"  # as on two machines
        keys = new_keys() if encrypted else None
        with peers.join(environment, run_dir=run_dir, keys=keys, start_timeout=LONGEST) as peer:
            attach(peer)
            all_here.wait(LONGEST)
            if rank == 0:
                for name in (JOIN, WATCH):
                    invitation = read_invitation(run_dir / name)
                    assert (invitation.keys is not None) is encrypted
                    assert len(invitation.members) == 2
                    for place, key in invitation.members.items():
                        one = tmp_path / "one.json"
                        write_invitation(one, Invitation({place: key}, invitation.keys))
                        assert looked(one) == [0, 1], place
            else:
                assert not (run_dir / JOIN).exists()
            looks_over.wait(LONGEST)

    with reserved_ports(1) as (port,):
        for result in together([lambda rank=rank: task(rank, port) for rank in range(2)]):  # type: ignore[misc]
            if isinstance(result, BaseException):
                raise result


def test_keys_that_nobody_else_knows_of_are_not_offered(tmp_path: Path) -> None:
    with peers.join({}, run_dir=tmp_path, keys=new_keys()) as peer:
        attach(peer)
        assert not (tmp_path / JOIN).exists()
