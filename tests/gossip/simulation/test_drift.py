"""How far replicas drift apart that never stop moving: decision 28."""

from __future__ import annotations

import pytest

from benchmarks.drift import NoisySwarm


@pytest.mark.parametrize("topology", ["one-peer-hypercube", "random-matching"])
def test_pairs_that_never_wait_stay_as_close_as_those_who_wait_for_the_turn_before(topology: str) -> None:
    pairs = NoisySwarm("adpsgd", topology, seed=0, steps=200).drift()
    waiting = NoisySwarm("osgp:wait=0", "one-peer-exponential", seed=0, steps=200).drift()
    assert pairs.apart < waiting.apart
    assert 0.9 < pairs.moved < 1.05, "a move moves about as much mass as the learning rate says"
    assert pairs.deviation < 0.25


def test_in_step_a_move_moves_exactly_a_weight_of_one() -> None:
    found = NoisySwarm("sgp", "one-peer-exponential", seed=0, steps=100).drift()
    assert (found.moved, found.deviation) == (1.0, 0.0)
