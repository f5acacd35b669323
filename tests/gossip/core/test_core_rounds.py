"""Rounds: several hops of mass within a step, each of which passes on what the one before brought."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hand_swarm import CIRCLE, PAIR, Hand, only, parcel
from weather import storm

import topologies
from gossip import events
from gossip.core.step import Phase
from gossip.faults import parse_incident, parse_pause, parse_straggler
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate
from gossip.simulation.swarm import Swarm
from gossip.wire.messages import Ack, Address, Parcel
from topologies.analysis import mixing_matrix

HERE, THERE = Address(0, 0), Address(1, 0)
#: Nobody pushes anything.
NOBODY: dict[int, dict[int, float]] = {}


def proceeds(effects: list) -> bool:
    return bool(only(effects, events.Proceed))


def finish_turns(hand: Hand, rank: int) -> list:
    """Let all shards whose turn it is take it, without letting time pass."""
    effects = []
    while hand.cores[rank]._step.turns_left:
        effects += hand.feed(rank, events.Tick())
    return effects


# One core


def test_the_second_round_waits_for_the_first_and_carries_what_it_brought() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[{0: {1: 0.5}, 2: {0: 0.5}}, {0: {1: 0.5}}], algorithm="sgp:rounds=2")
    hand.step(0)
    assert [(sent.turn, sent.values.tolist()) for sent in hand.parcels()] == [(0, [1.0])]
    assert hand.cores[0].phase is Phase.WAITING
    hand.tell(0, Ack(THERE, HERE, 0))
    assert hand.cores[0].phase is Phase.WAITING, "the parcel of peer 2 is not there"
    effects = hand.tell(0, parcel(origin=2, value=5.0, weight=0.5))
    assert not proceeds(effects)
    assert proceeds(finish_turns(hand, 0)), "nobody sends in the second round"
    assert [(sent.turn, sent.values.tolist()) for sent in hand.parcels()] == [(0, [1.0]), (1, [3.0])]


def test_a_step_is_one_step_however_many_rounds_it_has() -> None:
    hand = Hand(1.0, 3.0, turns=[NOBODY], algorithm="sgp:rounds=3")
    assert only(hand.step(0), events.Proceed) == [events.Proceed(1)]
    assert hand.cores[0].turns == [3]


def test_every_round_is_of_the_same_shards() -> None:
    hand = Hand([1.0, 2.0, 3.0, 4.0], [0.0] * 4, turns=[NOBODY], shards=4, share=0.5, algorithm="sgp:rounds=2")
    hand.step(0)
    assert hand.cores[0].turns == [2, 2, 0, 0]
    hand.step(0)
    assert hand.cores[0].turns == [2, 2, 2, 2]


def test_the_next_round_waits_until_its_neighbour_has_answered_the_push_before() -> None:
    hand = Hand(1.0, 3.0, turns=[{0: {1: 0.5}}], algorithm="sgp:rounds=2", wait_ceiling=7.0, resend_first=2.0)
    assert not proceeds(hand.step(0))
    assert len(hand.parcels()) == 1
    hand.tell(0, Ack(THERE, HERE, 0))
    assert proceeds(finish_turns(hand, 0))
    assert [sent.turn for sent in hand.parcels()] == [0, 1]


def test_it_does_not_wait_for_that_answer_for_ever() -> None:
    hand = Hand(1.0, 3.0, turns=[{0: {1: 0.5}}], algorithm="sgp:rounds=2", wait_ceiling=7.0, resend_first=2.0)
    hand.step(0)
    ends = []
    while not ends:
        due = hand.cores[0].deadline
        assert due is not None
        assert due <= 7.0
        ends = only(hand.tick(0, due) + finish_turns(hand, 0), events.Proceed)
    assert hand.now == 7.0
    assert hand.total() == pytest.approx((2.0, 4.0))
    # The same parcel is still unanswered at the next step, and delays it no more.
    hand.now = 8.0
    assert proceeds(hand.step(0))


def test_the_dead_are_not_waited_for_in_any_round() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="sgp:rounds=2")
    assert not proceeds(hand.step(0))
    assert proceeds(hand.feed(0, events.PeerDied(THERE)) + finish_turns(hand, 0))
    assert hand.cores[0].mass.weights == [1.0], "its half came back"


def test_a_parcel_of_the_second_round_waits_for_it() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="sgp:rounds=2")
    hand.tell(0, parcel(sequence=1, turn=1, value=9.0, weight=0.5))
    hand.step(0)
    assert hand.cores[0].mass.weights == [0.5]
    hand.tell(0, Ack(THERE, HERE, 0))
    hand.tell(0, parcel(turn=0, value=3.0, weight=0.5))
    assert proceeds(finish_turns(hand, 0)), "it was there already"
    assert hand.parcels()[-1].values.tolist() == [2.0], "the mean of 1 and 3, without the 9"


def test_a_peer_that_leaves_between_rounds_takes_no_further_turn() -> None:
    hand = Hand(1.0, 3.0, turns=[{0: {1: 0.5}}], algorithm="sgp:rounds=2")
    hand.step(0)
    assert hand.cores[0]._step.due_at is not None, "the second round, at the latest"
    hand.feed(0, events.Leave())
    assert hand.cores[0]._step.due_at is None, "no Tick is due for a round that never comes"
    hand.settle()
    assert hand.cores[0].turns == [1]
    assert hand.total() == pytest.approx((2.0, 4.0))


def test_a_peer_that_was_behind_begins_a_step_with_a_first_round() -> None:
    hand = Hand(1.0, 3.0, turns=[CIRCLE], algorithm="sgp:rounds=2")
    hand.tell(0, parcel(turn=101, weight=0.1))
    hand.step(0)
    assert hand.cores[0].turns == [103], "turn 102 is the first of a step"


def test_parcels_of_the_last_step_are_not_in_flight_untrained() -> None:
    """A move is made longer for mass that nobody trains; a synchronous receiver has merged these before it moves."""
    hand = Hand(1.0, 3.0, 5.0, turns=[{0: {1: 0.5}}, {0: {2: 0.5}}], algorithm="sgp:rounds=2", weight_floor=0.0)
    assert proceeds(hand.step(0))
    assert hand.cores[0].status().unanswered_weights == (0.75,)
    assert hand.cores[0].status().untrained == (0.0,)


# Swarms


@pytest.mark.parametrize("delay", [(0.001, 0.001), (0.002, 0.02)], ids=["equal", "varied"])
@pytest.mark.parametrize(
    ("algorithm", "topology", "n"),
    [
        ("sgp:rounds=2", "one-peer-exponential", 8),
        ("sgp:rounds=2", "one-peer-exponential", 2),
        ("sgp:rounds=3", "ring", 5),
        ("sgp:rounds=3", "epidemic:s=2", 7),
        ("dpsgd:rounds=2", "bidirectional-ring", 6),
        ("dpsgd:rounds=3", "base", 13),
    ],
)
def test_without_faults_rounds_are_the_product_of_the_matrices(
    algorithm: str, topology: str, n: int, delay: tuple[float, float]
) -> None:
    steps, rounds = 5, int(algorithm[-1])
    # Where delays are a fifth of a step, three rounds of them can take longer than the usual patience.
    settings = Settings(weight_floor=0.0, weight_cap=1e5, neighbour_bytes=10**6, inbox_bytes=10**6, patience=10.0)
    swarm = Swarm(
        Scenario(peers=n, steps=steps, topology=topology, algorithm=algorithm, seed=3, delay=delay, settings=settings)
    )
    x = np.stack([process.core.mass.values for process in swarm.processes.values()])
    w = np.ones(n)
    swarm.run()
    schedule = topologies.parse(topology, n, seed=3)
    for turn in range(steps * rounds):
        matrix = mixing_matrix(schedule, turn)
        x, w = matrix @ x, matrix @ w
    cores = [process.core for process in swarm.processes.values()]
    assert [core.turns for core in cores] == [[steps * rounds]] * n
    assert [core.mass.weights[0] for core in cores] == pytest.approx(w, abs=1e-12)
    np.testing.assert_allclose(np.stack([core.mass.values for core in cores]), x / w[:, None], atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 3, 5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
@pytest.mark.parametrize("algorithm", ["sgp:rounds=3", "dpsgd:rounds=2"])
def test_mass_is_conserved_in_every_storm(algorithm: str, seed: int) -> None:
    scenario = storm(seed)
    topology = "base" if algorithm.startswith("dpsgd") else scenario.topology
    result = simulate(replace(scenario, algorithm=algorithm, topology=topology))
    assert result.mass_error < 1e-9
    assert result.weight_contested == 0
    assert result.disagreement < 1


def test_a_peer_that_comes_back_is_in_step_with_the_others() -> None:
    """Were its first round the others' second, it would wait for them to compute, and they for it."""
    base = Scenario(peers=8, steps=60, topology="one-peer-exponential", algorithm="sgp:rounds=2", jitter=0.0)
    disturbed = replace(
        base,
        kills=(parse_incident("3@10"),),
        restarts=(parse_incident("3@20"),),
        joins=(parse_incident("8@25"),),
        pauses=(parse_pause("5@30+350ms"),),
    )
    swarm = Swarm(disturbed)
    swarm.run()
    living = [process.core for process in swarm.processes.values() if process.alive]
    assert {turn % 2 for core in living for turn in core.turns} == {0}
    calm = simulate(base).virtual_seconds
    assert swarm.now < 1.6 * calm


def test_a_straggler_costs_no_more_than_with_one_round() -> None:
    took = {}
    for algorithm in ("sgp", "sgp:rounds=2"):
        scenario = Scenario(
            peers=8,
            steps=80,
            topology="one-peer-exponential",
            algorithm=algorithm,
            stragglers=(parse_straggler("7=6x"),),
        )
        swarm = Swarm(scenario)
        while swarm.processes[0].core.step < 80:
            assert swarm.advance()
        took[algorithm] = swarm.now
    assert took["sgp:rounds=2"] < 1.15 * took["sgp"]


def test_two_rounds_a_step_mix_as_fast_as_twice_the_steps() -> None:
    scenario = Scenario(peers=32, steps=3, topology="one-peer-exponential", algorithm="sgp:rounds=2")
    assert simulate(scenario).disagreement < 1e-12, "five hops are exact, and six were made"
    assert simulate(replace(scenario, algorithm="sgp")).disagreement > 0.01


def test_every_parcel_of_a_step_is_of_a_turn_of_its_own() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="dpsgd:rounds=2")
    for _ in range(3):
        hand.now += 1.0
        hand.step(0), hand.step(1)
        turns: list[int] = []
        while hand.post or any(core._step.turns_left for core in hand.cores):
            for rank in (0, 1):
                finish_turns(hand, rank)
            turns += [message.turn for message in hand.mail() if isinstance(message, Parcel)]
            hand.settle()
        assert [core.phase for core in hand.cores] == [Phase.TRAINING] * 2
    assert [core.turns for core in hand.cores] == [[6], [6]]
    assert hand.total() == pytest.approx((2.0, 4.0))
