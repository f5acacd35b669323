"""The rate follows the swarm's size: warm-up, ramps, other schedulers, checkpoints, and a swarm that loses a peer."""

from __future__ import annotations

import io
import threading

import pytest
import torch
from swarms import LONGEST, Meeting
from torch.optim.lr_scheduler import StepLR

from gossip import presets
from gossip.errors import SettingsError
from peers import Peer
from peers.optimizers import LARS
from peers.optimizers.warmup import LinearScaling
from peers.state.state_dicts import flatten, unflatten


class Swarm:
    """A swarm whose size the test sets."""

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def view(self) -> tuple[int, ...]:
        return tuple(range(self.size))


def sgd(*rates: float) -> torch.optim.SGD:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups, lr=1.0)


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def walk(optimizer: torch.optim.Optimizer, scheduler: LinearScaling, steps: int) -> list[float]:
    """Return the rate of the first group before each step."""
    found = []
    for _ in range(steps):
        found.append(rates(optimizer)[0])
        optimizer.step()
        scheduler.step()
    return found


def test_the_rate_grows_from_that_of_one_to_that_of_all() -> None:
    optimizer = sgd(0.1, 0.02)
    scheduler = LinearScaling(optimizer, Swarm(5), warmup=4)
    assert walk(optimizer, scheduler, 7) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5])
    assert rates(optimizer) == pytest.approx([0.5, 0.1])
    assert scheduler.factor == 5
    assert scheduler.get_last_lr() == pytest.approx([0.5, 0.1])


def test_without_a_warm_up_it_is_that_of_all_at_once() -> None:
    optimizer = sgd(0.1)
    scheduler = LinearScaling(optimizer, lambda: 8)
    assert walk(optimizer, scheduler, 3) == pytest.approx([0.8, 0.8, 0.8])


@pytest.mark.parametrize(("size", "first", "last"), [(8, 1.0, 2.0), (4, 1.0, 1.0), (2, 0.5, 0.5)])
def test_a_rate_that_was_chosen_for_more_than_one(size: int, first: float, last: float) -> None:
    optimizer = sgd(1.0)
    scheduler = LinearScaling(optimizer, lambda: size, warmup=10, reference=4)
    assert rates(optimizer)[0] == pytest.approx(first)
    walk(optimizer, scheduler, 10)
    assert rates(optimizer)[0] == pytest.approx(last)


def test_a_peer_lost_and_two_won() -> None:
    optimizer, swarm = sgd(1.0), Swarm(4)
    scheduler = LinearScaling(optimizer, swarm, ramp=4)
    assert walk(optimizer, scheduler, 2) == [4.0, 4.0]
    swarm.size = 2
    assert walk(optimizer, scheduler, 6) == pytest.approx([4.0, 3.5, 3.0, 2.5, 2.0, 2.0])
    swarm.size = 4
    assert walk(optimizer, scheduler, 3) == pytest.approx([2.0, 2.5, 3.0])
    swarm.size = 7  # in the midst of a ramp: from where it is, which is 3.5
    assert walk(optimizer, scheduler, 6) == pytest.approx([3.5, 4.375, 5.25, 6.125, 7.0, 7.0])


def test_a_change_during_the_warm_up_does_not_shorten_it() -> None:
    optimizer, swarm = sgd(1.0), Swarm(11)
    scheduler = LinearScaling(optimizer, swarm, warmup=10, ramp=2)
    assert walk(optimizer, scheduler, 4) == pytest.approx([1, 2, 3, 4])
    swarm.size = 17  # from 5, in the six steps that are left
    assert walk(optimizer, scheduler, 8) == pytest.approx([5, 7, 9, 11, 13, 15, 17, 17])


def test_no_ramp_is_a_jump_and_nobody_is_no_size() -> None:
    optimizer, swarm = sgd(1.0), Swarm(4)
    scheduler = LinearScaling(optimizer, swarm, ramp=0)
    swarm.size = 6
    assert walk(optimizer, scheduler, 3) == [4.0, 6.0, 6.0]
    swarm.size = 0
    assert walk(optimizer, scheduler, 3) == [6.0, 6.0, 6.0]


def test_it_goes_together_with_another_scheduler() -> None:
    optimizer, swarm = sgd(1.0), Swarm(3)
    scheduler, decay = LinearScaling(optimizer, swarm, warmup=2, ramp=2), StepLR(optimizer, 4, gamma=0.1)
    found = []
    for step in range(10):
        found.append(rates(optimizer)[0])
        if step == 5:
            swarm.size = 5
        optimizer.step()
        scheduler.step()
        decay.step()
    assert found == pytest.approx([1, 2, 3, 3, 0.3, 0.3, 0.4, 0.5, 0.05, 0.05])


@pytest.mark.parametrize("way", ["torch", "checkpoint"])
def test_a_run_that_is_resumed_in_the_midst_of_a_ramp_is_the_same_run(way: str) -> None:
    optimizer, swarm = sgd(1.0, 0.5), Swarm(4)
    scheduler = LinearScaling(optimizer, swarm, warmup=3, ramp=6)
    walk(optimizer, scheduler, 5)
    swarm.size = 9
    walk(optimizer, scheduler, 2)
    state = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    if way == "torch":
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
    else:
        state = unflatten(*flatten(state))
    again = sgd(1.0, 0.5)
    resumed = LinearScaling(again, Swarm(9), warmup=3, ramp=6)
    again.load_state_dict(state["optimizer"])
    resumed.load_state_dict(state["scheduler"])
    assert walk(again, resumed, 8) == walk(optimizer, scheduler, 8)
    assert rates(again) == rates(optimizer) == pytest.approx([9.0, 4.5])


def test_a_swarm_that_is_smaller_after_a_restart_is_followed() -> None:
    optimizer = sgd(1.0)
    scheduler = LinearScaling(optimizer, lambda: 8, ramp=2)
    walk(optimizer, scheduler, 3)
    again = sgd(1.0)
    resumed = LinearScaling(again, lambda: 4, ramp=2)
    again.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert walk(again, resumed, 4) == pytest.approx([8.0, 6.0, 4.0, 4.0])


def test_made_anew_for_rates_of_a_run_that_goes_on() -> None:
    optimizer = sgd(1.0)
    scheduler = LinearScaling(optimizer, lambda: 5, warmup=4)
    walk(optimizer, scheduler, 2)
    resumed = LinearScaling(optimizer, lambda: 5, warmup=4, last_epoch=2)
    assert walk(optimizer, resumed, 3) == pytest.approx([4.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"warmup": -1}, "warmup and ramp must be 0 or more steps"),
        ({"ramp": -1}, "warmup and ramp must be 0 or more steps"),
        ({"reference": 0}, "reference, a number of peers, must be above 0"),
        ({"reference": float("nan")}, "reference, a number of peers, must be above 0"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, float], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        LinearScaling(sgd(1.0), lambda: 1, **settings)


def test_with_lars_the_rate_of_real_peers_follows_when_one_leaves() -> None:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    rate = 0.5
    all_are_there, both_have_looked = threading.Barrier(3), threading.Barrier(2)

    def body(peer: Peer) -> tuple[float, list[float], float, float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = LARS(model.parameters(), lr=rate, trust=0.02)
        peer.attach(model, optimizer)
        scheduler = LinearScaling(optimizer, peer, ramp=4)
        losses = []

        def step() -> None:
            loss = (model(x) - x.roll(1, 1)).square().mean()
            losses.append(float(loss.detach()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()

        for _ in range(10):
            step()
        before = scheduler.factor
        all_are_there.wait(LONGEST)
        if peer.rank < 2:
            while 2 in peer.view:
                step()
            for _ in range(5):  # the ramp, and one more, for a view that changed after the scheduler had looked
                step()
            both_have_looked.wait(LONGEST)
        return before, rates(optimizer), scheduler.factor, losses[-1] / losses[0]

    first, second, left = Meeting(3).run(body, presets.preset("loopback"))
    assert left[:3] == (3.0, pytest.approx([3 * rate]), 3.0)
    for before, found, factor, fallen in (first, second):
        assert before == 3.0
        assert factor == pytest.approx(2.0)
        assert found == pytest.approx([2 * rate])
        assert fallen < 0.9
