"""All topologies for one number of peers, as a table or as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

import topologies
from launch.terminal import output, watched
from topologies import Analysis, Parameter, Schedule, Topology, TopologyError

__all__ = ["Row", "analysis_json", "measure", "parameters_json", "print_json", "print_table", "steps_text"]

_FIGURES = ("directed", "degree", "traffic", "exact in", "to 1e-3", "to 1e-9")
_LEGEND = (
    "degree: the most peers that a peer sends to in a step; traffic: models that a peer sends per step, on average; "
    "exact in: steps until all peers hold the exact average; to 1e-3, to 1e-9: steps until the disagreement of the "
    "peers has fallen to that fraction."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A topology and its analysis for the requested number of peers, or why it does not exist for that number."""

    topology: Topology
    n: int
    schedule: Schedule | None = None
    analysis: Analysis | None = None
    error: str = ""


def measure(n: int, seed: int) -> list[Row]:
    """Analyse every topology for ``n`` peers."""
    rows = []
    for name in watched(topologies.names(), f"analysing {n} peers"):
        topology = topologies.describe(name)
        try:
            schedule = topologies.get(name, n, seed=seed)
            rows.append(Row(topology, n, schedule, topologies.analyse(schedule)))
        except TopologyError as error:
            rows.append(Row(topology, n, error=str(error)))
    return rows


def print_table(rows: list[Row], seed: int) -> None:
    """Print the rows as one table or, where the terminal is too narrow for it, as two."""
    console = output()
    console.print(f"{len(rows)} topologies for {_peers(rows[0].n)}\n")
    whole = _table(rows, figures=True, sources=True)
    if _fits(console, whole):
        console.print(whole)
    else:
        console.print(_table(rows, figures=True, sources=False))
        console.print()
        console.print(_table(rows, figures=False, sources=True))
    console.print(f"\n{_LEGEND}", width=min(console.width, 110))
    if any(row.topology.random for row in rows):
        console.print(f"* random: the figures are those of --seed {seed}.")
    if any(row.analysis and row.analysis.estimated for row in rows):
        console.print("~ an estimate: there are too many peers for an exact computation.")
    console.print(f"More on one of them: gossip topologies NAME -n {rows[0].n}")


def print_json(rows: list[Row]) -> None:
    """Print the rows as a JSON list."""
    print(json.dumps([_row_json(row) for row in rows], indent=2, allow_nan=False))


def analysis_json(analysis: Analysis) -> dict[str, Any]:
    """Return the fields of an analysis; JSON has no infinity, so a rate that is not finite becomes null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in dataclasses.asdict(analysis).items()
    }


def parameters_json(parameters: Mapping[str, Parameter]) -> list[dict[str, Any]]:
    """Return what can be set: name, type in words, default."""
    return [{"name": p.name, "type": p.expected, "default": p.default} for p in parameters.values()]


def steps_text(steps: int | None, analysis: Analysis) -> str:
    """Write a number of steps; one that was not reached as a lower bound, an estimate with a tilde."""
    if steps is None:
        return f">{analysis.max_steps}"
    return f"{'~' if analysis.estimated else ''}{steps}"


def _row_json(row: Row) -> dict[str, Any]:
    topology = row.topology
    return {
        "name": topology.name,
        "n": row.n,
        "summary": topology.summary,
        "directed": topology.directed,
        "random": topology.random,
        "sizes": topology.sizes,
        "paper": topology.paper,
        "parameters": parameters_json(topology.parameters),
        **(analysis_json(row.analysis) if row.analysis else {"error": row.error}),
    }


def _table(rows: list[Row], *, figures: bool, sources: bool) -> Table:
    """Make a table. The figures are one column of their own layout, so that a reason can stand across them."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    table.add_column("topology", no_wrap=True)
    if figures:
        table.add_column(_figures(_FIGURES), overflow="fold")
    if sources:
        table.add_column("peers", overflow="fold")
        table.add_column("paper", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, figures, sources), style="" if row.analysis else "dim")
    return table


def _cells(row: Row, figures: bool, sources: bool) -> list[Text]:
    topology, analysis = row.topology, row.analysis
    cells = [f"{topology.name} *" if topology.random else topology.name]
    if figures and analysis:
        exact = "-" if analysis.exact_after is None else steps_text(analysis.exact_after, analysis)
        reached = [steps_text(steps, analysis) for steps in (analysis.steps_to_1e3, analysis.steps_to_1e9)]
        directed = "yes" if topology.directed else "no"
        cells.append(_figures([directed, str(analysis.degree), f"{analysis.traffic:.2f}", exact, *reached]))
    elif figures:
        # The first sentence says why and what works; the name stands in the first column already.
        cells.append(row.error.removeprefix(f"{topology.name} ").split(". ")[0])
    if sources:
        cells += [topology.sizes, topology.paper]
    return [Text(cell) for cell in cells]


def _figures(cells: Sequence[str]) -> str:
    return "  ".join(cell.rjust(len(head)) for cell, head in zip(cells, _FIGURES, strict=True))


def _fits(console: Console, table: Table) -> bool:
    """Whether the table has room for its columns' natural widths; rich would squeeze it in anyhow."""
    unlimited = console.options.update(max_width=10_000)
    return Measurement.get(console, unlimited, table).maximum <= console.width


def _peers(n: int) -> str:
    return "1 peer" if n == 1 else f"{n} peers"
