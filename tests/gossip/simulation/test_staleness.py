"""Peers that share a model, in step and not: decision 30."""

from __future__ import annotations

import pytest
import torch

from benchmarks.staleness import MOMENTUM, Momenta, largest_rate, moved


def test_in_step_it_is_the_optimizer_on_the_mean_gradient() -> None:
    """A parabola for each of three peers: the mean of their gradients is that of their mean."""
    centres = [torch.tensor([1.0, -2.0]), torch.tensor([0.5, 4.0]), torch.tensor([-3.0, 1.0])]
    momenta: Momenta[torch.Tensor] = Momenta()
    found = moved(
        torch.zeros(2),
        lambda rank, _, seen: momenta.move(rank, seen - centres[rank], 0.1),
        steps=20,
        first=20,
        seed=0,
        peers=3,
    )
    expected = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([expected], lr=0.1, momentum=MOMENTUM, nesterov=True)
    for _ in range(20):
        optimizer.zero_grad()
        (0.5 * (expected - sum(centres) / 3).square().sum()).backward()
        optimizer.step()
    torch.testing.assert_close(found, expected.detach())


def test_everybody_makes_its_steps_and_sees_the_model_that_it_began_with() -> None:
    calls: list[tuple[int, int, float]] = []

    def move(rank: int, step: int, seen: torch.Tensor) -> torch.Tensor:
        calls.append((rank, step, seen.item()))
        return torch.ones(1)

    z = moved(torch.zeros(1), move, steps=5, first=2, seed=3, peers=4)
    assert z.item() == pytest.approx(5.0)
    for rank in range(4):
        assert [step for one, step, _ in calls if one == rank] == list(range(5))
    assert [seen for _, step, seen in calls if step < 2] == [0.0] * 4 + [1.0] * 4
    assert [seen for _, step, seen in calls if step == 2] == [2.0] * 4, "all begin with what the steps in step left"
    later = [(place, seen) for place, (_, step, seen) in enumerate(calls) if step > 2]
    assert all(seen < place / 4 for place, seen in later), "what others did since is not seen"


def test_not_in_step_the_largest_stable_rate_is_little_more_than_half() -> None:
    in_step = largest_rate(in_step=True)
    assert in_step == pytest.approx(2 * (1 + MOMENTUM) / (1 + 2 * MOMENTUM), rel=0.01), "the textbook's"
    assert 0.5 < largest_rate(in_step=False) / in_step < 0.65
