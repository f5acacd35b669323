"""No peer becomes a sink of mass, and none is drained: the second half of promise 1."""

from __future__ import annotations

import pytest
from repeats import some

from gossip.faults import parse_straggler
from gossip.settings import Settings
from gossip.simulation import Result, Scenario, simulate


def worst_case(n: int, algorithm: str, topology: str, seed: int = 0, **settings: float) -> Result:
    """A 10x straggler, a quarter of the shards per step, 10% loss and one to four steps of delay, all at once."""
    return simulate(
        Scenario(
            peers=n,
            steps=200,
            topology=topology,
            algorithm=algorithm,
            seed=seed,
            shards=4,
            loss=0.1,
            delay=(0.1, 0.4),
            stragglers=(parse_straggler("2=10x"),),
            settings=Settings(share=0.25, **settings),
        )
    )


@pytest.mark.parametrize("topology", ["one-peer-exponential", "base", "epidemic"])
@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd"])
@pytest.mark.parametrize("n", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (16, 33))])
def test_every_weight_stays_within_a_factor_of_four(n: int, algorithm: str, topology: str) -> None:
    result = worst_case(n, algorithm, topology)
    assert result.weight_min > 1 / 4
    assert result.weight_max < 4
    assert result.disagreement < 0.1


def test_nor_does_the_size_make_a_difference() -> None:
    result = worst_case(33, "osgp", "one-peer-exponential")
    assert result.weight_min > 1 / 4
    assert result.weight_max < 4


@pytest.mark.parametrize("seed", some(range(6), 2))
def test_the_seed_makes_no_difference_to_that(seed: int) -> None:
    for algorithm in ("sgp", "osgp"):
        result = worst_case(16, algorithm, "one-peer-exponential", seed)
        assert result.weight_min > 1 / 4
        assert result.weight_max < 4


def test_without_the_floor_and_the_cap_a_slow_peer_is_a_sink() -> None:
    """The ablation that shows what the two rules are for, and that the tests above can fail."""
    without = worst_case(16, "osgp", "one-peer-exponential", weight_floor=0.0, weight_cap=1e5)
    assert without.weight_max > 4
    assert without.weight_min < 1 / 4


def test_the_others_are_not_slowed_by_a_slow_peer() -> None:
    for algorithm in ("osgp", "adpsgd"):
        slow = Scenario(peers=8, steps=200, algorithm=algorithm, stragglers=(parse_straggler("2=10x"),))
        result = simulate(slow)
        alone = simulate(Scenario(peers=8, steps=200, algorithm=algorithm))
        reached = [t for t, _ in result.curve][-1] / 1.25  # the run ends a quarter later than its median peer
        assert reached < 1.1 * alone.curve[-1][0]
        assert result.steps_per_peer["min"] < 40
        assert result.steps_per_peer["median"] == 200
