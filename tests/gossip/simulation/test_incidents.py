"""Deaths, false deaths, joins, restarts, cuts and heals, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from repeats import some

from gossip.errors import SettingsError
from gossip.faults import parse_cut, parse_incident, parse_pause, parse_straggler
from gossip.settings import Settings
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


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_a_false_death_is_healed_by_a_new_incarnation(seed: int) -> None:
    """A pause longer than the detector's patience: the others take their parcels back, then meet the undead."""
    scenario = replace(CALM, pauses=(parse_pause("5@60+2s"),), loss=0.1, delay=(0.005, 0.1), seed=seed)
    swarm = Swarm(scenario)
    result = swarm.run()
    assert swarm.processes[5].core.me.incarnation == 1
    assert result.weight_contested == 0
    assert result.disagreement < 1e-4
    assert result.steps_per_peer["max"] == 200


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd"])
@pytest.mark.parametrize("topology", ["ring", "one-peer-exponential", "base", "bidirectional-ring", "epidemic"])
def test_who_was_thought_dead_is_back_in_every_view(topology: str, algorithm: str) -> None:
    """Also in the views of those that the schedule never lets it meet."""
    scenario = Scenario(peers=8, steps=200, topology=topology, algorithm=algorithm, loss=0.1)
    swarm = Swarm(replace(scenario, pauses=(parse_pause("3@20+2s"),)))
    result = swarm.run()
    views = {tuple(process.core.view.members.items()) for process in swarm.processes.values()}
    assert views == {tuple((rank, int(rank == 3)) for rank in range(8))}
    assert result.disagreement < 1e-2


@pytest.mark.parametrize("topology", ["random-regular:d=3", "hierarchical:groups=4+4", "hypercube"])
def test_a_death_and_a_join_leave_any_topology_standing(topology: str) -> None:
    scenario = Scenario(peers=8, steps=60, topology=topology, algorithm="osgp", kills=(parse_incident("3@10"),))
    assert simulate(scenario).steps_per_peer["min"] == 60
    joined = replace(scenario, kills=(), joins=(parse_incident("8@10"),))
    assert simulate(joined).weight_total == pytest.approx(9)


def test_nobody_waits_long_in_its_first_step() -> None:
    """Neither a founder whose neighbour died at once, nor one of many joiners who do not know each other yet."""
    many = tuple(parse_incident(f"{8 + i}@20") for i in range(10))
    for scenario in (
        Scenario(peers=8, steps=50, kills=(parse_incident("3@1"),), detect=20.0, algorithm="sgp"),
        Scenario(peers=8, steps=50, joins=many, algorithm="sgp"),
    ):
        result = simulate(scenario)
        assert result.curve[-1][0] < 2.5 * 50 * scenario.step_seconds


def test_a_restart_waits_for_its_kill() -> None:
    """A kill counts the peer's own steps, a restart nominal ones; a slow peer dies later than it is to come back."""
    slow = replace(CALM, stragglers=(parse_straggler("3=2x"),))
    swarm = Swarm(replace(slow, kills=(parse_incident("3@50"),), restarts=(parse_incident("3@60"),)))
    result = swarm.run()
    assert swarm.processes[3].core.me.incarnation == 1
    assert [what for _, what in result.incidents] == ["kill 3", "restart 3"]


def test_parcels_that_take_longer_than_the_first_resend_are_not_sent_twice_for_ever() -> None:
    slow = Scenario(peers=4, steps=200, algorithm="adpsgd", delay=(0.3, 0.3))
    patient = replace(slow, settings=Settings(resend_first=2.0))
    assert simulate(slow).messages < 1.1 * simulate(patient).messages


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


@pytest.mark.parametrize("seed", [5, 24])
def test_a_leaver_may_leave_its_mass_to_a_newcomer_whose_donor_has_forgotten_it(seed: int) -> None:
    """The newcomer comes while the leaver still waits for the others, by a donor that plans without it already."""
    scenario = Scenario(
        peers=4,
        steps=80,
        topology="complete",
        algorithm="sgp",
        seed=seed,
        size=2,
        delay=(0.1, 0.5),
        detect=0.05,
        leaves=(parse_incident("3@1s"),),
        joins=(parse_incident("4@1.5s"),),
    )
    result = simulate(scenario)
    assert "left 3" in [what for _, what in result.incidents], "it offered its mass for ever"
    assert result.weight_total == pytest.approx(5)


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
        ({"peers": 0}, "peers and steps must be 1 or more, not 0"),
        ({"shards": 9}, "shards must be from 1 to size = 8, not 9"),
        ({"kills": (parse_incident("16@5"),)}, "kill: rank 16 does not exist"),
        ({"joins": (parse_incident("3@5"),)}, "rank 3 cannot join, because it is already in the swarm"),
        ({"restarts": (parse_incident("3@5"),)}, "never killed"),
        ({"kills": (parse_incident("3@9"),), "restarts": (parse_incident("3@5"),)}, "killed only after"),
        ({"kills": (parse_incident("3@9"), parse_incident("3@20"))}, "killed twice"),
        ({"kills": (parse_incident("3@201"),)}, "step 201 never comes"),
        ({"cuts": (parse_cut("0|1@999+1"),)}, "step 999 never comes"),
        ({"settings": Settings(share=0.5)}, "a share of 0.5 needs several shards"),
        ({"loss": 1.0}, "less than 100%"),
        ({"cuts": (parse_cut("0|99@1+1"),)}, "cut: rank 99 does not exist"),
        ({"bandwidth": 0.0}, "bandwidth must be above 0"),
        ({"step_seconds": 0.0}, "step_seconds must be above 0"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        replace(CALM, **wrong)
