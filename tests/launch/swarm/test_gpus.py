"""Each peer of a machine sees one GPU. No GPU is needed: what lists them is a program of the test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import launch.swarm.gpus
from gossip.errors import SettingsError
from launch.options.options import LaunchOptions
from launch.swarm.gpus import gpu_for, visible_gpus
from launch.swarm.launching import planned
from peers.device import device_of
from peers.setup import Setup

VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def lister(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which nvidia-smi finds two GPUs, one of them in slices."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\n[ "$1" = -L ] || exit 2\n'
        "echo 'GPU 0: Some GPU (UUID: GPU-1)'\n"
        "echo '  MIG 1g.5gb Device 0: (UUID: MIG-1)'\n"
        "echo 'GPU 1: Some GPU (UUID: GPU-2)'\n"
    )
    program.chmod(0o755)
    return {"PATH": str(tmp_path)}


def test_peers_take_turns(lister: dict[str, str]) -> None:
    assert [gpu_for(rank, "auto", lister) for rank in range(5)] == [{VISIBLE: name} for name in "01010"]


def test_a_device_by_hand_leaves_all_gpus_to_all_peers(lister: dict[str, str]) -> None:
    assert [gpu_for(1, device, lister) for device in ("cpu", "cuda", "cuda:1")] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("2,3", ["2", "3"]),
        ("GPU-ab, GPU-cd", ["GPU-ab", "GPU-cd"]),
        ("", []),
        ("-1", []),
        ("1,-1,2", ["1"]),
    ],
)
def test_a_list_of_the_users_is_the_one_to_share_out(lister: dict[str, str], listed: str, names: list[str]) -> None:
    environment = {**lister, VISIBLE: listed}
    assert visible_gpus(environment) == names
    given = gpu_for(1, "auto", environment)
    assert given == ({VISIBLE: names[1 % len(names)]} if names else {})


def test_without_the_program_the_drivers_own_list_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PATH": str(tmp_path)}
    monkeypatch.setattr(launch.swarm.gpus, "_PROC", tmp_path / "gpus")
    assert visible_gpus(environment) == []
    for name in ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert visible_gpus(environment) == ["0", "1", "2"]


def test_a_lister_that_fails_counts_none(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    assert visible_gpus({"PATH": str(tmp_path)}) == []


@pytest.mark.parametrize(("device", "seen"), [("auto", ["7", "8", "7"]), ("cuda", [None] * 3)])
def test_the_plan_gives_each_peer_its_own(
    device: str, seen: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, "7,8")
    (tmp_path / "train.py").touch()
    plan, _ = planned(LaunchOptions(str(tmp_path / "train.py"), peers=3, device=device, run_dir=str(tmp_path / "run")))
    assert [plan.process(seat, {}).environment.get(VISIBLE) for seat in plan.seats] == seen


def test_the_one_gpu_that_a_peer_sees_is_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv(VISIBLE, "3")
    assert device_of(Setup(local_rank=3)) == torch.device("cuda:0")
    assert device_of(Setup(device="cuda:0")) == torch.device("cuda:0")
    with pytest.raises(SettingsError, match=r"device='cuda:3' does not exist: this process sees 1 GPUs .*=3\)"):
        device_of(Setup(device="cuda:3"))
