"""``make demo``: peers that agree on an average, with nobody in the middle."""

from __future__ import annotations

import sys
from itertools import islice

import networkx as nx
import numpy as np
from rich import box
from rich.table import Table

import topologies
from launch.averaging import Array, push_sum, spread
from launch.cli import guarded
from launch.terminal import output
from topologies import Schedule

__all__ = ["main"]

PEERS = 33
NAMES = ("ring", "torus", "exponential", "one-peer-exponential", "random-matching", "base")
STEPS = (1, 2, 4, 8, 11, 16, 32)
#: After so many steps of the irregular graph nothing changes any more.
LONG = 200
_WIDTH = 80


def main() -> int:
    """Print the demo and return the exit code."""
    console = output()
    width = min(console.width, _WIDTH)
    values = starting_values(PEERS)
    console.print(
        f"{PEERS} peers hold a random number each and want the average, {values.mean():.4f}. Nobody is in "
        "charge: in each step a peer sends a share of what it has to the peers that the topology names, and "
        "keeps the rest. What is left of their differences after so many steps, and how many messages a peer "
        "sends in a step:\n",
        width=width,
    )
    console.print(_race(values))
    console.print(
        "\nObserve: ring and base send no more than one message per step, but only base is done after a few "
        "steps, and exactly: 0 up to rounding, for any number of peers.\n",
        width=width,
    )
    graph = irregular()
    mine = starting_values(graph.n)
    console.print(
        f"Now {graph.n} peers on a directed graph where some hear from many and some from few. The average is "
        f"{mine.mean():.4f}. After {LONG} steps each peer believes:\n",
        width=width,
    )
    console.print(_beliefs(graph, mine))
    console.print(
        "\nObserve: mass piles up where more arrives than leaves, so alone it is wrong. PushSum sends a weight "
        "along with the mass, and dividing by it gives everybody the true average.\n",
        width=width,
    )
    console.print("Next:  .venv/bin/gossip topologies -n 33             compare all topologies")
    console.print("       .venv/bin/gossip topologies base -n 33        one of them, step by step")
    console.print("       .venv/bin/gossip topologies --plot speed.svg  how fast they are, drawn")
    console.print("       .venv/bin/gossip simulate --loss 10% --kill 3@50  and over a bad network")
    return 0


def starting_values(n: int) -> Array:
    """Return the same random numbers between 0 and 1 in every run."""
    return np.random.default_rng(0).random(n)


def irregular() -> Schedule:
    """Return a directed graph in which the peers hear from 1 to 4 others; each shares evenly."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 0), (2, 0), (3, 0), (5, 2)])
    return topologies.from_graphs(graph, name="irregular")


def _race(values: Array) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("step", no_wrap=True)
    for step in STEPS:
        table.add_column(str(step), justify="right", no_wrap=True)
    table.add_column("sends", justify="right", no_wrap=True)
    for name in NAMES:
        schedule = topologies.get(name, len(values))
        left = spread(schedule, values, max(STEPS))
        sends = topologies.analyse(schedule).traffic
        table.add_row(name, *(_short(left[step]) for step in STEPS), f"{sends:.1f}")
    return table


def _beliefs(graph: Schedule, values: Array) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("peer", no_wrap=True)
    mass, weight = next(islice(push_sum(graph, values), LONG, None))
    rows = {"hears from": [str(len(graph.in_neighbours(rank, 0))) for rank in range(graph.n)]}
    rows["its mass alone"] = [f"{m:.4f}" for m in mass]
    rows["mass / weight"] = [f"{m / w:.4f}" for m, w in zip(mass, weight, strict=True)]
    for rank in range(graph.n):
        table.add_column(str(rank), justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _short(value: float) -> str:
    """Write a number in five characters: 0.123, or 1e-16."""
    if value < 1e-12:
        return "0"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


if __name__ == "__main__":
    sys.exit(guarded(main))
