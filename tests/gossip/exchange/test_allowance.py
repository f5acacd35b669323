"""Waits of a method that need not wait: what they cost at most, and that equals stay in step."""

from __future__ import annotations

import pytest
from hand_swarm import PAIR, Hand, only, parcel

from gossip import events, policies
from gossip.errors import SettingsError
from gossip.exchange.allowance import Allowance
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm

STEP = 2.0


def wasted(steps: int, part: float = 0.1) -> float:
    """Return the step times that a neighbour costs which never comes."""
    allowance, waited = Allowance(part), 0.0
    for step in range(steps):
        allowance.step_ended()
        if wait := allowance.wait(1, step * STEP, STEP):
            waited += wait / STEP
            allowance.in_vain(1)
    return waited


def test_who_never_comes_costs_less_and_less() -> None:
    assert wasted(1) == 1.0
    assert wasted(39) == 1.0
    assert wasted(45) == pytest.approx(2.0)
    assert wasted(10_000) < 10_000 * 0.003


def test_who_is_usually_in_time_is_waited_for() -> None:
    allowance = Allowance(0.1)
    now = 0.0
    for _ in range(100):
        allowance.step_ended()
        wait = allowance.wait(1, now, STEP)
        assert wait >= 0.05 * STEP
        allowance.arrived(1, 0.05 * STEP, now + 0.05 * STEP, STEP)
        now += 1.05 * STEP


@pytest.mark.parametrize(("late", "always"), [(0.3, True), (0.8, False)])
def test_a_wait_that_can_be_afforded_in_every_step_is_had_in_every_step(late: float, always: bool) -> None:
    """And one that cannot is given up, though it would not be in vain."""
    allowance, now, waited = Allowance(0.35), 0.0, 0
    for _ in range(200):
        allowance.step_ended()
        if wait := allowance.wait(1, now, STEP):
            assert wait >= late * STEP
            waited += 1
        now += late * STEP
        allowance.arrived(1, late * STEP, now, STEP)
    assert waited == 200 if always else waited < 10


def test_who_is_in_time_again_is_waited_for_again() -> None:
    allowance = Allowance(0.35)
    waits = []
    for step in range(300):
        late = STEP * (0.9 if step < 100 else 0.2)
        allowance.step_ended()
        waits.append(allowance.wait(1, 10 * step, STEP))
        allowance.arrived(1, late, 10 * step + late, STEP)
    assert sum(wait > 0 for wait in waits[50:100]) <= 1
    assert all(waits[-100:])


def test_it_is_saved_up_for_one_that_is_behind_by_half_a_step() -> None:
    allowance = Allowance(0.1)
    allowance.wait(1, 0.0, STEP)
    allowance.in_vain(1)
    waits = []
    for step in range(1, 200):
        allowance.step_ended()
        waits.append(allowance.wait(1, step * STEP, STEP))
        if waits[-1]:
            allowance.arrived(1, 0.5 * STEP, step * STEP + 0.5 * STEP, STEP)
            break
        allowance.arrived(1, 0.5 * STEP, step * STEP + 0.5 * STEP, STEP)
    assert waits[:-1] == [0.0] * (len(waits) - 1)
    assert 0.5 * STEP < waits[-1] <= STEP
    allowance.step_ended()
    assert allowance.wait(1, 1e6, STEP) == 0.0, "spent"


def test_all_shards_of_a_step_share_a_wait() -> None:
    allowance = Allowance(0.1)
    assert allowance.wait(1, 0.0, STEP) == STEP
    assert allowance.wait(1, 0.5, STEP) == STEP - 0.5
    assert allowance.wait(1, 3.0, STEP) == 0.0


def test_without_a_part_nobody_is_waited_for() -> None:
    assert Allowance(0.0).wait(1, 0.0, STEP) == 0.0


def test_a_neighbour_that_left_is_forgotten() -> None:
    allowance = Allowance(0.1)
    allowance.wait(1, 0.0, STEP)
    allowance.in_vain(1)
    assert allowance.wait(1, STEP, STEP) == 0.0
    allowance.forget(1)
    assert allowance.wait(1, STEP, STEP) == STEP


def proceeds(effects: list) -> bool:
    return bool(only(effects, events.Proceed))


def test_osgp_waits_for_the_turn_of_one_that_is_nearly_there() -> None:
    hand = Hand(1.0, 4.0, turns=[PAIR], algorithm="osgp:tau=3")
    assert proceeds(hand.step(0)), "nobody knows yet how long a step is"
    hand.now = 1.0
    assert not proceeds(hand.step(0)), "turn 1, though turn 0 may be late as well"
    assert not proceeds(hand.tell(0, parcel(value=4.0, weight=0.5)))
    assert proceeds(hand.tell(0, parcel(sequence=1, turn=1, value=4.0, weight=0.5)))


def test_osgp_does_not_wait_for_longer_than_a_step() -> None:
    hand = Hand(1.0, 4.0, turns=[PAIR], algorithm="osgp:tau=3")
    hand.step(0)
    hand.now = 1.0
    assert not proceeds(hand.step(0))
    assert not proceeds(hand.tick(0, 1.9))
    assert proceeds(hand.tick(0, 2.1))
    hand.now = 3.1
    assert proceeds(hand.step(0)), "its allowance is spent"


class Weights(Swarm):
    """Notes the weights that peers train with."""

    def _finish(self, rank: int) -> None:
        self.noted.append(self.processes[rank].core.mass.weights[0])  # type: ignore[attr-defined]
        super()._finish(rank)


@pytest.mark.parametrize(
    ("algorithm", "delay", "in_step"),
    [
        ("osgp", 0.001, True),
        ("osgp:wait=0.35", 0.026, True),  # a quarter of a step
        ("osgp", 0.026, False),
        ("osgp:wait=0.35", 0.08, False),
        ("osgp:wait=0", 0.001, False),
        ("sgp", 0.001, True),
    ],
)
def test_a_swarm_of_equals_is_in_step_where_an_exchange_takes_up_to_a_third(
    algorithm: str, delay: float, in_step: bool
) -> None:
    swarm = Weights(Scenario(peers=8, steps=60, algorithm=algorithm, seed=3, jitter=0.1, delay=(delay, delay)))
    swarm.noted = []  # type: ignore[attr-defined]
    swarm.run()
    late = swarm.noted[80:]  # type: ignore[attr-defined]
    even = sum(abs(weight - 1) < 1e-9 for weight in late) / len(late)
    assert (even > 0.95) is in_step, even


def test_the_part_is_checked() -> None:
    assert policies.parse("osgp:wait=0.25").wait == 0.25
    with pytest.raises(SettingsError, match="must be auto or 0 to 1"):
        policies.parse("osgp:wait=1.5")
    with pytest.raises(SettingsError, match="must be auto or 0 to 1, not soon"):
        policies.parse("osgp:wait=soon")


@pytest.mark.parametrize(
    ("algorithm", "wait", "adaptive"),
    [
        ("osgp", 0.1, 0.35),
        ("osgp:wait=auto,tau=2,warmup=3,momentum=own,variance=own", 0.1, 0.35),
        ("osgp:wait=0.1", 0.1, 0.1),
        ("osgp:wait=0", 0.0, 0.0),
    ],
)
def test_with_an_adaptive_optimizer_it_waits_for_longer_unless_told(
    algorithm: str, wait: float, adaptive: float
) -> None:
    policy = policies.parse(algorithm)
    suited = policy.for_adaptive()
    assert (policy.wait, suited.wait) == (wait, adaptive)
    assert vars(suited) | {"wait": 0, "_is_free": 0} == vars(policy) | {"wait": 0, "_is_free": 0}
    assert policies.parse("sgp").for_adaptive().wait == 0.0
