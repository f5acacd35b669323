"""``momentum=inferred``: which exchanges count, how far a first moment goes, and for which optimizers it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gossip import policies
from gossip.errors import SettingsError
from peers.methods.choosing import fit
from peers.methods.inferred_momentum import InferredMomentum
from peers.methods.method import Method, Methods
from peers.methods.swarm_variance import SwarmVariance
from peers.model.replica import Replica

RATE, EPS = 0.1, 1e-8
FIRST, SECOND = 0.9, 0.99


class One:
    """A model of 32 numbers in two shards, after its first step of Adam."""

    def __init__(self, rate: float = RATE) -> None:
        self.model = nn.Linear(32, 1, bias=False, dtype=torch.float64)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, betas=(FIRST, SECOND), eps=EPS)
        self.replica = Replica(self.model, 128)
        self.method = InferredMomentum(self.replica, self.optimizer)
        self.gradient = torch.linspace(-1, 1, 32, dtype=torch.float64)[None]
        self.model.weight.grad = self.gradient.clone()
        self.method.evaluated(lambda: 4.0)
        self.optimizer.step()
        self.method.end()

    @property
    def mean(self) -> torch.Tensor:
        """The first moment as if it had seen many gradients."""
        found: torch.Tensor = self.optimizer.state[self.model.weight]["exp_avg"] / (1 - FIRST)
        return found

    @torch.no_grad()
    def exchange(self, change: torch.Tensor | float) -> None:
        self.model.weight += change


def test_a_first_moment_is_changed_by_what_the_exchange_says() -> None:
    one = One()
    one.exchange(0.01 * one.gradient.sign())
    one.method.balanced({0, 1}, 1.0)
    scale = one.gradient.abs() + EPS
    torch.testing.assert_close(one.mean, one.gradient - scale / RATE * 0.01 / 2 * one.gradient.sign())


def test_a_slower_pace_takes_as_much_longer() -> None:
    one, other = One(), One()
    for each, pace in ((one, 1.0), (other, 0.25)):
        each.exchange(0.01 * each.gradient.sign())
        each.method.balanced({0, 1}, pace)
    torch.testing.assert_close(one.mean - one.gradient, 4 * (other.mean - other.gradient))


def test_only_shards_that_got_as_much_as_they_gave_count() -> None:
    one = One()
    one.exchange(0.01 * one.gradient.sign())
    one.method.balanced({1}, 1.0)
    changed = (one.mean - one.gradient).abs() > 1e-4
    assert not changed[0, :16].any()
    assert changed[0, 16:].all()


def test_no_move_becomes_longer_than_the_rate() -> None:
    one = One()
    one.exchange(1000.0)
    one.method.balanced({0, 1}, 1.0)
    torch.testing.assert_close(one.mean, -one.gradient.abs() - EPS)


def test_an_exchange_counts_once_and_a_rate_of_0_tells_nothing() -> None:
    one, still = One(), One(0.0)
    one.method.balanced({0, 1}, 1.0)
    for each in (one, still):
        each.exchange(0.01 * each.gradient.sign())
        each.method.balanced({0, 1}, 1.0)
        torch.testing.assert_close(each.mean, each.gradient)


def kinds(algorithm: str, optimizer: str, compress: str = "none", **options: bool) -> list[type]:
    model = nn.Linear(3, 2)
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **options)
    _, method = fit(policies.parse(algorithm), model, made, 1 << 20, compress=compress)
    return [type(one) for one in method._methods] if isinstance(method, Methods) else [type(method)]


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "dpsgd"])
def test_when_it_is_the_default(algorithm: str) -> None:
    both = [InferredMomentum, SwarmVariance]
    assert kinds(algorithm, "AdamW") == kinds(algorithm, "Adam") == both
    assert kinds(f"{algorithm}:momentum=inferred", "AdamW", "int8") == both
    assert kinds(f"{algorithm}:momentum=inferred,variance=own", "AdamW") == [InferredMomentum]
    assert kinds(algorithm, "AdamW", "int8") == kinds(algorithm, "NAdam") == [SwarmVariance]
    assert kinds(algorithm, "Adam", amsgrad=True) == kinds(f"{algorithm}:momentum=own", "Adam") == [SwarmVariance]
    assert kinds(algorithm, "SGD") == [Method]


@pytest.mark.parametrize("optimizer", ["SGD", "RAdam"])
def test_other_optimizers_are_refused_by_name(optimizer: str) -> None:
    with pytest.raises(SettingsError, match=f"needs Adam or AdamW without amsgrad, but the optimizer is {optimizer}"):
        kinds("sgp:momentum=inferred", optimizer)


def test_the_margin_goes_by_how_often_exchanges_are_late() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    method = SwarmVariance(torch.optim.Adam([parameter]), margin=3.0)
    assert method._stale == 1.0
    for _ in range(200):
        method.balanced({0}, 1.0)
    assert method._stale < 1e-4
    for _ in range(200):
        method.balanced(set(), 1.0)
    assert method._stale > 0.999
