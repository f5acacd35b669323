"""The demo's numbers against the dense product of mixing matrices."""

from __future__ import annotations

from itertools import islice

import networkx as nx
import numpy as np
import pytest

import topologies
from launch import demo
from launch.averaging import push_sum, spread
from topologies import Schedule
from topologies.analysis import mixing_matrix

Capture = pytest.CaptureFixture[str]


def dense(schedule: Schedule, values: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mass and weight after so many steps, the slow and obvious way."""
    product = np.eye(schedule.n)
    for step in range(steps):
        product = mixing_matrix(schedule, step) @ product
    return product @ values, product @ np.ones(schedule.n)


@pytest.mark.parametrize("schedule", [demo.irregular(), *(topologies.get(name, 33) for name in demo.NAMES)])
def test_push_sum_is_the_product_of_the_matrices(schedule: Schedule) -> None:
    values = np.random.default_rng(1).random((schedule.n, 2))
    for step, (mass, weight) in enumerate(islice(push_sum(schedule, values), 14)):
        expected_mass, expected_weight = dense(schedule, values, step)
        assert mass == pytest.approx(expected_mass, abs=1e-12)
        assert weight == pytest.approx(expected_weight, abs=1e-12)


def test_spread_starts_at_one_and_is_infinite_without_weight() -> None:
    values = np.array([0.0, 1.0, 5.0])
    assert spread(topologies.get("complete", 3), values, 1) == pytest.approx([1.0, 0.0])
    assert spread(topologies.get("complete", 3), np.ones(3), 1) == [0.0, 0.0]
    graph = topologies.from_graphs(empties_peer_0())
    assert spread(graph, np.array([0.0, 1.0]), 1) == [1.0, float("inf")]


def empties_peer_0() -> nx.DiGraph[int]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 1.0), (1, 1, 1.0)])
    return graph


def rows_of(text: str) -> dict[str, list[str]]:
    return {line[:20].strip(): line[20:].split() for line in text.splitlines() if line.strip()}


def test_the_printed_race_is_what_the_matrices_give(capsys: Capture) -> None:
    assert demo.main() == 0
    rows = rows_of(capsys.readouterr().out)
    values = demo.starting_values(demo.PEERS)
    assert rows["step"] == [*map(str, demo.STEPS), "sends"]
    for name in demo.NAMES:
        schedule = topologies.get(name, demo.PEERS)
        for step, cell in zip(demo.STEPS, rows[name], strict=False):
            mass, weight = dense(schedule, values, step)
            left = np.linalg.norm(mass / weight - values.mean()) / np.linalg.norm(values - values.mean())
            assert float(cell) == pytest.approx(left, rel=0.5 if left < 1e-3 else 0, abs=0.00051)
        assert float(rows[name][-1]) == pytest.approx(topologies.analyse(schedule).traffic, abs=0.051)


def test_only_the_weight_gives_the_true_average(capsys: Capture) -> None:
    assert demo.main() == 0
    out = capsys.readouterr().out
    graph = demo.irregular()
    values = demo.starting_values(graph.n)
    mass, weight = dense(graph, values, demo.LONG)
    lines = {line[:14].strip(): line[14:].split() for line in out.splitlines()}
    assert lines["its mass alone"] == [f"{m:.4f}" for m in mass]
    assert lines["mass / weight"] == [f"{values.mean():.4f}"] * graph.n
    assert mass / weight == pytest.approx(np.full(graph.n, values.mean()))
    assert min(abs(mass - values.mean())) > 0.005, "without its weight every peer is visibly wrong"


def test_it_fits_one_screen(capsys: Capture) -> None:
    assert demo.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
