"""Graphs from files: each format, written by networkx and by hand, and what is said of those that are no graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

import topologies
from topologies import BadGraph, Schedule

DIRECTED = topologies.get("kautz", 7).graph_at(0)
UNDIRECTED = nx.petersen_graph()


def same(one: Schedule, other: Schedule) -> bool:
    return one.period == other.period and all(
        one.out_edges(rank, step) == other.out_edges(rank, step)
        for step in range(one.period or 0)
        for rank in range(other.n)
    )


def node_link(graph: nx.Graph) -> dict[str, object]:
    """Write node-link data with the key "edges", whatever the version of networkx."""
    data = nx.node_link_data(graph, edges="edges")
    data["graph"] = {}
    return data


@pytest.mark.parametrize("graph", [DIRECTED, UNDIRECTED], ids=["directed", "undirected"])
def test_graphml_by_networkx(tmp_path: Path, graph: nx.Graph) -> None:
    path = tmp_path / "a.graphml"
    nx.write_graphml(graph, path)
    schedule = topologies.from_file(path)
    assert schedule.name == str(path)
    assert same(schedule, topologies.from_graphs(graph))
    assert same(topologies.from_file(str(path)), schedule)


def test_graphml_by_hand_with_the_usual_node_names(tmp_path: Path) -> None:
    path = tmp_path / "b.GraphML"
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="w" for="edge" attr.name="weight" attr.type="double"/>'
        '<graph edgedefault="directed"><node id="n0"/><node id="n1"/>'
        '<edge source="n0" target="n1"><data key="w">0.25</data></edge>'
        '<edge source="n0" target="n0"><data key="w">0.75</data></edge>'
        '<edge source="n1" target="n0"><data key="w">1</data></edge></graph></graphml>'
    )
    schedule = topologies.from_file(path)
    assert schedule.out_edges(0, 0) == ((1, 0.25),)
    assert schedule.out_edges(1, 0) == ((0, 1.0),)


@pytest.mark.parametrize("key", ["edges", "links"])
@pytest.mark.parametrize("graph", [DIRECTED, UNDIRECTED], ids=["directed", "undirected"])
def test_json_of_one_graph_by_networkx(tmp_path: Path, graph: nx.Graph, key: str) -> None:
    path = tmp_path / "c.json"
    data = node_link(graph)
    data[key] = data.pop("edges")
    path.write_text(json.dumps(data))
    assert same(topologies.from_file(path), topologies.from_graphs(graph))


def test_json_of_a_list_of_graphs_is_one_a_step(tmp_path: Path) -> None:
    steps = [topologies.get("base", 11).graph_at(step) for step in range(4)]
    path = tmp_path / "d.json"
    path.write_text(json.dumps([node_link(graph) for graph in steps]))
    assert same(topologies.from_file(path), topologies.from_graphs(steps))


def test_json_by_hand_is_undirected_unless_it_says_directed(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    data: dict[str, object] = {
        "nodes": [{"id": 0}, {"id": "1"}, {"id": 2}],
        "edges": [{"source": 0, "target": "1"}, {"source": "1", "target": 2}],
    }
    path.write_text(json.dumps(data))
    assert same(topologies.from_file(path), topologies.from_graphs(nx.path_graph(3)))
    path.write_text(json.dumps({**data, "directed": True}))
    assert same(topologies.from_file(path), topologies.from_graphs(nx.path_graph(3, create_using=nx.DiGraph)))


@pytest.mark.parametrize("suffix", [".edges", ".edgelist", ".txt", ".TXT"])
def test_an_edge_list_with_comments(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    path.write_text("# who sends what to whom\n\n0 1 0.25  # a quarter\n0,0,0.75\n  1\t0 1e0\n")
    schedule = topologies.from_file(path)
    assert schedule.out_edges(0, 0) == ((1, 0.25),)
    assert schedule.kept(0, 0) == 0.75
    assert schedule.out_edges(1, 0) == ((0, 1.0),)


def test_an_edge_list_by_networkx(tmp_path: Path) -> None:
    path = tmp_path / "g.edgelist"
    nx.write_weighted_edgelist(DIRECTED, path)
    assert same(topologies.from_file(path), topologies.from_graphs(DIRECTED))


def test_an_edge_list_without_fractions_is_directed_and_even(tmp_path: Path) -> None:
    path = tmp_path / "h.edges"
    path.write_text("0 1\n0 2\n1 0\n2 0\n")
    assert topologies.from_file(path).out_edges(0, 0) == ((1, 1 / 3), (2, 1 / 3))


NODES = '"nodes": [{"id": 0}, {"id": 1}]'
GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}</graphml>'

BAD = {
    "three words": ("a.edges", "0 1\n1 2 3 4\n", r"a\.edges, line 2: expected 'from to \[fraction\]', not '1 2 3 4'"),
    "one word": ("a.edges", "0 1\n\n1\n", r"a\.edges, line 3: expected 'from to"),
    "text weight": ("a.txt", "0 1 half\n", r"a\.txt, line 1: the fraction must be a number, not 'half'"),
    "twice": ("a.edges", "0 1 .5\n#\n0 1 .5\n", r"a\.edges, line 3: the edge 0 -> 1 is already in the file"),
    "negative weight": ("a.edges", "0 1 -1\n0 0 2\n1 1 1\n", r"a\.edges, edge 0 -> 1: .*cannot be -1"),
    "nan weight": ("a.edges", "0 1 nan\n1 1 1\n", r"a\.edges, edge 0 -> 1: .*finite number, not nan"),
    "infinite weight": ("a.edges", "0 1 inf\n1 1 1\n", r"a\.edges, edge 0 -> 1: .*finite number, not inf"),
    "some weights": ("a.edges", "0 1 1\n1 0\n", r"a\.edges, edge 1 -> 0: the edge has no weight"),
    "sum": ("a.edges", "0 1 0.5\n1 1 1\n", r"a\.edges, node 0: .* sum to 0\.5, not 1; add a self-loop 0 -> 0"),
    "word nodes": ("a.edges", "alice bob\n", r"a\.edges: node 'alice': the id must be the rank"),
    "below 0": ("a.edges", "0 -1\n", r"a\.edges: node '-1': the id must be the rank"),
    "a gap": ("a.edges", "0 1\n1 5\n", r"a\.edges: the 3 nodes must be the ranks 0 to 2, but one is 5"),
    "same rank": ("a.edges", "0 1\n1 00\n", r"a\.edges: two nodes have the same rank"),
    "no edges": ("a.edges", "# nothing\n", r"a\.edges: the graph has no nodes"),
    "not json": ("a.json", '{\n "nodes": [}', r"a\.json, line 2, column 12: not JSON: Expecting value"),
    "empty json": ("a.json", "", r"a\.json, line 1, column 1: not JSON"),
    "number": ("a.json", "5", r"a\.json: expected node-link data, which is a JSON object, not int"),
    "list of number": ("a.json", f'[{{{NODES}, "edges": []}}, 5]', r"a\.json, graph 1: expected node-link data"),
    "empty list": ("a.json", "[]", r"the list of graphs is empty"),
    "no edges key": ("a.json", f"{{{NODES}}}", r"a\.json: node-link data needs the lists 'nodes' and 'edges'"),
    "no nodes key": ("a.json", '{"edges": []}', r"a\.json: node-link data needs the lists 'nodes' and 'edges'"),
    "unknown node": (
        "a.json",
        f'{{{NODES}, "edges": [{{"source": 0, "target": 1}}, {{"source": 0, "target": 7}}]}}',
        r"a\.json, edge 1: the target 7 is not among the nodes",
    ),
    "unknown source": (
        "a.json",
        f'[{{{NODES}, "edges": [{{"target": 1}}]}}]',
        r"a\.json, graph 0, edge 0: the source None is not among the nodes",
    ),
    "edge is a pair": ("a.json", f'{{{NODES}, "edges": [[0, 1]]}}', r"a\.json, edge 0: the source \[0, 1\] is not"),
    "parallel": (
        "a.json",
        f'{{{NODES}, "edges": [{{"source": 0, "target": 1}}, {{"source": 1, "target": 0}}]}}',
        r"a\.json is a multigraph with parallel edges",
    ),
    "json text weight": (
        "a.json",
        f'{{"directed": true, {NODES}, "edges": [{{"source": 0, "target": 1, "weight": "x"}}]}}',
        r"a\.json, edge 0 -> 1: the weight must be a finite number, not 'x'",
    ),
    "other sizes": (
        "a.json",
        f'[{{{NODES}, "edges": []}}, {{"nodes": [{{"id": 0}}], "edges": []}}]',
        r"a\.json, graph 1 has 1 nodes, but graph 0 has 2",
    ),
    "node is no object": ("a.json", '{"nodes": [0], "edges": []}', r"a\.json(: not node-link data|, node 0: )"),
    "deep": ("a.json", "[" * 100_000, r"a\.json: not a graph: the JSON is nested too deeply"),
    "truncated": ("a.graphml", GRAPHML.format("<graph>")[:-12], r"a\.graphml: not a GraphML file .*line 1, column"),
    "empty graphml": ("a.graphml", "", r"a\.graphml: not a GraphML file"),
    "other xml": ("a.graphml", "<svg/>", r"a\.graphml: not a GraphML file"),
    "graphml word nodes": (
        "a.graphml",
        GRAPHML.format('<graph edgedefault="directed"><node id="alice"/></graph>'),
        r"a\.graphml: node 'alice': the id must be the rank",
    ),
    "graphml text weight": (
        "a.graphml",
        GRAPHML.format(
            '<key id="w" for="edge" attr.name="weight" attr.type="string"/><graph edgedefault="directed">'
            '<node id="0"/><edge source="0" target="0"><data key="w">all</data></edge></graph>'
        ),
        r"a\.graphml, edge 0 -> 0: the weight must be a finite number, not 'all'",
    ),
    "kind": (
        "a.yaml",
        "0 1\n",
        r"a\.yaml: unknown format '\.yaml' of a graph file; use one of \.graphml, \.json, \.edges",
    ),
    "no kind": ("graph", "0 1\n", r"unknown format '' of a graph file"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_with_where(tmp_path: Path, what: str) -> None:
    name, text, complaint = BAD[what]
    (tmp_path / name).write_text(text)
    with pytest.raises(BadGraph, match=complaint):
        topologies.from_file(tmp_path / name)


@pytest.mark.parametrize("suffix", [".graphml", ".json", ".edges"])
def test_what_cannot_be_read_is_refused_with_why(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    complaints: list[tuple[Callable[[], object], str]] = [
        (lambda: None, r"cannot be read: No such file"),
        (lambda: path.mkdir(), r"cannot be read: Is a directory"),
        (lambda: (path.rmdir(), path.write_bytes(b"\x00\xff\xfe\x80garbage")), r"not UTF-8 text|not a GraphML"),
    ]
    for prepare, complaint in complaints:
        prepare()
        with pytest.raises(BadGraph, match=rf"x\{suffix}: .*({complaint})"):
            topologies.from_file(path)


def test_text_in_another_encoding_says_from_which_byte(tmp_path: Path) -> None:
    for suffix in (".json", ".edges"):
        path = tmp_path / f"latin{suffix}"
        path.write_bytes("0 1 # é".encode("latin-1"))
        with pytest.raises(BadGraph, match="not UTF-8 text, from byte 6 on"):
            topologies.from_file(path)
