"""Settings: arguments, else the environment of a launcher, else a swarm of one; and errors that say what to do."""

from __future__ import annotations

import json
import os
import re
import runpy
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from swarms import more_than, nothing_left, reserved_ports

import peers
from gossip.errors import SettingsError
from gossip.net.transport import TransportError
from gossip.net.zmq_transport import new_keys
from peers.session.cards import RendezvousError
from peers.setup import Setup, from_environment

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
SLURM = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0"}


def test_without_anything_a_peer_is_a_swarm_of_one() -> None:
    setup = from_environment({})
    assert (setup.rank, setup.world_size, setup.hosts, setup.run_dir) == (0, 1, (), "")


def test_torchrun_comes_before_slurm_and_both_are_read() -> None:
    torchrun = from_environment({**SLURM, **TORCHRUN})
    assert (torchrun.rank, torchrun.world_size, torchrun.local_rank) == (1, 4, 1)
    slurm = from_environment({**SLURM, "MASTER_ADDR": "a", "MASTER_PORT": "1"})
    assert (slurm.rank, slurm.world_size, slurm.local_rank) == (2, 3, 0)
    assert from_environment({"RANK": "0", "WORLD_SIZE": "1"}).local_rank == 0


def test_an_environment_that_says_nonsense_is_named() -> None:
    with pytest.raises(SettingsError, match="WORLD_SIZE='many' in the environment must be a whole number"):
        from_environment({**TORCHRUN, "WORLD_SIZE": "many"})
    with pytest.raises(
        SettingsError, match="SLURM_LOCALID='-1' in the environment must be a whole number of 0 or more"
    ):
        from_environment({**SLURM, "SLURM_LOCALID": "-1"})


def test_arguments_come_before_the_environment_and_none_is_no_wish() -> None:
    setup = from_environment(TORCHRUN).changed(rank=0, world_size=2, run="mine", topology=None)
    assert (setup.rank, setup.world_size, setup.local_rank, setup.run) == (0, 2, 1, "mine")
    assert setup.topology == Setup().topology
    assert setup.environment["MASTER_PORT"] == "1"


def test_no_topology_is_what_suits_the_algorithm_that_is_used_in_the_end() -> None:
    setup = from_environment(TORCHRUN)
    assert setup.changed(algorithm="dpsgd").settled().topology == "base"
    assert setup.settled().changed(algorithm="sgp").settled().topology == "one-peer-exponential"
    assert setup.changed(algorithm="adpsgd", topology="ring").settled().topology == "ring"


def test_hosts_say_how_many_there_are_and_one_string_is_one_item() -> None:
    setup = Setup().changed(rank=2, hosts=["a:1", "b:2", "c:3"], faults="kill rank 1 at step 5")
    assert (setup.world_size, setup.hosts) == (3, ("a:1", "b:2", "c:3"))
    assert setup.faults == ("kill rank 1 at step 5",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rnak": 1}, "'rnak' is not an argument of peers.join; the arguments are: .*rank"),
        ({"environment": {}}, "'environment' is not an argument of peers.join"),
        ({"rank": 3, "world_size": 3}, "rank 3 is out of range: with 3 peers, ranks are 0 to 2"),
        ({"rank": -1, "world_size": 3}, "rank -1 is out of range: with 3 peers, ranks are 0 to 2"),
        ({"hosts": ["a:1"], "world_size": 2}, "hosts lists 1 addresses for 2 peers"),
        ({"start_timeout": 0}, "start_timeout must be a number of seconds above 0"),
        ({"share": 0}, "share must be a fraction above 0 and at most 1, not 0"),
        ({"share": float("nan")}, "share must be a fraction above 0"),
        ({"start_timeout": -1}, "start_timeout must be a number of seconds above 0, not -1"),
        ({"start_timeout": float("inf")}, "start_timeout must be a number of seconds above 0, not inf"),
        ({"start_timeout": float("nan")}, "start_timeout must be a number of seconds above 0"),
        ({"checkpoint_every": -1, "run_dir": "x"}, "checkpoint_every must be 0"),
        ({"checkpoint_keep": 0, "run_dir": "x"}, "checkpoint_keep must be 1 or more"),
        ({"checkpoint_every": 5}, "need a directory for checkpoints: set run_dir"),
        ({"resume": True}, "need a directory for checkpoints: set run_dir"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Setup().changed(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "moon"}, "moon"),
        ({"faults": "earthquake"}, "earthquake"),
        ({"device": "abacus"}, "device='abacus' is not a device: use auto, cpu, cuda or cuda:1"),
        ({"hosts": ["localhost"]}, "is not of the form host:port"),
        ({"hosts": ["localhost:99999"]}, "the port must be a number from 0 to 65535"),
        ({"bind": "0.0.0.0:0"}, "gossip keygen DIR.*or say insecure"),
        (
            {"hosts": ["127.0.0.1:0"], "public_keys": [new_keys().public.decode()]},
            "keys=None with 1 public_keys: rank 0 needs its key pair",
        ),
        ({"rank": 0, "world_size": 2}, "MASTER_ADDR and MASTER_PORT must be set for 2 peers to find each other"),
    ],
)
def test_a_join_that_cannot_work_says_why_and_leaves_nothing(arguments: dict[str, object], message: str) -> None:
    before = nothing_left()
    with pytest.raises(SettingsError, match=message):
        peers.join({}, **arguments)
    assert more_than(before) == (set(), {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": "3"}, "seed must be a whole number, not '3' of type str"),
        ({"rank": True}, "rank must be a whole number, not True of type bool"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"start_timeout": "long"}, "start_timeout must be a number, not 'long' of type str"),
        ({"run_dir": 3}, "run_dir must be text"),
        ({"topology": ["base"]}, "topology must be text"),
        ({"resume": "no"}, "resume must be True or False, not 'no' of type str"),
        ({"hosts": 3}, "hosts must be a list of texts, not 3"),
        ({"hosts": [3]}, "hosts must be a list of texts"),
        ({"keys": "secret"}, "keys must be a gossip.keys.KeyPair"),
        ({"world_size": 0}, "world_size must be 1 or more, not 0"),
        ({"hosts": ["127.0.0.1:1", "127.0.0.1:1"], "rank": 0}, "hosts lists 127.0.0.1:1 more than once"),
        ({"hosts": ["127.0.0.1:1", "127.0.0.1:2"]}, "rank=None with 2 hosts: nothing says which of them"),
    ],
)
def test_settings_of_another_type_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        peers.join({}, **arguments)


def test_a_setting_without_a_name_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'osgp' is given to peers\.join without a name"):
        peers.join("osgp")  # type: ignore[arg-type]


def test_what_stands_for_a_setting_is_taken(tmp_path: Path) -> None:
    found = Setup().changed(run_dir=tmp_path, seed=np.int64(3), device=torch.device("cpu"), start_timeout=5)
    assert (found.run_dir, found.seed, found.device, found.start_timeout) == (str(tmp_path), 3, "cpu", 5)
    assert type(found.seed) is int


def test_every_setting_has_a_kind() -> None:
    default = Setup()
    names = {one.name for one in fields(default)} - {"environment", "birth"}
    given = {name: getattr(default, name) for name in names}
    assert default.changed(**given) == default


def test_slurm_that_names_no_node_says_what_to_set_unless_hosts_are_listed() -> None:
    with pytest.raises(SettingsError, match="MASTER_ADDR and MASTER_PORT must be set for 3 peers"):
        peers.join(SLURM)
    with reserved_ports(3) as ports, peers.join(SLURM, hosts=[f"127.0.0.1:{port}" for port in ports]) as peer:
        assert (peer.rank, peer.world_size, peer.view) == (2, 3, (0, 1, 2))


def test_a_master_in_the_environment_counts_for_ranks_that_are_arguments() -> None:
    with reserved_ports(2) as ports:
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])}
        bind = f"127.0.0.1:{ports[1]}"
        with pytest.raises(RendezvousError, match="rank 1 of 2 peers did not come") as caught:
            peers.join(environment, rank=0, world_size=2, start_timeout=3.0, bind=bind)
        with peers.join({}, bind=bind):  # given back already, although the error is still held
            assert caught.value is not None


def test_a_port_that_is_taken_is_named() -> None:
    with peers.join({}) as peer:
        taken = str(peer._transport.endpoint)
        with pytest.raises(TransportError, match=f"cannot listen on {taken}"):
            peers.join({}, bind=taken)


def test_alone_a_peer_is_all_there_is() -> None:
    with peers.join({}) as peer:
        assert (peer.rank, peer.world_size, peer.view, peer.step, peer.samples) == (0, 1, (0,), 0, 0)
        assert peer.device == torch.device("cpu") or torch.cuda.is_available()
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        seen = []
        for batch in peer.batches(range(10), 4, 2):
            seen += batch.tolist()
            optimizer.step()
        assert sorted(seen) == sorted([*range(10), *range(10)])
        assert (peer.weight, peer.consensus()) == (1.0, 0.0)
        assert peer.evaluate(lambda: 5) == (5, 5)


def test_a_device_that_is_asked_for_is_taken() -> None:
    with peers.join({}, device="cuda:1") as peer:
        assert peer.device == torch.device("cuda:1")


def test_the_launcher_tells_everything_and_hears_how_it_went() -> None:
    before = nothing_left()
    reading, write = os.pipe()
    read, writing = os.pipe()
    with reserved_ports(1) as ports:
        setup = {"rank": 0, "world_size": 1, "run": "told", "bind": f"127.0.0.1:{ports[0]}", "seed": 7}
        card = [0, f"127.0.0.1:{ports[0]}", None]
        os.write(write, json.dumps({"setup": setup}).encode() + b"\n" + json.dumps({"cards": [card]}).encode() + b"\n")
        environment = {"GOSSIP_CHANNEL": f"{reading},{writing}", **TORCHRUN}

        def train() -> None:
            with peers.join(environment, seed=None, local_rank=0) as peer:
                assert (peer._setup.run, peer._setup.seed, peer.world_size) == ("told", 7, 1)
                model = torch.nn.Linear(2, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                peer.attach(model, optimizer)
                peer.log(loss=0.25)
                peer._reporter._reported = 0.0
                optimizer.step()
                raise ArithmeticError("\N{GRINNING FACE}" * 1000)

        with pytest.raises(ArithmeticError):
            train()
    told = [json.loads(line) for line in os.read(read, 1 << 16).splitlines()]
    os.close(write)
    os.close(read)
    assert told[0] == {"card": card}
    statuses = [one["status"] for one in told if "status" in one]
    assert [one["state"] for one in statuses[:2]] == ["preparing", "training"]
    assert statuses[0]["rank"] == 0
    assert (statuses[-1]["step"], statuses[-1]["loss"], statuses[-1]["neighbours"]) == (1, 0.25, 0)
    assert told[-1]["ended"].startswith("failed: ArithmeticError: \N{GRINNING FACE}")
    assert more_than(before) == (set(), {})


def test_a_worker_that_runs_the_script_again_is_told_what_the_script_lacks(tmp_path: Path) -> None:
    """As multiprocessing imports the script of its parent."""
    script = tmp_path / "train.py"
    script.write_text("import peers\npeers.join()\n")
    with pytest.raises(peers.PeerError, match=r'train\.py is run a second time.* if __name__ == "__main__"'):
        runpy.run_path(str(script), run_name="__mp_main__")
    script.write_text("import peers\ndef work(): peers.join().close()\n")
    runpy.run_path(str(script), run_name="__mp_main__")["work"]()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": "4"}, "RANK is not: set RANK to the number of this process, from 0 to 3"),
        ({"RANK": "0"}, "WORLD_SIZE is not: set WORLD_SIZE to the number of peers"),
    ],
)
def test_half_of_the_environment_is_refused(environment: dict[str, str], said: str) -> None:
    """A swarm of one, in each process, would train without a word."""
    with pytest.raises(SettingsError, match=said):
        peers.join(environment)


def test_an_environment_for_one_process_is_a_swarm_of_one(caplog: pytest.LogCaptureFixture) -> None:
    with peers.join({"WORLD_SIZE": "1"}) as peer:
        assert peer.world_size == 1
    assert "trains alone" not in caplog.text
    # In the script of sbatch there is even a rank, and in the shell of salloc there may be a step.
    batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    with peers.join(batch) as peer:
        assert peer.world_size == 1
    with peers.join({**batch, "SLURM_STEP_ID": str(0xFFFFFFFA)}) as peer:
        assert peer.world_size == 1
    assert "trains alone, though Slurm has allocated 8 tasks: start the script with srun" in caplog.text
