"""Corners that are easy to get wrong: tiny swarms, odd files, late steps."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph_file_fuzz import read
from test_topology_cost import opcodes
from test_topology_draws import LIMIT, far_from_uniform, matching

import topologies
from topologies import BadGraph, BadParameter
from topologies.draws import Shuffle


def test_every_matching_of_six_is_as_likely() -> None:
    over_steps = (matching(6, seed, step) for seed in range(3) for step in range(1000))
    assert abs(far_from_uniform(over_steps, 15)) < LIMIT
    over_seeds = (matching(6, seed, 0) for seed in range(3000))
    assert abs(far_from_uniform(over_seeds, 15)) < LIMIT


@pytest.mark.parametrize(("n", "permutations"), [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)])
def test_every_permutation_is_as_likely(n: int, permutations: int) -> None:
    drawn = (tuple(Shuffle(n, 7, key)(i) for i in range(n)) for key in range(6_000))
    assert abs(far_from_uniform(drawn, permutations)) < LIMIT


def test_an_undirected_multigraph_may_have_self_loops() -> None:
    graph = nx.MultiGraph()
    graph.add_weighted_edges_from([(0, 1, 0.25), (0, 0, 0.75), (1, 1, 0.75)])
    assert topologies.from_graphs(graph).out_edges(0, 0) == ((1, 0.25),)
    graph.add_edge(0, 0, weight=0.0)
    with pytest.raises(BadGraph, match="parallel edges"):
        topologies.from_graphs(graph)


def test_json_by_hand_may_say_what_a_node_keeps(tmp_path: Path) -> None:
    """networkx reads node-link data that does not say "multigraph" as one."""
    path = tmp_path / "a.json"
    edges = [(0, 1, 0.5), (0, 0, 0.5), (1, 1, 0.5)]
    data = {
        "nodes": [{"id": 0}, {"id": 1}],
        "edges": [{"source": u, "target": v, "weight": w} for u, v, w in edges],
    }
    path.write_text(json.dumps(data))
    assert topologies.from_file(path).out_edges(0, 0) == ((1, 0.5),)


NODE = '"nodes": [{"id": 0}]'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list-id.json", '{"nodes": [{"id": [0]}], "edges": []}'),
        ("dict-end.json", f'{{{NODE}, "edges": [{{"source": {{}}, "target": 0}}]}}'),
        ("graph-5.json", f'{{"graph": 5, {NODE}, "edges": [{{"source": 0, "target": 9}}]}}'),
        ("digits.json", "9" * 5000),
        ("digits.edges", "0 " + "0" * 5000),
        ("weight.json", f'{{"directed": true, {NODE}, "edges": [{{"source":0,"target":0,"weight":1{"0" * 400}}}]}}'),
        ("encoding.graphml", '<?xml version="1.0" encoding="foo"?><graphml/>'),
        ("same-rank.json", '{"nodes": [{"id": 0}, {"id": "0"}], "edges": []}'),
        ("same-id.json", '{"nodes": [{"id": 0}, {"id": 0}], "edges": []}'),
    ],
)
def test_a_strange_file_is_a_bad_graph(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadGraph, match=name):
        topologies.from_file(tmp_path / name)


def test_what_json_says_of_the_graph_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f'{{"graph": 5, {NODE}, "edges": []}}')
    assert topologies.from_file(tmp_path / "a.json").n == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


leaves = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.sampled_from(["0", "1", "x", ""])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
nodes = st.one_of(st.fixed_dictionaries({"id": values}), st.fixed_dictionaries({"id": st.integers(0, 2)}), values)
ends = st.integers(0, 2) | values
links = st.one_of(
    st.fixed_dictionaries({"source": ends, "target": ends}, optional={"weight": values, "key": values}), values
)
graphs = st.fixed_dictionaries(
    {"nodes": st.lists(nodes, max_size=3) | values, "edges": st.lists(links, max_size=3) | values},
    optional={"directed": values, "multigraph": values, "graph": values, "links": values},
)


@settings(max_examples=500)
@given(data=st.one_of(graphs, st.lists(graphs, max_size=2), values))
def test_json_that_is_nearly_node_link_data(folder: Path, data: object) -> None:
    read(folder, ".json", json.dumps(data).encode())


@pytest.mark.parametrize("key", ["n", "name"])
def test_an_argument_of_get_is_no_parameter(key: str) -> None:
    with pytest.raises(BadParameter, match=f"ring has no parameter '{key}'"):
        topologies.parse(f"ring:{key}=4", 4)


@pytest.mark.parametrize("text", ["erdos-renyi:p=none", "equistatic:m=none", "torus:rows=none"])
def test_none_can_be_written_where_it_is_allowed(text: str) -> None:
    assert None in topologies.parse(text, 6).parameters.values()


def test_a_late_step_counts_in_the_analysis_too() -> None:
    even, uneven = nx.Graph([(0, 1)]), nx.DiGraph([(0, 1)])
    found = topologies.analyse(topologies.from_graphs([even] * 70 + [uneven]))
    assert not found.doubly_stochastic
    assert not found.symmetric


def test_the_traffic_of_a_large_swarm_is_that_of_the_whole_period() -> None:
    schedule = topologies.get("base", 300)
    sent = sum(len(schedule.out_edges(rank, step)) for rank in range(300) for step in range(schedule.period))
    assert topologies.analyse(schedule).traffic == pytest.approx(sent / 300 / schedule.period)


def test_a_huge_k_costs_no_more_than_n() -> None:
    assert opcodes(lambda: topologies.get("base", 10, k=10**5)) < 20_000
