"""Time-varying directed graphs for gossip, by name.

    >>> import topologies
    >>> schedule = topologies.get("base", n=33, k=1)
    >>> schedule.out_edges(rank=0, step=0)
    ((1, 0.5),)

Topologies are pure functions of (n, step, seed, parameters) on networkx digraphs. They use no clock, no network and
no global random numbers. So every peer computes its edges alone, and all peers compute the same graph. The module
`schedule` defines the convention for edges, and `registry` says how to add a topology.
"""

from topologies import (  # noqa: F401  (importing registers them)
    base,
    circulant,
    dense,
    digits,
    epidemic,
    equi,
    grid,
    hierarchical,
    hypercube,
    matcha,
    matching,
    random_graphs,
)
from topologies.analysis import Analysis, analyse
from topologies.files import from_file
from topologies.graphs import from_graphs
from topologies.registry import Parameter, Topology, describe, get, names, parse, register
from topologies.schedule import Plan, Schedule
from topologies.topology_errors import BadGraph, BadParameter, TopologyError, UnknownTopology, UnsupportedSize

__all__ = [
    "Analysis",
    "BadGraph",
    "BadParameter",
    "Parameter",
    "Plan",
    "Schedule",
    "Topology",
    "TopologyError",
    "UnknownTopology",
    "UnsupportedSize",
    "analyse",
    "describe",
    "from_file",
    "from_graphs",
    "get",
    "names",
    "parse",
    "register",
]
