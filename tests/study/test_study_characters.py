"""Character-level runs of the study: AdamW, clipping and schedule are what the formulas say; the text and the model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from study_cases import N, replicas, trained
from torch import nn
from torch.nn import functional

from benchmarks import python_text
from benchmarks.gpt import GPT
from benchmarks.study.learner import SCHEDULES
from benchmarks.study.run import Run
from benchmarks.study.tasks import TASKS, batches, deal
from topologies import parse
from topologies.analysis import mixing_matrix

ROUNDS, BATCH, RATE, CLIP = 12, 4, 0.02, 0.5


def characters(algorithm: str, **options: object) -> Run:
    run = Run(algorithm, "one-peer-exponential", N, RATE, 0, ROUNDS * N * BATCH, task="characters-tiny", batch=BATCH)
    return run.but(jitter=0.0, optimizer="adamw", clip=CLIP, schedule="cosine", **options)


class Reference:
    """The tiny GPT of one peer and AdamW with decoupled decay of matrices, by its formulas in numpy."""

    def __init__(self, run: Run, rank: int) -> None:
        task = TASKS[run.task]()
        self.data = batches(task, deal(task.kinds, run.peers, 0.0, run.seed)[rank], run.batch, run.seed, rank)
        self.model = task.model(run.seed)
        self.z = np.concatenate([one.detach().numpy().ravel() for one in self.model.parameters()])
        decays = [np.full(one.numel(), 0.1 * (one.dim() > 1)) for one in self.model.parameters()]
        self.decay = np.concatenate(decays)
        self.first, self.second, self.count = np.zeros_like(self.z), np.zeros_like(self.z), 0

    def gradient(self) -> np.ndarray:
        nn.utils.vector_to_parameters(torch.from_numpy(self.z), self.model.parameters())
        text, following = next(self.data)
        chances = functional.log_softmax(self.model(text), -1)
        loss = -chances.gather(-1, following[..., None]).mean()
        found = torch.autograd.grad(loss, list(self.model.parameters()))
        return np.concatenate([one.numpy().ravel() for one in found])

    def moved(self, gradient: np.ndarray) -> np.ndarray:
        """Return where a step of AdamW leads, by a gradient that is clipped here."""
        norm = np.linalg.norm(gradient)
        self.clipped = norm > CLIP
        gradient = gradient * min(1.0, CLIP / (norm + 1e-6))
        self.count += 1
        share = self.count / ROUNDS
        rate = RATE * (share / 0.05 if share < 0.05 else 0.1 + 0.45 * (1 + math.cos(math.pi * (share - 0.05) / 0.95)))
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.99 * self.second + 0.01 * gradient**2
        mean, square = self.first / (1 - 0.9**self.count), self.second / (1 - 0.99**self.count)
        return self.z * (1 - rate * self.decay) - rate * mean / (np.sqrt(square) + 1e-8)


def test_allreduce_clips_and_moves_by_the_average_gradient() -> None:
    run = characters("allreduce")
    swarm, outcome = trained(run)
    peers = [Reference(run, rank) for rank in range(N)]
    clipped = []
    for _ in range(ROUNDS - 1):  # the last gradients are put in, and their average comes after the run
        mean = np.mean([peer.gradient() for peer in peers], axis=0)
        for peer in peers:
            peer.z = peer.moved(mean)
        clipped.append(peers[0].clipped)
    np.testing.assert_allclose(replicas(swarm), np.stack([peer.z for peer in peers]), rtol=0, atol=1e-10)
    assert any(clipped)
    assert outcome.disagreement == 0


@pytest.mark.parametrize(
    ("algorithm", "megabits"),
    [("sgp:variance=own", 1000.0), ("osgp:variance=own", 12.0)],  # 12: an exchange takes a quarter of a step
)
def test_peers_in_step_clip_and_move_by_themselves(algorithm: str, megabits: float) -> None:
    run = characters(algorithm, megabits=megabits)
    swarm, _ = trained(run)
    peers = [Reference(run, rank) for rank in range(N)]
    schedule = parse("one-peer-exponential", N, seed=0)
    for step in range(ROUNDS):
        stack = np.stack([peer.moved(peer.gradient()) for peer in peers])
        if step + 1 < ROUNDS:
            stack = mixing_matrix(schedule, step) @ stack
        for peer, row in zip(peers, stack, strict=True):
            peer.z = row
    np.testing.assert_allclose(replicas(swarm), stack, rtol=0, atol=1e-10)


def test_a_run_tells_the_validation_loss_of_the_average_model() -> None:
    swarm, outcome = trained(characters("sgp"))
    task = swarm.task
    model = task.model(0)
    mean = torch.from_numpy(replicas(swarm).mean(0))
    nn.utils.vector_to_parameters(mean, model.parameters())
    with torch.no_grad():
        chances = functional.log_softmax(model(task.test_inputs), -1)
    right = chances.gather(-1, task.test_targets[..., None])
    assert outcome.validation_loss == pytest.approx(-float(right.mean()), abs=1e-12)
    assert outcome.accuracy == pytest.approx(100 * float((chances.argmax(-1) == task.test_targets).double().mean()))
    assert outcome.losses[-1] == outcome.validation_loss < outcome.losses[0]
    assert len(outcome.losses) == len(outcome.curve)


def test_equal_seeds_give_equal_bits_and_all_methods_the_same_samples() -> None:
    (one, first), (two, second) = trained(characters("osgp")), trained(characters("osgp"))
    assert replicas(one).tobytes() == replicas(two).tobytes()
    assert first.losses == second.losses
    other, _ = trained(characters("allreduce"))
    for mine, theirs in zip(one._dealt, other._dealt, strict=True):
        assert torch.equal(mine, theirs)


def test_a_schedule_warms_up_and_falls_to_a_tenth_or_to_nothing() -> None:
    cosine, whole = SCHEDULES["cosine"], SCHEDULES["cosine to 0"]
    assert [whole(share) for share in (0.01, 0.05, 0.525, 1.0, 1.2)] == pytest.approx([0.2, 1.0, 0.5, 0.0, 0.0])
    assert [cosine(share) for share in (0.01, 0.05, 0.525, 1.0, 1.2)] == pytest.approx([0.2, 1.0, 0.55, 0.1, 0.1])
    assert SCHEDULES["constant"](0.3) == 1.0


def test_no_file_is_trained_with_and_held_out() -> None:
    (text, ends), (held_out, held_ends) = python_text.text()
    assert (len(text), len(held_out)) == (ends[-1], held_ends[-1])
    assert len(ends) // 9 == len(held_ends)
    assert 0 <= int(text.min()) <= int(text.max()) < python_text.VOCABULARY
    starts = {text[start : start + 400].numpy().tobytes() for start in [0, *ends[:-1].tolist()]}
    held_starts = {held_out[start : start + 400].numpy().tobytes() for start in [0, *held_ends[:-1].tolist()]}
    assert starts.isdisjoint(held_starts)
    assert python_text.encoded("a\t\u00e9~ \n".encode()) == bytes([66, 95, 1, 0])


def test_windows_tile_the_text_and_say_what_follows() -> None:
    seen, following = python_text.windows(torch.arange(20), 6)
    assert seen.tolist() == [list(range(start, start + 6)) for start in (0, 6, 12)]
    assert torch.equal(following, seen + 1)


def test_samples_know_their_file() -> None:
    task = TASKS["characters-tiny"]()
    (_, ends), _ = python_text.text()
    for sample in (0, 1, len(task.inputs) // 2, len(task.inputs) - 1):
        begin = sample * task.inputs.shape[1]
        file = int(task.kinds[sample])
        assert (int(ends[file - 1]) if file else 0) <= begin < int(ends[file])


def test_the_model_sees_nothing_of_what_follows() -> None:
    torch.manual_seed(0)
    model = GPT(11, block=8, layers=2, width=16, heads=2)
    text = torch.randint(11, (3, 8))
    changed = text.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 11
    before, after = model(text), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])
    assert model(text[:, :3]).shape == (3, 3, 11)


@pytest.mark.parametrize(("size", "parameters"), [("tiny", 4_912), ("small", 108_864), ("base", 808_064)])
def test_the_models_are_as_large_as_they_are_said_to_be(size: str, parameters: int) -> None:
    model = TASKS[f"characters-{size}"]().model(0)
    assert sum(one.numel() for one in model.parameters()) == parameters
