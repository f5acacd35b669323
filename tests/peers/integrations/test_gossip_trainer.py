"""The Trainer of transformers as a peer: data, schedule, checkpoints and the end are the swarm's."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from framework_processes import run_launched, run_together
from swarms import clean_environment

import peers
from gossip.errors import SettingsError

# What transformers itself is warned of is not ours.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]

#: Rank 0 is slow, and it is killed and started again. The others wait for it, or they would be through before that.
TROUBLE = ("--straggler", "0=4x", "--fault", "kill:0@6", "--restart", "1")
OPTIONS = {
    "num_train_epochs": 2,
    "gradient_accumulation_steps": 2,
    "max_grad_norm": 1.0,
    "logging_steps": 5,
    "lr_scheduler_type": "cosine",
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
}
#: The steps of a process that trains alone: two epochs of 96 samples, 4 in a batch, two batches in a step.
ALONE = 24


def test_two_trainers_share_the_data_and_agree(tmp_path: Path) -> None:
    zero, one = run_together("trainer_script.py", tmp_path, OPTIONS, [{}, {}])
    for said in (zero, one):
        assert said["after"] < said["before"] - 0.3
        assert said["steps"] == said["peer_steps"] < ALONE, "the other one has made some"
        assert said["epoch"] == pytest.approx(2.0)
        assert said["rates"][0] > 0.0095, "the cosine begins at the top"
        assert said["rates"][-1] < 0.0015, "and ends at the bottom for both, however many steps each has made"
    assert zero["norm"] == pytest.approx(one["norm"], rel=1e-3)
    assert zero["after"] == pytest.approx(one["after"], rel=1e-2)
    # Some batches may be trained by both at the end of an epoch.
    assert 192 <= zero["samples"] + one["samples"] <= 192 + 48
    # Rank 0 evaluates at the end of each epoch, rank 1 only when its script says so.
    assert [len(zero["evaluated"]), len(one["evaluated"])] == [3, 1]
    assert [zero["saved"], one["saved"]] == [2, 0]
    assert (zero["first"], one["first"]) == (True, False)
    assert len(list(tmp_path.glob("checkpoint-*/model.safetensors"))) == 2
    assert (tmp_path / "final" / "model.safetensors").exists()


def test_of_a_model_with_adapters_these_are_sent_and_agree(tmp_path: Path) -> None:
    options = {"num_train_epochs": 2, "save_strategy": "no", "lora": 2, "width": 128}
    zero, one = run_together("trainer_script.py", tmp_path, options, [{}, {}], srun=True)
    adapters, model = 4 * zero["trained"], 4 * zero["all"]
    assert adapters * 50 < model
    for said in (zero, one):
        assert said["after"] < said["before"] - 0.05
        # A step sends the adapters once, and a little beside them: headers, and what members tell each other.
        assert adapters * (said["steps"] - 2) < sum(said["sent"]) < (1.2 * adapters + 4096) * said["steps"]
        assert sum(said["sent"]) < model, "all steps together"
    assert zero["values"] == pytest.approx(one["values"], rel=1e-2, abs=1e-4)
    assert zero["frozen"] == one["frozen"]
    assert (tmp_path / "final" / "adapter_model.safetensors").exists()


@pytest.mark.timeout(500)
def test_a_swarm_goes_on_when_rank_0_is_slow_and_killed_and_comes_back(tmp_path: Path) -> None:
    options = {**OPTIONS, "num_train_epochs": 4, "bf16": True, "dataloader_num_workers": 1}
    back, one, two = run_launched("trainer_script.py", tmp_path, options, 3, *TROUBLE, PAUSE_AT="8")
    for said in (back, one, two):
        assert said["after"] < said["before"] - 0.3
        assert said["epoch"] == pytest.approx(4.0)
        assert said["rates"][-1] < 0.0015, "all come to the end of the cosine"
        assert said["values"] == pytest.approx(one["values"], rel=1e-2, abs=1e-3)
    assert one["rates"][0] > 0.0095
    assert back["rates"][0] < one["rates"][2], "who comes back begins where the others are"
    assert [said["first"] for said in (back, one, two)] == [True, False, False]
    assert len(list(tmp_path.glob("checkpoint-*/model.safetensors"))) == OPTIONS["save_total_limit"]
    assert (tmp_path / "final" / "model.safetensors").exists()


@pytest.mark.slow
def test_when_rank_0_is_killed_the_other_one_finishes_and_writes(tmp_path: Path) -> None:
    killed, said = run_together("trainer_script.py", tmp_path, OPTIONS, [{"KILL_AT": "4"}, {}])
    assert killed == -signal.SIGKILL
    assert said["first"]
    assert said["after"] < said["before"] - 0.3
    assert said["epoch"] == pytest.approx(2.0)
    assert said["rates"][-1] < 0.0015
    assert (tmp_path / "final" / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_a_swarm_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    more = ("--checkpoint-every", "5", "--stop-timeout", "100s")  # the machine may be busy
    stopped = run_launched(
        "trainer_script.py", tmp_path, OPTIONS, 2, *more, expected=130, KILL_AT="9", KILL_BY="launcher"
    )
    assert stopped == [None, None], "stopped in the middle"
    steps = [json.loads((tmp_path / f"run/rank-{rank}/summary.json").read_text())["steps"] for rank in range(2)]
    said = run_launched("trainer_script.py", tmp_path, OPTIONS, 2, *more, "--resume")
    for one, before in zip(said, steps, strict=True):
        assert one["peer_steps"] == before + len(one["rates"]), "no step is made twice"
        assert one["rates"][0] < 0.0099, "the cosine goes on in the middle"
        assert one["rates"][-1] < 0.0015
    # Each sample of each epoch once, and some twice at the ends of epochs.
    assert 192 <= said[0]["samples"] + said[1]["samples"] <= 240


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script as a module, in a process that no launcher has started."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    import trainer_script

    return trainer_script


def test_a_peer_goes_on_from_its_checkpoint_with_data_and_schedule(tmp_path: Path, script: Any) -> None:
    whole = script.main(str(tmp_path / "whole"), OPTIONS, {})
    assert (whole["steps"], whole["samples"], whole["epoch"]) == (ALONE, 192, 2.0)
    settings = {"run_dir": str(tmp_path / "run"), "checkpoint_every": 5}
    with pytest.raises(script.Stopped):
        script.main(str(tmp_path / "parts"), OPTIONS, settings, stop_at=12)
    rest = script.main(str(tmp_path / "parts"), OPTIONS, {**settings, "resume": True})
    assert (rest["steps"], rest["peer_steps"], rest["samples"]) == (ALONE, ALONE, 192)
    assert len(rest["rates"]) == ALONE - 10, "the checkpoint of step 10 was the last one"
    assert rest["rates"] == pytest.approx(whole["rates"][10:])


@pytest.mark.slow
def test_steps_and_parts_of_epochs_count_for_the_whole_swarm(tmp_path: Path, script: Any) -> None:
    said = script.main(str(tmp_path), {**OPTIONS, "max_steps": 15, "eval_strategy": "no", "save_strategy": "no"}, {})
    assert said["steps"] in (15, 16)
    assert said["rates"][-1] < 0.0015
    half = {**OPTIONS, "num_train_epochs": 0.5, "eval_strategy": "no", "save_strategy": "no"}
    assert script.main(str(tmp_path), half, {})["steps"] in (6, 7)


def test_with_allreduce_the_schedule_counts_steps_of_several_batches(tmp_path: Path, script: Any) -> None:
    options = {**OPTIONS, "eval_strategy": "no", "save_strategy": "no"}
    said = script.main(str(tmp_path), options, {"algorithm": "allreduce"})
    expected = [0.01 * (1 + math.cos(math.pi * step / ALONE)) / 2 for step in range(1, ALONE + 1)]
    assert said["rates"] == pytest.approx(expected, abs=1e-6)


def test_what_would_train_apart_is_refused(tmp_path: Path, script: Any) -> None:
    from transformers import Trainer

    from peers.integrations.transformers import GossipTrainer, GossipTrainerMixin

    class Mine(Trainer):  # type: ignore[misc]
        pass

    class Swarm(GossipTrainerMixin, Mine):
        pass

    def arguments(**options: Any) -> Any:
        return script.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **options)

    with peers.join({}, alone=True) as peer:
        model = torch.nn.Linear(1, 1)
        trainer = Swarm(model=model, args=arguments(), peer=peer)
        assert isinstance(trainer, Mine)
        with pytest.raises(SettingsError, match="resume_from_checkpoint=True: a checkpoint of the Trainer does not"):
            trainer.train(resume_from_checkpoint=True)
        with pytest.raises(SettingsError, match="train_dataset is None"):
            trainer.train()
        best = arguments(load_best_model_at_end=True, eval_strategy="epoch", save_strategy="epoch")
        with pytest.raises(SettingsError, match="load_best_model_at_end=True: the peers agree on one model"):
            GossipTrainer(model=model, args=best, eval_dataset=script.Texts(4), peer=peer)
