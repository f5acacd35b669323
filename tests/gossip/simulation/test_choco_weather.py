"""CHOCO in the simulator, which checks the books after every event: exact in any weather, and peers agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weather import storm

from gossip import events
from gossip.errors import SettingsError
from gossip.faults import parse_incident, parse_straggler
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate
from gossip.simulation.swarm import Swarm

TENTH = "topk:share=10%"


def calm(compress: str = TENTH, **more: object) -> Scenario:
    known: dict[str, object] = {"peers": 4, "steps": 80, "algorithm": "choco", "topology": "complete", "size": 40}
    return Scenario(**{**known, **more}, settings=Settings(compress=compress))  # type: ignore[arg-type]


@pytest.mark.parametrize(("seed", "compress"), [(0, "topk:share=30%"), (1, "int8"), (2, "sign"), (3, "qsgd:levels=1")])
def test_mass_is_conserved_in_a_storm(seed: int, compress: str) -> None:
    """Loss, copies, damage, delay, kills, restarts, joins, pauses, cuts, stragglers: `simulate` raises if it is not."""
    found = storm(seed)
    settings = replace(found.settings, compress=compress)
    found = replace(found, topology="bidirectional-ring", algorithm="choco", settings=settings)
    result = simulate(found)
    assert result.messages > 100
    assert result.mass_error < 1e-12


def test_in_bad_weather_every_round_moves_both_ends_and_the_mean_stays() -> None:
    swarm = Swarm(calm(loss=0.2, duplicate=0.2, delay=(0.01, 0.2), shards=2, steps=40))
    before = sum(process.core.mass.values.copy() for process in swarm.processes.values())
    result = swarm.run()
    assert result.mass_error < 1e-13
    for process in swarm.processes.values():
        process.core.handle(events.Merge(), swarm.now)  # what came after its last step
    after = sum(process.core.mass.values for process in swarm.processes.values())
    np.testing.assert_allclose(after, before, atol=1e-13)
    assert (swarm.accounts.lopsided, swarm.accounts.broken_off) == (0, 0)
    assert (result.weight_min, result.weight_max) == (1.0, 1.0), "weights never move"


@pytest.mark.parametrize(("compress", "apart"), [(TENTH, 0.02), ("sign", 0.1), ("terngrad", 0.02), ("int8", 1e-9)])
def test_all_agree_on_the_mean(compress: str, apart: float) -> None:
    result = simulate(calm(compress))
    middle = result.curve[len(result.curve) // 2][1]
    assert result.disagreement < apart
    assert result.disagreement < 0.5 * middle or result.disagreement < 1e-12
    assert result.bias < 1e-12


def test_a_death_and_a_newcomer_cost_a_round_per_neighbour_at_most() -> None:
    swarm = Swarm(calm(kills=(parse_incident("1@20"),), joins=(parse_incident("4@30"),), loss=0.05))
    result = swarm.run()
    assert result.weight_written_off == pytest.approx(1)
    assert result.weight_minted == pytest.approx(1)
    assert swarm.accounts.broken_off <= 3, "the dead had three neighbours"
    assert swarm.accounts.lopsided == 0
    assert result.disagreement < 0.1


def test_who_leaves_takes_nothing_along() -> None:
    swarm = Swarm(calm(leaves=(parse_incident("2@20"),), loss=0.1, delay=(0.01, 0.1), shards=2))
    result = swarm.run()
    assert result.weight_total == pytest.approx(4)
    assert swarm.accounts.lopsided == swarm.accounts.broken_off == 0
    assert result.mass_error < 1e-13


def test_a_straggler_makes_others_skip_turns_not_wait_for_ever() -> None:
    result = simulate(calm(stragglers=(parse_straggler("3=10x"),)))
    assert result.steps_per_peer["median"] == 80
    assert result.mass_error < 1e-13


def test_the_bytes_are_those_of_the_codec() -> None:
    """4 peers tell 3 others 20 times; a page's count, 2 + 8 bytes for each of 500 values, a factor, and headers."""
    result = simulate(calm(steps=20, size=5000))
    told = 4 * 3 * 20 * (4 + 10 * 500 + 4)
    assert told <= result.bytes < 1.1 * told


def test_it_is_refused_before_anything_is_simulated() -> None:
    with pytest.raises(
        SettingsError, match="choco keeps estimates of its neighbours, so they must be the same in every turn"
    ):
        simulate(calm(topology="base"))
