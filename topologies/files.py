"""Read the user's own graphs from a file: GraphML, JSON node-link data, or an edge list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx

from topologies.graphs import from_graphs
from topologies.schedule import Schedule
from topologies.topology_errors import BadGraph

__all__ = ["from_file"]


def from_file(path: str | Path) -> Schedule:
    """Return the schedule in a file. The suffix of its name decides the format.

    - ``.graphml``: one graph, whose node ids are the ranks.
    - ``.json``: networkx node-link data of one graph, or a list of graphs, one per step.
    - ``.edges``, ``.edgelist``, ``.txt``: lines of ``from to [fraction]``, ``#`` starts a comment; directed.

    `from_graphs` describes what a graph must be. Every error names the file and the place in it.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadGraph(f"{path}: unknown format {path.suffix!r} of a graph file; use one of {', '.join(_READERS)}")
    try:
        graphs = reader(path)
    except OSError as error:
        raise BadGraph(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadGraph(f"{path}: not UTF-8 text, from byte {error.start} on") from error
    return from_graphs([_ranks(path, graph) for graph in graphs], name=str(path))


def _graphml(path: Path) -> list[nx.Graph[Any]]:
    try:
        return [nx.read_graphml(path)]
    except (nx.NetworkXError, ParseError, LookupError, ValueError, TypeError) as error:
        raise BadGraph(f"{path}: not a GraphML file that networkx can read: {error}") from error


def _node_link(path: Path) -> list[nx.Graph[Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadGraph(f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise BadGraph(f"{path}: not a graph: {error}") from error
    except RecursionError as error:
        raise BadGraph(f"{path}: not a graph: the JSON is nested too deeply") from error
    graphs = []
    for number, item in enumerate(data if isinstance(data, list) else [data]):
        where = f"{path}, graph {number}" if isinstance(data, list) else str(path)
        if not isinstance(item, dict):
            raise BadGraph(f"{where}: expected node-link data, which is a JSON object, not {type(item).__name__}")
        # networkx 3.3 and older write the edges under "links"; newer ones under "edges".
        edges = next((key for key in ("edges", "links") if isinstance(item.get(key), list)), None)
        if edges is None or not isinstance(item.get("nodes"), list):
            raise BadGraph(f"{where}: node-link data needs the lists 'nodes' and 'edges'")
        ids = [node.get("id") if isinstance(node, dict) else None for node in item["nodes"]]
        for i, rank in enumerate(ids):
            if isinstance(rank, bool) or not isinstance(rank, (int, str)):
                raise BadGraph(f"{where}, node {i}: the id must be the rank, an integer from 0 on, not {rank!r}")
        if len(set(ids)) < len(ids):
            raise BadGraph(f"{where}: two nodes have the same id")
        known = set(ids)
        for i, edge in enumerate(item[edges]):
            for end in ("source", "target"):
                if not isinstance(edge, dict) or not isinstance(edge.get(end), (int, str)) or edge[end] not in known:
                    named = edge.get(end) if isinstance(edge, dict) else edge
                    raise BadGraph(f"{where}, edge {i}: the {end} {named!r} is not among the nodes")
        try:
            graphs.append(nx.node_link_graph({**item, "graph": {}}, edges=edges))
        except (nx.NetworkXError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadGraph(f"{where}: not node-link data that networkx can read: {error!r}") from error
    return graphs


def _edge_list(path: Path) -> list[nx.Graph[Any]]:
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split("#", 1)[0].replace(",", " ").split()
        if not words:
            continue
        where = f"{path}, line {number}"
        if len(words) not in (2, 3):
            raise BadGraph(f"{where}: expected 'from to [fraction]', not {line.strip()!r}")
        if graph.has_edge(words[0], words[1]):
            raise BadGraph(f"{where}: the edge {words[0]} -> {words[1]} is already in the file; write it once")
        try:
            weight = {"weight": float(words[2])} if len(words) == 3 else {}
        except ValueError:
            raise BadGraph(f"{where}: the fraction must be a number, not {words[2]!r}") from None
        graph.add_edge(words[0], words[1], **weight)
    return [graph]


def _ranks(path: Path, graph: nx.Graph[Any]) -> nx.Graph[Any]:
    """Turn node ids that are written as text ("3", or GraphML's usual "n3") into ranks."""
    ranks: dict[Any, int] = {}
    for node in graph:
        if isinstance(node, str):
            digits = node.removeprefix("n")
            if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
                raise BadGraph(f"{path}: node {node!r}: the id must be the rank, an integer from 0 on")
            ranks[node] = int(digits)
    if len({ranks.get(node, node) for node in graph}) < len(graph):
        raise BadGraph(f"{path}: two nodes have the same rank")
    return nx.relabel_nodes(graph, ranks)


_READERS: dict[str, Callable[[Path], list[nx.Graph[Any]]]] = {
    ".graphml": _graphml,
    ".json": _node_link,
    ".edges": _edge_list,
    ".edgelist": _edge_list,
    ".txt": _edge_list,
}
