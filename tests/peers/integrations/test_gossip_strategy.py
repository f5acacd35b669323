"""The Trainer of Lightning as a peer: data, schedule, checkpoints and the end are the swarm's."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from framework_processes import run_launched, run_together
from swarms import clean_environment
from torch.utils.data import DataLoader, IterableDataset

import peers
from gossip.errors import SettingsError

# What lightning itself is warned of is not ours.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]

#: Rank 0 is slow, and it is killed and started again. The others wait for it, or they would be through before that.
TROUBLE = ("--straggler", "0=4x", "--fault", "kill:0@6", "--restart", "1")
OPTIONS = {"max_epochs": 4, "accumulate_grad_batches": 2}


def test_two_trainers_share_the_data_and_agree(tmp_path: Path) -> None:
    zero, one = run_together("lightning_script.py", tmp_path, OPTIONS, [{}, {}], srun=True)
    for said in (zero, one):
        assert said["estimated"] == 48, "as of one process that trains alone"
        assert said["steps"] == said["peer_steps"] < 48, "the other one has made some"
        assert said["rates"][0] > 0.095
        assert said["rates"][-1] < 0.01, "the cosine comes to its end at both"
        # How far the first epoch of a peer comes depends on how many steps the other one makes meanwhile.
        assert said["validated"][-1] < min(said["validated"][0], 5)
    assert zero["weights"] == pytest.approx(one["weights"], rel=1e-2)
    assert 384 <= zero["samples"] + one["samples"] <= 384 + 96
    assert (zero["first"], one["first"]) == (True, False)
    assert (zero["logs"], one["logs"]) == (True, False)
    assert len(list(tmp_path.rglob("*.ckpt"))) == 1


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_swarm_goes_on_when_rank_0_is_slow_and_killed_and_comes_back(tmp_path: Path) -> None:
    options = {**OPTIONS, "max_epochs": 6, "precision": "bf16-mixed", "workers": 1}
    back, one, two = run_launched("lightning_script.py", tmp_path, options, 3, *TROUBLE, PAUSE_AT="8")
    for said in (back, one, two):
        assert said["fraction"] == 1.0
        assert said["rates"][-1] < 0.01, "all come to the end of the cosine"
        assert said["validated"][-1] < 4, "5.3 is what a model knows that knows nothing"
        assert said["weights"] == pytest.approx(one["weights"], rel=1e-2)
    assert one["rates"][0] > 0.095
    assert back["rates"][0] < one["rates"][2], "who comes back begins where the others are"
    assert [said["first"] for said in (back, one, two)] == [True, False, False]
    assert len(list(tmp_path.rglob("*.ckpt"))) >= 1


def test_sigterm_ends_a_peer_at_its_boundary_with_a_checkpoint(tmp_path: Path) -> None:
    record = {"GOSSIP_RUN_DIR": str(tmp_path / "run"), "GOSSIP_CHECKPOINT_EVERY": "5"}
    stopped = {"KILL_AT": "9", "KILL_BY": str(int(signal.SIGTERM)), **record}
    assert run_together("lightning_script.py", tmp_path, OPTIONS, [stopped], expected=[143]) == [143]
    summary = json.loads((tmp_path / "run/rank-0/summary.json").read_text())
    saved = [path.name for path in (tmp_path / "run/rank-0/checkpoints").iterdir()]
    assert f"step-{summary['steps']:08}" in saved
    assert summary["steps"] in (9, 10)


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_a_swarm_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    more = ("--checkpoint-every", "5", "--stop-timeout", "100s")  # the machine may be busy
    stopped = run_launched(
        "lightning_script.py", tmp_path, OPTIONS, 2, *more, expected=130, KILL_AT="9", KILL_BY="launcher"
    )
    assert stopped == [None, None], "stopped in the middle"
    steps = [json.loads((tmp_path / f"run/rank-{rank}/summary.json").read_text())["steps"] for rank in range(2)]
    said = run_launched("lightning_script.py", tmp_path, OPTIONS, 2, *more, "--resume")
    for one, before in zip(said, steps, strict=True):
        assert one["peer_steps"] == before + one["steps"], "no step is made twice"
        assert one["rates"][0] < 0.099, "the cosine goes on in the middle"
        assert one["rates"][-1] < 0.01
    # Each sample of each epoch once, and some twice at the ends of epochs.
    assert 384 <= said[0]["samples"] + said[1]["samples"] <= 480


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script as a module, in a process that no launcher has started."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    import lightning_script

    return lightning_script


def test_a_peer_goes_on_from_its_checkpoint_with_data_and_schedule(tmp_path: Path, script: Any) -> None:
    settings = {"run_dir": str(tmp_path / "run"), "checkpoint_every": 10}
    with pytest.raises(script.Stopped):
        script.main(str(tmp_path / "parts"), dict(OPTIONS), settings, stop_at=25)
    rest = script.main(str(tmp_path / "parts"), dict(OPTIONS), {**settings, "resume": True})
    assert rest["fraction"] == 1.0
    assert 0.04 < rest["rates"][0] < 0.07, "the cosine goes on in the middle"
    assert rest["rates"][-1] < 0.001
    assert rest["peer_steps"] in (48, 49, 50)
    assert rest["samples"] == 384


@pytest.mark.slow
def test_a_schedule_of_epochs_goes_by_the_epochs_of_the_swarm(tmp_path: Path, script: Any) -> None:
    said = script.main(str(tmp_path), {**OPTIONS, "interval": "epoch"}, {})
    assert sorted(set(said["rates"]), reverse=True) == pytest.approx([0.1, 0.0853553, 0.05, 0.0146447, 0.0], abs=1e-6)


def test_what_cannot_be_shared_out_is_refused(tmp_path: Path, script: Any) -> None:
    from lightning.pytorch import Trainer

    from peers.integrations.lightning import GossipStrategy

    class Stream(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Any:
            yield torch.zeros(2)

    class Two(script.Line):  # type: ignore[misc, name-defined]
        automatic_optimization = False

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)], []

    class Plain(script.Line):  # type: ignore[misc, name-defined]
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(module: Any, loader: Any, **options: Any) -> None:
        with peers.join({}, alone=True) as peer:
            trainer = Trainer(
                strategy=GossipStrategy(peer),
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                default_root_dir=str(tmp_path),
                **{"max_epochs": 1, **options},
            )
            trainer.fit(module, loader)

    items = [(torch.zeros(2), torch.zeros(1))] * 8
    with pytest.raises(SettingsError, match="configure_optimizers returns 2 optimizers, and a peer has one"):
        fit(Two("step"), DataLoader(items, batch_size=2))
    with pytest.raises(SettingsError, match="loader: a range of training data cannot be shared out"):
        fit(script.Line("step"), range(8))
    with pytest.raises(SettingsError, match="loader: its batch_size is None"):
        fit(script.Line("step"), DataLoader(items, batch_size=None))
    with pytest.raises(SettingsError, match="Stream has no length and index"):
        fit(script.Line("step"), DataLoader(Stream(), batch_size=2))
    with pytest.raises(SettingsError, match="max_epochs=-1 and max_steps=-1 have no end"):
        fit(Plain("step"), DataLoader(items, batch_size=2), max_epochs=-1)
