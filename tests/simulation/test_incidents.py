"""Deaths, false deaths, joins, restarts, cuts and heals, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossip.errors import SettingsError
from gossip.faults import parse_cut, parse_incident, parse_pause
from gossip.simulation import Scenario, simulate
from gossip.simulation.swarm import Swarm

CALM = Scenario(peers=16, steps=200, topology="one-peer-exponential", algorithm="osgp")


def test_the_others_go_on_and_agree_after_a_death() -> None:
    result = simulate(replace(CALM, kills=(parse_incident("3@50"),)))
    assert result.steps_per_peer == {"min": 200, "median": 200, "max": 200}
    assert result.disagreement < 1e-9
    assert result.weight_total + result.weight_written_off == pytest.approx(16)
    assert 0.3 < result.weight_written_off < 3


def test_all_but_one_may_die() -> None:
    kills = tuple(parse_incident(f"{rank}@{10 + rank}") for rank in range(15))
    result = simulate(replace(CALM, kills=kills))
    assert result.steps_per_peer["max"] == 200
    assert result.weight_total + result.weight_written_off == pytest.approx(16)


def test_everybody_may_die() -> None:
    result = simulate(replace(CALM, kills=tuple(parse_incident(f"{rank}@20") for rank in range(16))))
    assert result.weight_total == pytest.approx(0)
    assert result.weight_written_off == pytest.approx(16)


def test_a_joiner_brings_a_fresh_weight_of_one_and_agrees() -> None:
    result = simulate(replace(CALM, joins=(parse_incident("16@50"), parse_incident("40@2.5s"))))
    assert result.weight_total == pytest.approx(18)
    assert result.weight_written_off == pytest.approx(0)
    assert result.disagreement < 1e-9


def test_a_killed_peer_comes_back_as_a_new_incarnation() -> None:
    swarm = Swarm(replace(CALM, kills=(parse_incident("3@50"),), restarts=(parse_incident("3@80"),)))
    result = swarm.run()
    assert swarm.processes[3].core.me.incarnation == 1
    assert swarm.processes[3].core.step == 200
    assert all(p.core.view.incarnation(3) == 1 for p in swarm.processes.values())
    assert result.weight_total + result.weight_written_off == pytest.approx(17)
    assert result.disagreement < 1e-9


def test_a_peer_that_restarts_before_anybody_noticed_its_death() -> None:
    scenario = replace(CALM, kills=(parse_incident("3@5s"),), restarts=(parse_incident("3@5.1s"),), detect=2.0)
    result = simulate(scenario)
    assert result.weight_total + result.weight_written_off == pytest.approx(17)
    assert result.weight_contested == 0
    assert result.disagreement < 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_a_false_death_is_healed_by_a_new_incarnation(seed: int) -> None:
    """A pause longer than the detector's patience: the others take their parcels back, then meet the undead."""
    scenario = replace(CALM, pauses=(parse_pause("5@60+2s"),), loss=0.1, delay=(0.005, 0.1), seed=seed)
    swarm = Swarm(scenario)
    result = swarm.run()
    assert swarm.processes[5].core.me.incarnation == 1
    assert result.weight_contested == 0
    assert result.disagreement < 1e-4
    assert result.steps_per_peer["max"] == 200


def test_a_pause_that_nobody_notices_changes_no_incarnation() -> None:
    swarm = Swarm(replace(CALM, pauses=(parse_pause("5@60+300ms"),)))
    result = swarm.run()
    assert swarm.processes[5].core.me.incarnation == 0
    assert result.weight_total == pytest.approx(16)
    assert result.weight_written_off == 0


@pytest.mark.parametrize("topology", ["base", "one-peer-exponential", "ring", "epidemic"])
@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd"])
def test_both_sides_of_a_cut_go_on_and_merge_after_it(topology: str, algorithm: str) -> None:
    cut = parse_cut("0-7|8-15@1+40")
    scenario = replace(CALM, topology=topology, algorithm=algorithm, cuts=(cut,), loss=0.05, steps=300)
    swarm = Swarm(scenario)
    result = swarm.run()
    healed = [disagreement for at, disagreement in result.curve if at > 4.0]
    assert result.disagreement < 0.2 * healed[0], "it falls again once they can meet"
    assert result.weight_contested == 0
    members = {tuple(p.core.view.members) for p in swarm.processes.values()}
    assert members == {tuple(range(16))}, "everybody is in everybody's view again"
    assert result.steps_per_peer["min"] > 150


def test_a_short_cut_is_no_death() -> None:
    swarm = Swarm(replace(CALM, cuts=(parse_cut("0-7|8-15@20+3"),)))
    result = swarm.run()
    assert {p.core.me.incarnation for p in swarm.processes.values()} == {0}
    assert result.weight_total == pytest.approx(16)
    assert result.weight_written_off == 0
    assert result.disagreement < 1e-9


def test_a_topology_without_the_new_size_gives_way_to_base() -> None:
    scenario = Scenario(peers=8, steps=100, topology="hypercube", algorithm="osgp", kills=(parse_incident("3@20"),))
    assert simulate(scenario).disagreement < 1e-3


def test_a_slow_link_slows_what_is_pushed_and_no_queue_grows() -> None:
    """Each message needs three step times of link: at most one parcel per neighbour is ever on its way."""
    scenario = Scenario(
        peers=8, steps=100, topology="one-peer-exponential", algorithm="osgp", bandwidth=500.0, step_seconds=0.1
    )
    swarm = Swarm(scenario)
    deepest = 0
    while swarm.advance():
        deepest = max(deepest, *(len(p.core.outbox) for p in swarm.processes.values()))
    assert deepest <= 3, "one for each of the three neighbours"
    assert all(p.core.step == 100 for p in swarm.processes.values())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"peers": 0}, "at least one peer"),
        ({"shards": 9}, "1 to 8 shards"),
        ({"kills": (parse_incident("16@5"),)}, "no rank 16"),
        ({"joins": (parse_incident("3@5"),)}, "there already"),
        ({"restarts": (parse_incident("3@5"),)}, "never killed"),
        ({"loss": 1.0}, "less than 100%"),
        ({"cuts": (parse_cut("0|99@1+1"),)}, "no rank 99"),
        ({"bandwidth": 0.0}, "more than 0 bytes"),
        ({"step_seconds": 0.0}, "more than 0 seconds"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        replace(CALM, **wrong)
