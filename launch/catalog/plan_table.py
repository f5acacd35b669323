"""A plan as tables and as JSON: every split, and the layers of one of them."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from gossip.costs.choosing_splits import seconds_text
from gossip.costs.predictions import Prediction
from gossip.costs.volumes import Volume
from launch.terminal import output

if TYPE_CHECKING:
    from peers.planner.planning_splits import GridPlan

__all__ = ["plan_json", "print_plan", "print_plan_json"]

_FIGURES = ("sent inside", "sent across", "messages", "computing", "time inside", "time across", "step", "memory")
_LEGEND = (
    "grid: rows of a crew x replicas. Figures are those of one process and step. inside: within the crew; across: "
    "to other replicas; messages: those that follow one another; step: computing and both times, where the exchange "
    "across may run while the next step computes; memory: without what torch and Python take themselves."
)


def print_plan(plan: GridPlan, *, layers: bool = False) -> None:
    """Print all splits, the best and why; with ``layers`` also what each layer of the best costs."""
    console, choice = output(), plan.choice
    weights = choice.job.weights
    console.print(f"{weights:,} weights in {len(choice.job.layers)} layers; a batch of {choice.job.batch} samples")
    for line in plan.sources:
        console.print(line)
    console.print()
    console.print(_splits(choice.splits, choice.best))
    if layers and choice.best is not None:
        console.print(f"\nThe layers of {choice.best}:\n")
        console.print(_layers(choice.best))
    console.print(f"\n{_LEGEND}", width=min(console.width, 110))
    console.print(f"\n{choice.why}", soft_wrap=True)


def print_plan_json(plan: GridPlan) -> None:
    """Print the plan as JSON."""
    print(json.dumps(plan_json(plan), indent=2, allow_nan=False))


def plan_json(plan: GridPlan) -> dict[str, Any]:
    """Return the plan: what was asked, each layer, each split with its layers, the best and why."""
    job, machine, best = plan.choice.job, plan.choice.machine, plan.choice.best
    return {
        "batch": job.batch,
        "processes": machine.processes,
        "hosts": list(machine.hosts),
        "links": {
            name: {"bytes_per_second": link.rate, "latency_seconds": link.latency}
            for name, link in (("inside", machine.inside), ("between", machine.between))
        },
        "pace": {"seconds_per_sample": job.pace.each, "seconds_per_step": job.pace.fixed},
        "weights": job.weights,
        "layers": [
            {
                "name": layer.name,
                "kind": layer.kind,
                "weights": layer.weights,
                "inputs": layer.inputs,
                "outputs": layer.outputs,
                "multiply_adds": layer.work,
            }
            for layer in job.layers
        ],
        "splits": [_split_json(split) for split in plan.choice.splits],
        "best": None if best is None else {"grid": str(best.grid), "kind": best.kind},
        "why": plan.choice.why,
    }


def _split_json(split: Prediction) -> dict[str, Any]:
    head = {
        "grid": str(split.grid),
        "rows": split.grid.rows,
        "replicas": split.grid.replicas,
        "kind": split.kind,
        "fits": split.fits,
        "reason": split.reason,
    }
    if split.memory is None:
        return head
    inner, across = split.inner_volume, split.across_volume
    memory = {name: getattr(split.memory, name) for name in (*split.memory.__dataclass_fields__, "total")}
    return {
        **head,
        "bytes": {"inside": inner.size, "across": across.size},
        "messages": {"inside": inner.messages, "across": across.messages},
        "seconds": {
            "computing": split.computing,
            "inside": split.inner,
            "across": split.across,
            "communication": split.communication,
            "step": split.step,
        },
        "memory": memory,
        "layers": [
            {
                "name": layer.name,
                "role": layer.role,
                "bytes": {"inside": (layer.inner + layer.gathering).size, "across": layer.across.size},
                "messages": {"inside": (layer.inner + layer.gathering).messages, "across": layer.across.messages},
                "seconds": {"inside": layer.inner_seconds, "across": layer.across_seconds},
            }
            for layer in split.layers
        ],
    }


def _splits(splits: tuple[Prediction, ...], best: Prediction | None) -> Table:
    table = _table(("grid", "kind"), _FIGURES)
    table.add_column("", overflow="fold")
    for (grid, reason), group in groupby(splits, key=lambda split: (split.grid, "" if split.memory else split.reason)):
        if reason:  # once for all kinds that cannot be had for the same reason
            kinds, every = [split.kind for split in group], [split.kind for split in splits if split.grid == grid]
            table.add_row(
                str(grid),
                "any" if kinds == every else ", ".join(kinds),
                *[""] * len(_FIGURES),
                Text(reason),
                style="dim",
            )
            continue
        for split in group:
            style = "bold" if split is best else "" if split.fits else "dim"
            table.add_row(*_cells(split), Text("best" if split is best else split.reason), style=style)
    return table


def _cells(split: Prediction) -> list[str]:
    assert split.memory is not None
    inner, across = split.inner_volume, split.across_volume
    return [
        str(split.grid),
        split.kind,
        _size(inner),
        _size(across),
        f"{inner.messages + across.messages:g}",
        *(seconds_text(value) for value in (split.computing, split.inner, split.across, split.step)),
        _mebibytes(split.memory.total),
    ]


def _layers(split: Prediction) -> Table:
    table = _table(("layer", "kind", "split"), ("sent inside", "sent across", "messages", "time inside", "time across"))
    for layer in split.layers:
        inner = layer.inner + layer.gathering
        if inner.size or layer.across.size:
            table.add_row(
                Text(layer.name),
                layer.kind,
                layer.role,
                _size(inner),
                _size(layer.across),
                f"{inner.messages:g}",
                seconds_text(layer.inner_seconds),
                seconds_text(layer.across_seconds),
            )
    return table


def _table(left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, no_wrap=True, justify="right")
    return table


def _size(volume: Volume) -> str:
    return f"{volume.size / 1e6:.3g} MB" if volume.size else "-"


def _mebibytes(size: float) -> str:
    return f"{size / 2**30:.3g} GiB" if size >= 2**30 else f"{size / 2**20:.4g} MiB"
