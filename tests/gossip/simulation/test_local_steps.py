"""The algorithms that do not exchange with every step, in bad weather: mass is conserved and all agree in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossip.faults import parse_incident, parse_straggler
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate
from gossip.simulation.swarm import Swarm

ALGORITHMS = {"slowmo:h=3": "one-peer-exponential", "noloco:h=3": "random-matching", "ssd:k=3,warmup=20": "base"}


def scenario(algorithm: str) -> Scenario:
    return Scenario(peers=9, steps=240, topology=ALGORITHMS[algorithm], algorithm=algorithm, size=6, shards=2)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_mass_is_conserved_through_deaths_and_losses(algorithm: str) -> None:
    """`simulate` checks the books after every event."""
    for seed in range(3):
        result = simulate(
            replace(
                scenario(algorithm),
                seed=seed,
                loss=0.1,
                duplicate=0.05,
                kills=(parse_incident("3@50"), parse_incident("5@100")),
                restarts=(parse_incident("3@120"),),
                stragglers=(parse_straggler("1=3x"),),
                settings=Settings(share=(1.0, 0.5)[seed % 2]),
            )
        )
        assert result.mass_error < 1e-9
        assert result.weight_contested == 0
        assert result.disagreement < 1e-3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_as_many_turns_are_taken_as_the_policy_says(algorithm: str) -> None:
    swarm = Swarm(scenario(algorithm))
    swarm.run()
    expected = 20 + (240 - 20) // 3 if algorithm.startswith("ssd") else 240 // 3
    assert {turn for process in swarm.processes.values() for turn in process.core.turns} == {expected}
