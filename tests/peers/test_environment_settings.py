"""Settings by environment: which variables there are, how they are read, and what wins over them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from swarms import LONGEST_PROCESS, clean_environment

import peers
from gossip.errors import SettingsError
from launch.options.options import LaunchOptions
from peers.environment_settings import VARIABLES, settings_from, variable_of
from peers.hidden_environment import HiddenEnvironment
from peers.setup import Setup

SECRET = {"keys", "contact_keys", "invitation", "join_key", "watch_key", "public_keys", "insecure"}


def test_every_setting_has_a_variable_but_for_keys_and_what_a_launcher_counts() -> None:
    without = {one.name for one in fields(Setup)} - {name for name, _ in VARIABLES.values()}
    assert without >= SECRET
    assert without - SECRET == {
        *("incarnation", "birth", "elapsed", "killed", "contacts", "environment", "crews_across_hosts")
    }
    assert variable_of("run_dir") == "GOSSIP_RUN_DIR"
    assert variable_of("keys") == ""


def test_each_kind_of_value_is_read() -> None:
    found = settings_from(
        {
            "GOSSIP_TOPOLOGY": "ring",
            "GOSSIP_SEED": "7",
            "GOSSIP_SHARE": "0.25",
            "GOSSIP_RESUME": "yes",
            "GOSSIP_TENSORBOARD": "0",
            "GOSSIP_HOSTS": "a:1,b:2 c:3",
            "GOSSIP_FAULTS": "cut:0,1@5s drop:5%",
            "GOSSIP_COMPRESS": "",
            "GOSSIP_CHANNEL": "3,4",
            "GOSSIP_SSH": "ssh -F config",
            "GOSSIP_REMOTE_PYTHON": "python3",
            "PATH": "/bin",
        }
    )
    assert found == {
        "topology": "ring",
        "seed": 7,
        "share": 0.25,
        "resume": True,
        "tensorboard": False,
        "hosts": ("a:1", "b:2", "c:3"),
        "faults": ("cut:0,1@5s", "drop:5%"),
    }


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GOSSIP_SEED", "x", "GOSSIP_SEED='x' in the environment must be a whole number"),
        ("GOSSIP_SHARE", "much", "GOSSIP_SHARE='much' in the environment must be a number"),
        ("GOSSIP_RESUME", "maybe", "GOSSIP_RESUME='maybe' in the environment must be 1 or 0"),
        (
            "GOSSIP_TOPOLGY",
            "ring",
            "GOSSIP_TOPOLGY in the environment is not a setting: the nearest one is GOSSIP_TOPO",
        ),
        ("GOSSIP_METRIC_PORT", "9", "is not a setting: the nearest one is GOSSIP_METRICS_PORT"),
        ("GOSSIP_KEYS", "secret", "GOSSIP_KEYS cannot be set by environment: give keys to peers.join"),
        ("GOSSIP_INSECURE", "1", "GOSSIP_INSECURE cannot be set by environment"),
    ],
)
def test_what_is_wrong_is_named(variable: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings_from({variable: value})
    with pytest.raises(SettingsError, match=message):
        peers.join({variable: value})


def test_what_kubernetes_says_of_a_service_is_no_setting() -> None:
    service = {
        "GOSSIP_SERVICE_HOST": "10.0.0.1",
        "GOSSIP_SERVICE_PORT": "7000",
        "GOSSIP_SERVICE_PORT_HTTP": "7000",
        "GOSSIP_PORT": "tcp://10.0.0.1:7000",
        "GOSSIP_PORT_7000_TCP": "tcp://10.0.0.1:7000",
        "GOSSIP_PORT_7000_TCP_ADDR": "10.0.0.1",
        "GOSSIP_METRICS_PORT": "tcp://10.0.0.2:9400",
    }
    assert settings_from(service) == {}


def test_arguments_win_over_the_environment_and_what_is_out_of_range_is_traced_to_it() -> None:
    environment = {"GOSSIP_ALGORITHM": "sgp", "GOSSIP_SEED": "7", "GOSSIP_SHARE": "7", "GOSSIP_RUN_DIR": ""}
    with pytest.raises(SettingsError, match=r"share.*\(set in the environment: GOSSIP_SHARE\)"):
        peers.join(environment)
    with pytest.raises(SettingsError, match="share") as caught:
        peers.join(environment, share=8.0)
    assert "GOSSIP" not in str(caught.value)
    with peers.join(environment, share=0.5, algorithm="osgp", seed=None) as peer:
        assert (peer._setup.share, peer._setup.algorithm, peer._setup.seed) == (0.5, "osgp", 7)


def test_an_argument_completes_what_the_environment_asks_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="set run_dir"):
        peers.join({"GOSSIP_CHECKPOINT_EVERY": "5"})
    with peers.join({"GOSSIP_CHECKPOINT_EVERY": "5"}, run_dir=tmp_path) as peer:
        assert peer._setup.checkpoint_every == 5


def test_torchrun_knows_better_who_a_process_is() -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "1", "GOSSIP_RANK": "0", "GOSSIP_SEED": "3"}
    with peers.join(environment) as peer:
        assert (peer.rank, peer.world_size, peer._setup.seed) == (0, 1, 3)
    hosts = {"GOSSIP_HOSTS": "127.0.0.1:1,127.0.0.1:2"}
    with pytest.raises(SettingsError, match="nothing says which of them this process is"):
        peers.join(hosts)
    with pytest.raises(SettingsError, match=r"rank 2 is out of range.*GOSSIP_RANK"):
        peers.join({**hosts, "GOSSIP_RANK": "2"})


def test_the_launcher_takes_the_same_variables_where_nothing_else_is_said(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    LaunchOptions.add_to(parser)
    for name in ("script", "arguments"):
        parser.add_argument(name, nargs="?")
    file = tmp_path / "config.toml"
    file.write_text('seed = 5\ncompress = "bf16"\n')
    environment = {
        "GOSSIP_SEED": "1",
        "GOSSIP_COMPRESS": "int8",
        "GOSSIP_TOPOLOGY": "ring",
        "GOSSIP_RUN_DIR": "runs/mine",
        "GOSSIP_STOP_WITHIN": "3",
        "GOSSIP_RANK": "2",
    }
    options = LaunchOptions.gathered(parser.parse_args(["--compress", "fp16"]), file, environment)
    assert (options.compress, options.seed, options.topology) == ("fp16", 5, "ring")
    assert (options.run_dir, options.stop_timeout) == ("runs/mine", 3.0)
    assert options.told()["topology"] == "ring"
    with pytest.raises(SettingsError, match="GOSSIP_SEEDS in the environment is not a setting"):
        LaunchOptions.gathered(parser.parse_args([]), None, {"GOSSIP_SEEDS": "1"})


def test_a_launcher_is_hidden_and_comes_back() -> None:
    environment = {
        "RANK": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "a",
        "SLURM_JOB_ID": "5",
        "TORCHELASTIC_RUN_ID": "x",
        "OMPI_COMM_WORLD_RANK": "1",
        "HOME": "/root",
        "GOSSIP_SEED": "1",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    before = dict(environment)
    hidden = HiddenEnvironment(environment)
    assert environment.keys() == {"HOME", "GOSSIP_SEED", "CUDA_VISIBLE_DEVICES"}
    environment["MASTER_ADDR"] = "new"
    hidden.restore()
    hidden.restore()
    assert environment == {**before, "MASTER_ADDR": "new"}


_SCRIPT = """
import os, peers
with peers.join(alone=True) as peer:
    assert "WORLD_SIZE" not in os.environ and "SLURM_JOB_ID" not in os.environ
    print(peer._setup.topology, peer._setup.seed)
assert os.environ["WORLD_SIZE"] == "1" and os.environ["SLURM_JOB_ID"] == "9"
try:
    with peers.join(alone=True):
        raise KeyError
except KeyError:
    assert os.environ["RANK"] == "0"
"""


def test_a_process_is_alone_until_its_peer_has_ended() -> None:
    more = {"RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": "9", "GOSSIP_TOPOLOGY": "ring", "GOSSIP_SEED": "4"}
    assert "RANK" not in os.environ
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=clean_environment(**more),
        capture_output=True,
        text=True,
        timeout=LONGEST_PROCESS,
    )
    assert (result.stdout, result.returncode) == ("ring 4\n", 0), result.stderr
