"""One topology in detail: its description, how fast it mixes, and its edges step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

import topologies
from launch.catalog.edge_list import fraction_text, links_at, shown_steps, value_text
from launch.catalog.topologies_table import analysis_json, parameters_json, steps_text
from launch.terminal import output, waiting
from topologies import Analysis, Schedule, Topology

__all__ = ["print_json", "print_text"]

#: The most links of a step that are listed.
_LINKS = 100


def print_text(schedule: Schedule, steps: int | None) -> None:
    """Print the topology for people to read."""
    analysis = _analyse(schedule)
    topology = _topology(schedule)
    console = output()
    console.print(f"{schedule.name} of {'1 peer' if schedule.n == 1 else f'{schedule.n} peers'}\n")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    for label, text in [*_about(schedule, topology), *_findings(analysis)]:
        facts.add_row(label, Text(text))
    console.print(facts)
    count, which = shown_steps(schedule, steps)
    console.print(f"\nThe fraction of its mass that each peer sends ({which}):")
    sends = Table.grid(padding=(0, 2))
    for wraps in (False, False, True):
        sends.add_column(no_wrap=not wraps)
    cut = 0
    for step in range(count):
        lines, left_out = _step_lines(schedule, step)
        cut += left_out
        for number, (fraction, links) in enumerate(lines):
            sends.add_row("" if number else f"step {step}:", fraction, links)
    console.print(sends, width=min(console.width, 100))
    console.print("a->b: a sends to b; a<->b: each to the other. What a peer does not send, it keeps.")
    if cut:
        console.print(f"{cut} links are left out here; --json lists all.")
    if steps is None and schedule.period != count:
        console.print("More steps: --steps K")


def print_json(schedule: Schedule, steps: int | None) -> None:
    """Print the topology as a JSON object; ``steps`` holds a list of [from, to, fraction] for each step."""
    topology = _topology(schedule)
    analysis = _analyse(schedule)
    count, _ = shown_steps(schedule, steps)
    listed = parameters_json(topology.parameters) if topology else []
    result: dict[str, Any] = {
        "name": schedule.name,
        "n": schedule.n,
        "summary": topology.summary if topology else "",
        "directed": topology.directed if topology else not analysis.symmetric,
        "random": topology.random if topology else False,
        "sizes": topology.sizes if topology else str(schedule.n),
        "paper": topology.paper if topology else "",
        "parameters": [{**p, "value": schedule.parameters[p["name"]]} for p in listed],
        "analysis": analysis_json(analysis),
        "steps": [
            [[u, v, fraction] for u in range(schedule.n) for v, fraction in schedule.out_edges(u, step)]
            for step in range(count)
        ],
    }
    print(json.dumps(result, allow_nan=False))


def _analyse(schedule: Schedule) -> Analysis:
    with waiting(f"analysing {schedule.name} of {schedule.n} peers"):
        return topologies.analyse(schedule)


def _topology(schedule: Schedule) -> Topology | None:
    """Return what is registered, or None for the user's own graph."""
    return topologies.describe(schedule.name) if schedule.name in topologies.names() else None


def _about(schedule: Schedule, topology: Topology | None) -> Iterator[tuple[str, str]]:
    if topology is None:
        yield "summary", "your own graph"
        return
    yield "summary", topology.summary
    yield "paper", topology.paper or "-"
    yield "peers", topology.sizes
    for number, parameter in enumerate(topology.parameters.values()):
        value, default = schedule.parameters[parameter.name], parameter.default
        same = "the default" if value == default else f"the default is {value_text(default)}"
        label = "parameters" if number == 0 else ""
        yield label, f"{parameter.name} = {value_text(value)}  ({parameter.expected}; {same})"
    if not topology.parameters:
        yield "parameters", "none"


def _findings(analysis: Analysis) -> Iterator[tuple[str, str]]:
    period = analysis.period
    yield (
        "repeats",
        "never" if period is None else "every step is the same" if period == 1 else f"after {period} steps",
    )
    yield "links", "both ways, with equal fractions" if analysis.symmetric else "directed"
    if analysis.doubly_stochastic:
        yield "weights", "not needed: everybody receives as much as it sends (doubly stochastic)"
    else:
        yield "weights", "needed: some receive more than they send, and only PushSum weights make up for it"
    if not analysis.connected:
        yield "connected", "NO: some peers never hear from some others, so they will not agree"
    yield "traffic", f"{analysis.traffic:.2f} models per peer and step on average, to at most {analysis.degree}"
    if analysis.exact_after is not None:
        yield "exact", f"after {steps_text(analysis.exact_after, analysis)} steps all hold the exact average"
    else:
        yield (
            "exact",
            f"never, only ever closer: in the long run {analysis.rate:.4g} of the disagreement is left per step",
        )
    reached = [
        f"not below {tolerance} within {analysis.max_steps} steps"
        if steps is None
        else f"below {tolerance} after {steps_text(steps, analysis)} steps"
        for tolerance, steps in (("1e-3", analysis.steps_to_1e3), ("1e-9", analysis.steps_to_1e9))
    ]
    yield "mixing", f"the disagreement is {reached[0]}, {reached[1]}"
    if analysis.estimated:
        yield "", "~ an estimate, since there are too many peers to work it out exactly"


def _step_lines(schedule: Schedule, step: int) -> tuple[list[tuple[str, str]], int]:
    """Return a step's fractions, largest first, each with its links, and how many links were left out."""
    links = sorted(links_at(schedule, step), key=lambda link: (-round(link.fraction, 9), link.tail, link.head))
    lines = []
    for _, group in groupby(links[:_LINKS], key=lambda link: round(link.fraction, 9)):
        same = list(group)
        lines.append((fraction_text(same[0].fraction), "  ".join(str(link) for link in same)))
    left_out = max(len(links) - _LINKS, 0)
    if left_out:
        lines.append(("...", f"{left_out} more links"))
    return lines or [("-", "all are idle")], left_out
