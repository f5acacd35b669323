"""The Accelerator of accelerate as a peer: data, schedule, checkpoints and the one who writes are the swarm's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from framework_processes import run_together
from swarms import clean_environment
from torch.utils.data import DataLoader, WeightedRandomSampler

import peers
from gossip.errors import SettingsError

# What accelerate itself is warned of is not ours.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]

#: The steps of a process that trains alone: four epochs of 25 batches, two in a step.
ALONE = 52


def test_two_peers_share_the_data_and_agree(tmp_path: Path) -> None:
    zero, one = run_together("accelerate_script.py", tmp_path, {}, [{}, {}])
    for said in (zero, one):
        assert said["processes"] == 1, "not DDP beside gossip"
        assert said["dtype"] == "torch.float32", "bf16 is for the passes"
        assert said["clipped"] == said["steps"] < ALONE, "the other one has made some"
        assert said["rates"][0] > 0.095
        assert said["rates"][-1] < 0.005, "the cosine comes to its end at both"
        assert said["losses"][-1] < said["losses"][0]
        assert said["whole"] == 100, "only the first loader is shared out"
    assert zero["weights"] == pytest.approx(one["weights"], rel=1e-2)
    assert 400 <= zero["samples"] + one["samples"] <= 400 + 64
    assert (zero["first"], one["first"]) == ([True] * 4, [False] * 4)
    assert [file.name for file in tmp_path.glob("*.pt")] == ["of-0.pt"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the script as a module, in a process that no launcher has started."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    import accelerate_script
    from accelerate.state import AcceleratorState, GradientState

    def forget() -> None:  # accelerate has one state for all Accelerators of a process
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    forget()
    yield accelerate_script
    forget()


def test_a_peer_goes_on_from_its_checkpoint_with_data_and_schedule(tmp_path: Path, script: Any) -> None:
    whole = script.main(str(tmp_path), {}, {})
    assert (whole["steps"], whole["samples"]) == (ALONE, 400)
    settings = {"run_dir": str(tmp_path / "run"), "checkpoint_every": 5}
    with pytest.raises(script.Stopped):
        script.main(str(tmp_path), {}, settings, stop_at=32)
    rest = script.main(str(tmp_path), {}, {**settings, "resume": True})
    assert (rest["steps"], rest["samples"]) == (ALONE, 400)
    assert len(rest["rates"]) == ALONE - 30, "the checkpoint of step 30 was the last one"
    assert rest["rates"] == pytest.approx(whole["rates"][30:])
    assert rest["weights"] == pytest.approx(whole["weights"], rel=1e-5)


def test_a_schedule_of_epochs_goes_by_the_epochs_of_the_swarm(tmp_path: Path, script: Any) -> None:
    said = script.main(str(tmp_path), {"interval": "epoch"}, {})
    assert sorted(set(said["rates"]), reverse=True) == pytest.approx([0.1, 0.0853553, 0.05, 0.0146447, 0.0], abs=1e-6)


def test_what_would_train_apart_is_refused(script: Any) -> None:
    from peers.integrations.accelerate import GossipAccelerator

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(script.data(8), batch_size=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with peers.join({}, alone=True) as peer:
        with pytest.raises(SettingsError, match="interval must be one of step, epoch, not 'batch'"):
            GossipAccelerator(peer, interval="batch")
        with pytest.raises(SettingsError, match="StepLR is given to prepare without its optimizer"):
            GossipAccelerator(peer).prepare(scheduler)
        with pytest.raises(SettingsError, match="Linear, SGD: prepare got no loader of training data"):
            GossipAccelerator(peer).prepare(model, optimizer)
        with pytest.raises(SettingsError, match="SGD, DataLoader: prepare got 0 models"):
            GossipAccelerator(peer).prepare(optimizer, loader)
        with pytest.raises(SettingsError, match="prepare got 2 optimizers, and a peer has one"):
            GossipAccelerator(peer).prepare(model, optimizer, optimizer, loader)
        with pytest.raises(SettingsError, match="input_dir='x': a state of accelerate does not hold where"):
            GossipAccelerator(peer).load_state("x")
        drawn = DataLoader(script.data(8), batch_size=2, sampler=WeightedRandomSampler([1.0] * 8, 8))
        with pytest.raises(SettingsError, match="loader: its sampler is a WeightedRandomSampler"):
            GossipAccelerator(peer).prepare(drawn)
        elsewhere = SimpleNamespace(device=torch.device("meta"), at_end=lambda _: None, is_first=True, rank=0)
        with pytest.raises(
            SettingsError, match="device=cpu is what accelerate has chosen, and the peer has chosen meta"
        ):
            GossipAccelerator(elsewhere, cpu=True)  # type: ignore[arg-type]


def test_a_scheduler_that_is_stepped_once_in_an_epoch_is_noticed(script: Any) -> None:
    from peers.integrations.accelerate import GossipAccelerator

    model = torch.nn.Linear(2, 1)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with peers.join({}, alone=True) as peer:
        accelerator = GossipAccelerator(peer)
        loader: Any = DataLoader(script.data(16), batch_size=2)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

        def train() -> None:
            for _ in range(3):
                for x, y in loader:
                    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
                    optimizer.step()
                scheduler.step()

        with pytest.raises(SettingsError, match=r"called step\(\) 1 times in an epoch of 8 steps"):
            train()


def test_processes_that_were_found_before_the_peer_are_refused(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import Accelerator

    from peers.integrations.accelerate import GossipAccelerator

    assert script
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with (
        peers.join({}, alone=True) as peer,
        pytest.raises(SettingsError, match=r"num_processes=2 and distributed_type=.*: accelerate has found"),
    ):
        GossipAccelerator(peer)
