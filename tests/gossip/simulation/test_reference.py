"""The protocol against a dumb reference: the dense product of the mixing matrices."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import topologies
from gossip.settings import Settings
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm
from topologies.analysis import mixing_matrix

#: The core's own ideas of fairness switched off: pure push-sum, as in a textbook.
TEXTBOOK = {"weight_floor": 0.0, "weight_cap": 1e5}


def run(scenario: Scenario) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values at the start, and the values and weights at the end, one row per peer."""
    swarm = Swarm(scenario)
    start = np.stack([p.core.mass.values.copy() for p in swarm.processes.values()])
    swarm.run()
    end = np.stack([p.core.mass.values for p in swarm.processes.values()])
    weights = np.array([p.core.mass.weights for p in swarm.processes.values()])
    return start, end, weights


def dense(schedule: topologies.Schedule, start: np.ndarray, turns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return z and w after so many turns of push-sum, by matrices."""
    x, w = start.copy(), np.ones(len(start))
    for turn in range(turns):
        matrix = mixing_matrix(schedule, turn)
        x, w = matrix @ x, matrix @ w
    return x / w[:, None], w


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
@pytest.mark.parametrize(
    "topology",
    ["ring", "bidirectional-ring", "exponential", "one-peer-exponential", "base", "base:k=2", "star", "complete",
     "random-matching", "equidyn", "epidemic", "epidemic:s=3", "de-bruijn", "kautz", "hierarchical", "matcha"],
)  # fmt: skip
def test_without_faults_sgp_is_the_product_of_the_matrices(topology: str, n: int) -> None:
    steps = 7
    settings = Settings(**TEXTBOOK, neighbour_bytes=10**6, inbox_bytes=10**6)
    scenario = Scenario(peers=n, steps=steps, topology=topology, algorithm="sgp", seed=3, settings=settings)
    start, end, weights = run(scenario)
    z, w = dense(topologies.parse(topology, n, seed=3), start, steps)
    assert weights[:, 0] == pytest.approx(w, abs=1e-12)
    np.testing.assert_allclose(end, z, atol=1e-12)


@pytest.mark.parametrize(
    "topology", ["base", "one-peer-exponential", "equidyn", "random-matching", "bidirectional-ring"]
)
def test_the_floor_and_the_cap_change_nothing_where_a_peer_keeps_a_third(topology: str) -> None:
    start, end, _ = run(Scenario(peers=16, steps=9, topology=topology, algorithm="sgp"))
    np.testing.assert_allclose(end, dense(topologies.parse(topology, 16), start, 9)[0], atol=1e-12)


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_peers_that_do_not_keep_time_still_mix_turn_by_turn(jitter: float) -> None:
    settings = Settings(**TEXTBOOK)
    scenario = Scenario(
        peers=33, steps=30, topology="base", jitter=jitter, delay=(0.005, 0.03), settings=settings, algorithm="sgp"
    )
    start, end, _ = run(scenario)
    np.testing.assert_allclose(end, np.broadcast_to(start.mean(axis=0), end.shape), atol=1e-12)


def test_dpsgd_keeps_all_weights_at_one() -> None:
    start, end, weights = run(Scenario(peers=12, steps=10, topology="bidirectional-ring", algorithm="dpsgd"))
    np.testing.assert_allclose(weights, 1.0, atol=1e-12)
    np.testing.assert_allclose(end, dense(topologies.get("bidirectional-ring", 12), start, 10)[0], atol=1e-12)


def test_osgp_with_tau_0_is_sgp() -> None:
    base = {"peers": 9, "steps": 8, "topology": "exponential"}
    np.testing.assert_array_equal(
        run(Scenario(**base, algorithm="osgp:tau=0"))[1], run(Scenario(**base, algorithm="sgp"))[1]
    )


def test_pairwise_averaging_of_two_is_their_mean() -> None:
    """One of two begins, and by the end of its step the other has answered: both hold the mean, with weight 1."""
    from gossip.faults import parse_straggler

    base = Scenario(peers=2, steps=2, topology="ring", algorithm="adpsgd", jitter=0.0)
    cores = [process.core for process in Swarm(base).processes.values()]
    (asked,) = [core.me.rank for core in cores if core.view.is_asked(1 - core.me.rank, 0)]
    swarm = Swarm(replace(base, stragglers=(parse_straggler(f"{asked}=1.5x"),)))
    a, b = (swarm.processes[rank].core for rank in (1 - asked, asked))
    start = (a.mass.values + b.mass.values) / 2
    while b.step < 1 or len(a.outbox) or len(b.outbox):
        assert a.step <= 1
        swarm.advance()
    # It merged and answered at its first boundary; the other has the answer and merges it at its next one.
    np.testing.assert_allclose(b.mass.values, start, atol=1e-12)
    assert b.mass.weights[0] + b.inbox.weight(0) == pytest.approx(1.0)
    waiting = list(a.inbox)
    total = a.mass.weights[0] + sum(p.weight for p in waiting)
    z = (a.mass.weights[0] * a.mass.values + sum(p.weight * p.values for p in waiting)) / total
    np.testing.assert_allclose(z, start, atol=1e-12)
    assert total == pytest.approx(1.0)


def irregular() -> nx.DiGraph:
    """Three peers that all send to rank 0, which answers only one of them."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 0, 0.5), (0, 1, 0.5), (1, 1, 0.2), (1, 2, 0.8), (2, 2, 0.1), (2, 0, 0.9)])
    return graph


def test_an_irregular_digraph_needs_the_weights(tmp_path: object) -> None:
    """With w the estimates reach the true average; x alone is visibly off: that is what the weights are for."""
    schedule = topologies.from_graphs(irregular(), name="irregular")
    start = np.array([[1.0], [2.0], [6.0]])
    x, w = start.copy(), np.ones(3)
    for turn in range(200):
        matrix = mixing_matrix(schedule, turn)
        x, w = matrix @ x, matrix @ w
    np.testing.assert_allclose(x / w[:, None], 3.0, atol=1e-9)
    assert abs(x - 3.0).max() > 0.5, "ignoring w would have done"

    path = f"{tmp_path}/irregular.graphml"
    nx.write_graphml(irregular(), path)
    settings = Settings(**TEXTBOOK)
    begin, end, weights = run(Scenario(peers=3, steps=200, topology=f"@{path}", settings=settings, algorithm="sgp"))
    np.testing.assert_allclose(end, np.broadcast_to(begin.mean(axis=0), end.shape), atol=1e-9)
    ignored = end * weights
    assert abs(ignored - begin.mean(axis=0)).max() > 0.1


def test_each_shard_walks_the_schedule_at_its_own_pace() -> None:
    """A quarter of four shards per step on a schedule of period four: by a global count each shard would
    only ever use one hop, and never agree (n = 16, one-peer-exponential)."""
    settings = Settings(share=0.25)
    scenario = Scenario(
        peers=16,
        steps=16,
        topology="one-peer-exponential",
        size=8,
        shards=4,
        jitter=0.0,
        settings=settings,
        algorithm="sgp",
    )
    start, end, weights = run(scenario)
    np.testing.assert_allclose(end, np.broadcast_to(start.mean(axis=0), end.shape), atol=1e-12)
    np.testing.assert_allclose(weights, 1.0, atol=1e-12)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_shards_are_chosen_fairly(share: float) -> None:
    swarm = Swarm(
        Scenario(peers=6, steps=24, shards=4, topology="base", settings=Settings(share=share), algorithm="sgp")
    )
    swarm.run()
    for process in swarm.processes.values():
        assert process.core.turns == [24 * share] * 4


def test_a_partial_exchange_is_unbiased_under_loss() -> None:
    settings = Settings(share=0.25)
    scenario = Scenario(
        peers=9, steps=600, topology="exponential", shards=4, loss=0.1, settings=settings, algorithm="sgp"
    )
    start, end, _ = run(scenario)
    np.testing.assert_allclose(end, np.broadcast_to(start.mean(axis=0), end.shape), atol=1e-6)
