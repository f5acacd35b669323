"""Schedules on the swarm's clock: the rates of a run alone, at the fraction that the swarm has done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from swarms import LONGEST, Meeting, flat, swarm
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from gossip import presets
from gossip.errors import SettingsError
from peers import Peer, SwarmProgress, SwarmSchedule

STEPS = 40
Make = Callable[[torch.optim.Optimizer], LRScheduler]


def sequential(optimizer: torch.optim.Optimizer) -> LRScheduler:
    parts = [LinearLR(optimizer, 0.1, total_iters=10), CosineAnnealingLR(optimizer, STEPS - 10)]
    return SequentialLR(optimizer, parts, milestones=[10])


KINDS: dict[str, Make] = {
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 1 - step / STEPS),
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, STEPS),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, 1.0, total_steps=STEPS + 1),
    "sequential": sequential,
}


class Clock:
    """A swarm whose progress the test sets."""

    def __init__(self) -> None:
        self.progress = SwarmProgress()

    def set(self, fraction: float, loop: int = 0) -> None:
        self.progress = replace(self.progress, fraction=fraction, loop=loop)


def made(kind: str) -> tuple[torch.optim.SGD, LRScheduler]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    return optimizer, KINDS[kind](optimizer)


def alone(kind: str) -> list[float]:
    """Return the rate of each step of a process that trains alone."""
    optimizer, scheduler = made(kind)
    rates = []
    for _ in range(STEPS + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) <= STEPS:
            scheduler.step()
    return rates


def rate_in_step(optimizer: torch.optim.SGD) -> float:
    """Make a step, and return the rate that it was made with."""
    optimizer.step()
    rate: float = optimizer.param_groups[0]["lr"]
    return rate


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_is_that_of_the_fraction_however_many_steps_were_made(kind: str) -> None:
    expected = alone(kind)
    clock = Clock()
    optimizer, scheduler = made(kind)
    schedule = SwarmSchedule(scheduler, clock, STEPS)
    for fraction in (0.0, 0.0, 0.01, 0.2, 0.2, 0.26, 0.51, 0.5, 0.99, 1.0, 1.0):
        clock.set(fraction)
        place = max(int(fraction * STEPS), int(0.51 * STEPS) if fraction == 0.5 else 0)
        assert rate_in_step(optimizer) == pytest.approx(expected[place])
        schedule.step()
        assert schedule.get_last_lr() == [pytest.approx(expected[place])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_restarted_peer_makes_its_first_step_with_the_rate_of_the_others(kind: str) -> None:
    clock = Clock()
    optimizer, scheduler = made(kind)
    SwarmSchedule(scheduler, clock, STEPS)
    clock.set(0.75)
    assert rate_in_step(optimizer) == pytest.approx(alone(kind)[30])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_brings_it_back(kind: str) -> None:
    clock = Clock()
    optimizer, scheduler = made(kind)
    schedule = SwarmSchedule(scheduler, clock, STEPS)
    clock.set(0.5)
    optimizer.step()
    again, other = made(kind)
    resumed = SwarmSchedule(other, clock, STEPS)
    again.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    for fraction in (0.5, 0.8, 1.0):
        clock.set(fraction)
        assert rate_in_step(again) == pytest.approx(alone(kind)[int(fraction * STEPS)])


def test_it_follows_the_loop_it_was_made_for() -> None:
    clock = Clock()
    clock.set(1.0, loop=0)
    optimizer, scheduler = made("lambda")
    SwarmSchedule(scheduler, clock, STEPS)
    assert rate_in_step(optimizer) == 1.0, "the loop before is over; this one has not begun"
    clock.set(0.5, loop=1)
    assert rate_in_step(optimizer) == 0.5
    clock.set(0.0, loop=2)
    assert rate_in_step(optimizer) == 0.0


def test_it_can_follow_one_loop_after_the_other() -> None:
    clock = Clock()
    optimizer, scheduler = made("lambda")
    SwarmSchedule(scheduler, clock, STEPS // 4, every_loop=True)
    for loop, fraction, rate in [(-1, 0.0, 1.0), (0, 0.5, 0.875), (0, 1.0, 0.75), (1, 0.0, 0.75), (3, 0.5, 0.125)]:
        clock.set(fraction, loop)
        assert rate_in_step(optimizer) == pytest.approx(rate)


def test_where_all_move_alike_it_counts_steps() -> None:
    clock = Clock()
    clock.progress = SwarmProgress(fraction=0.9, loop=0, step_share=0.1)
    optimizer, scheduler = made("lambda")
    schedule = SwarmSchedule(scheduler, clock, STEPS)
    rates = []
    for _ in range(12):
        rates.append(rate_in_step(optimizer))
        schedule.step()
    assert rates == pytest.approx([*(1 - step / 10 for step in range(11)), 0.0])


def test_what_cannot_work_is_refused() -> None:
    optimizer, scheduler = made("lambda")
    with pytest.raises(SettingsError, match="ReduceLROnPlateau does not count steps"):
        SwarmSchedule(ReduceLROnPlateau(optimizer), Clock(), STEPS)
    for steps in (0, 2.5, True):
        with pytest.raises(SettingsError, match="steps must be a whole number of at least 1"):
            SwarmSchedule(scheduler, Clock(), steps)  # type: ignore[arg-type]
    state = SwarmSchedule(scheduler, Clock(), STEPS).state_dict()
    with pytest.raises(SettingsError, match="steps=41, and the state is that of a schedule for 40 steps"):
        SwarmSchedule(scheduler, Clock(), 41).load_state_dict(state)


def train(peer: Peer, seen: list[float], *, wait: Callable[[], Any] = lambda: None, stop_at: int = 0) -> torch.Tensor:
    """Train with a cosine, note the rate of each step, and return the values at the end."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    schedule = SwarmSchedule(CosineAnnealingLR(optimizer, STEPS), peer, STEPS)
    peer.attach(model, optimizer, also={"schedule": schedule})
    for batch in peer.batches(torch.ones(STEPS, 2), 1, 1):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        seen.append(optimizer.param_groups[0]["lr"])
        if peer.step == stop_at:
            break
        wait()
    return flat(model)


def test_a_slow_peer_decays_as_the_others() -> None:
    """Rank 1 makes three steps: one at the start, and the others when rank 0 has done nearly all."""
    nearly = threading.Event()
    rates: dict[int, list[float]] = {0: [], 1: []}

    def body(peer: Peer) -> None:
        if peer.rank:
            train(peer, rates[1], wait=lambda: nearly.wait(LONGEST))
        else:
            train(peer, rates[0], wait=lambda: len(rates[0]) > STEPS - 8 and nearly.set())
            nearly.set()
        peer.consensus(must_agree=False)

    swarm(2, body, preset=presets.preset("loopback"), algorithm="osgp")
    assert len(rates[1]) < 15
    for seen in rates.values():
        assert seen[0] > 9e-4, "both begin at the rate of the beginning"
        assert seen[-1] < 1e-4, "and end at that of the end"


def test_where_gradients_are_averaged_all_have_the_same_rate_in_each_step() -> None:
    rates: dict[int, list[float]] = {0: [], 1: []}
    values = swarm(2, lambda peer: train(peer, rates[peer.rank]), algorithm="allreduce")
    assert rates[0] == rates[1]
    assert torch.equal(values[0], values[1])
    # A step of both is a twentieth of the loop, and so two steps of the scheduler.
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    scheduler = CosineAnnealingLR(optimizer, STEPS)
    optimizer.step()
    scheduler.step()
    scheduler.step()
    assert rates[0][:2] == [1e-3, pytest.approx(optimizer.param_groups[0]["lr"])]


def test_a_checkpoint_holds_it(tmp_path: Path) -> None:
    half = STEPS // 2
    whole: list[float] = []
    Meeting(1).run(lambda peer: train(peer, whole))
    parts: list[float] = []
    setup: dict[str, Any] = {"run_dir": str(tmp_path), "checkpoint_every": half}
    Meeting(1, **setup).run(lambda peer: train(peer, parts, stop_at=half + 1))
    del parts[half:]
    Meeting(1, **setup, resume=True).run(lambda peer: train(peer, parts))
    assert parts == pytest.approx(whole)
