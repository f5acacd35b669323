"""`outer` in virtual time: the dense formula, codecs, and peers that are slow, killed or restarted."""

from __future__ import annotations

import numpy as np
import pytest
from study_cases import N, Reference, replicas, small, trained

H, MU, ETA = 4, 0.8, 0.7
ALGORITHM = f"outer:h={H},mu={MU},eta={ETA}"


@pytest.mark.parametrize("rounds", [24, 30])
def test_outer_steps_are_the_dense_formula(rounds: int) -> None:
    """A run that ends where an average is due, or between two, is judged by what the peers have moved to."""
    run = small(ALGORITHM, rounds=rounds)
    swarm, outcome = trained(run)
    peers = [Reference(run, rank) for rank in range(N)]
    common, momentum = peers[0].z, np.zeros_like(peers[0].z)
    for step in range(1, rounds + 1):
        for peer in peers:
            peer.z = peer.z + peer.move(peer.gradient())
        if step % H == 0 and step < rounds:
            mean = np.mean([common - peer.z for peer in peers], axis=0)
            momentum = MU * momentum + mean
            common = common - ETA * (mean + MU * momentum)
            for peer in peers:
                peer.z = common
    np.testing.assert_allclose(replicas(swarm), np.stack([peer.z for peer in peers]), rtol=0, atol=1e-12)
    assert outcome.disagreement > 0


def test_moves_go_through_the_codec() -> None:
    whole, coded = (
        trained(small(ALGORITHM, rounds=24, task="characters-tiny", compress=compress, rate=0.01))[1]
        for compress in ("none", "int2")
    )
    assert coded.bytes < whole.bytes / 5
    assert abs(coded.validation_loss - whole.validation_loss) < 0.2


def test_a_slow_peer_takes_part_with_the_steps_that_it_has_made() -> None:
    swarm, outcome = trained(small("outer:h=16", rounds=64, straggler="1=4x"))
    steps = [swarm.processes[rank].core.step for rank in range(N)]
    assert steps[1] < min(steps[0], *steps[2:]) / 1.5
    assert outcome.virtual_seconds < 0.75 * 64 * 0.4, "the others do not wait for h steps of the slow one"
    assert outcome.accuracy > 80


@pytest.mark.parametrize("wait", ["inf", "1", "0"])
def test_a_restarted_peer_gets_the_values_after_the_last_outer_step(wait: str) -> None:
    chaos = {"jitter": 0.2, "loss": 0.05, "kills": "1@1.5s", "restarts": "1@3.1s"}
    swarm, outcome = trained(small(f"{ALGORITHM},wait={wait}", rounds=80, **chaos))
    assert swarm.processes[1].core.me.incarnation == 1
    assert outcome.accuracy > 80
    seals = {trainer._average.seal() for trainer in swarm._trainers.values()}
    numbers = {trainer._average.rounds for trainer in swarm._trainers.values()}
    assert len(seals) == len(numbers), "equal numbers of outer steps, equal bits"
    assert max(numbers) - min(numbers) <= 1
