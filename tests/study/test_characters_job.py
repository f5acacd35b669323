"""The job of real processes that train a GPT: it is the study's training, in real time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from study_cases import trained
from torch import Tensor

from benchmarks import characters_job
from benchmarks.characters_job import BATCH, characters
from benchmarks.study.run import Run
from benchmarks.study.tasks import TASKS, Batches, Task, batches
from benchmarks.time_to_loss import ratio, until

STEPS = 6


def asked(**more: Any) -> dict[str, Any]:
    return {"method": "alone", "size": "tiny", "seed": 3, "steps": STEPS, "schedule": "cosine", "lr": 0.02, **more}


def test_a_process_trains_as_the_study_does() -> None:
    answer = characters(0, 1, asked(every=2))
    run = Run("sgp", "one-peer-exponential", 1, 0.02, 3, STEPS * BATCH, task="characters-tiny", batch=BATCH)
    _, outcome = trained(run.but(optimizer="adamw", clip=1.0, schedule="cosine"))
    assert answer["loss"] == answer["own"] == pytest.approx(outcome.validation_loss, abs=1e-10)
    assert [step for step, _, _ in answer["curve"]] == [2, 4, 6]
    assert answer["curve"][-1][2] == answer["loss"]
    assert [loss for _, _, loss in answer["curve"]] == pytest.approx(outcome.losses[1::2], abs=1e-10)


def test_ranks_have_samples_of_their_own_and_rank_0_speaks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt: list[set[int]] = []

    def watched(task: Task, mine: Tensor, batch: int, seed: int, rank: int) -> Batches:
        dealt.append(set(mine.tolist()))
        return batches(task, mine, batch, seed, rank)

    monkeypatch.setattr(characters_job, "batches", watched)
    answers = [characters(rank, 2, asked()) for rank in range(2)]
    assert dealt[0].isdisjoint(dealt[1])
    assert len(dealt[0] | dealt[1]) == len(TASKS["characters-tiny"]().inputs)
    assert ["loss" in answer for answer in answers] == [True, False]


def test_a_slow_one_waits_after_each_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(characters_job.time, "sleep", waits.append)
    slow = characters(0, 1, asked(slow=0, factor=3))
    assert len(waits) == STEPS
    assert min(waits) > 0
    assert characters(0, 1, asked(slow=1, factor=3))["loss"] == slow["loss"]
    assert len(waits) == STEPS


def test_a_limit_of_time_is_looked_at_where_the_model_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 2.0)  # a look at the clock takes two seconds
    monkeypatch.setattr(characters_job.time, "monotonic", clock.__next__)
    answer = characters(0, 1, asked(seconds=5.0, every=4))
    assert [(step, at) for step, at, _ in answer["curve"]] == [(4, 2.0), (8, 4.0), (12, 6.0)]
    assert answer["steps"] == 12


def test_a_loss_is_reached_when_it_stays() -> None:
    curve = [(1, 1.0, 3.0), (2, 2.0, 1.9), (3, 3.0, 2.1), (4, 4.0, 2.0), (5, 5.0, 1.8)]
    assert until(curve, 2.0) == 4.0
    assert until(curve, 3.0) == 1.0
    assert until(curve, 1.0) == float("inf")


def test_a_ddp_that_never_gets_there_counts_as_if_it_did_in_the_end() -> None:
    never = float("inf")
    assert ratio({"ddp": {"even": 30.0}, "osgp": {"even": 10.0}}, "osgp", "even", 60.0) == 3.0
    assert ratio({"ddp": {"even": never}, "osgp": {"even": 10.0}}, "osgp", "even", 60.0) == 6.0
    assert math.isnan(ratio({"ddp": {"even": never}, "osgp": {"even": never}}, "osgp", "even", 60.0))
