"""What the planner predicts for every split, against what the split takes: hosts with slots on slow links.

    sudo .venv/bin/python -m benchmarks.grids [--quick] [--json]

The hosts are network namespaces on one bridge, with ``tc tbf`` on both ends of each link: 4 hosts x 2 slots and 2 hosts
x 4 slots (``--quick``: 2 x 2). On each an MLP and a small convolutional network train, with three batch sizes, in every
split that the planner considers and torch can run: whole replicas, FSDP and tensor parallel. Replicas gossip by sgp
with endless patience, so that a step has all of its traffic. The loopback and the computing are measured before; the
links are what they were made. All processes share the cores of this machine.

Bars: in every case the planner's pick takes at most 1.1 times as long as the split that was measured to be the best,
and in one case at least the best is neither whole replicas nor one replica. `mixed` and `domain` are not run yet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import topologies
from benchmarks.bars import Bar, command, finish, table
from benchmarks.grid_job import MODELS, SHAPES
from benchmarks.namespaces import INTERFACE, address, slow_hosts, unable
from benchmarks.swarms import Swarm
from gossip.costs import Across, Job, LinkSpeed, Machine, Prediction, SplitChoice, choose
from peers.planner.measuring import measure_loopback, measure_pace
from peers.planner.model_reading import read_layers

__all__ = ["main"]

MBIT = 50.0
MARGIN = 1.1
KINDS = ("fsdp", "tensor")
BATCHES = (64, 256, 2048)
#: Seconds of a message between two namespaces.
_LATENCY = 2e-4


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if reason := unable():
        raise SystemExit(f"grids: {reason}")
    machines = [[2, 2]] if quick else [[2, 2, 2, 2], [4, 4]]
    batches = BATCHES[1:] if quick else BATCHES
    cases = []
    for slots in machines:
        n = sum(slots)
        with slow_hosts(len(slots), MBIT) as names:
            spaces = [name for name, count in zip(names, slots, strict=True) for _ in range(count)]
            for model in MODELS:
                for batch in batches:
                    cases.append(_case(slots, spaces, n, model, batch, steps=6 if quick else 15))
    rows = [
        [
            case["case"],
            _name(split),
            *(f"{split[key]:.3f}" for key in ("predicted", "measured")),
            " ".join(word for word in ("pick", "best") if case[word] == _name(split)),
        ]
        for case in cases
        for split in case["splits"]
    ]
    head = ["case", "split", "predicted s", "measured s", ""]
    text = f"grids: links of {MBIT:g} Mbit/s between hosts\n{table(head, rows)}"
    bars = [Bar(f"{case['case']}: pick over best", case["ratio"], "<=", MARGIN) for case in cases]
    between = sum(not case["best"].startswith("1x") and "x1 " not in case["best"] for case in cases)
    bars.append(Bar("cases whose best is neither extreme", between, ">=", 1))
    return finish(text, {"cases": cases}, bars, as_json=as_json)


def _case(slots: Sequence[int], spaces: list[str], n: int, model: str, batch: int, steps: int) -> dict[str, Any]:
    """Predict and measure all splits for one model and batch."""
    name = f"{len(slots)} hosts x {slots[0]}, {model}, B = {batch}"
    planned = _planned(slots, n, model, batch)
    splits: list[dict[str, Any]] = []
    for split in planned.splits:
        if split.fits:
            seconds = _measured(spaces, n, model, batch, split, steps)
            print(f"  {name}, {split}: {split.step:.3f} -> {seconds:.3f} s", file=sys.stderr, flush=True)
            splits.append({"grid": str(split.grid), "kind": split.kind, "predicted": split.step, "measured": seconds})
    best = min(splits, key=lambda one: float(one["measured"]))
    pick = next(one for one in splits if _name(one) == str(planned.best))
    return {
        "case": name,
        "splits": splits,
        "pick": _name(pick),
        "best": _name(best),
        "ratio": pick["measured"] / best["measured"],
    }


def _name(split: dict[str, Any]) -> str:
    return f"{split['grid']} {split['kind']}"


def _planned(slots: Sequence[int], n: int, model: str, batch: int) -> SplitChoice:
    """Predict all splits from what is measured here and from the links as they were made."""
    made, shape = MODELS[model](), SHAPES[model]
    # All hosts are this machine, so all processes share its cores.
    pace = measure_pace(made, shape, max(1, batch // n), n)
    machine = Machine(tuple(slots), measure_loopback(n), LinkSpeed(MBIT * 1e6 / 8, _LATENCY))
    job = Job(read_layers(made, shape), batch, pace, Across(overlaps=False), states=0)
    return choose(
        job,
        machine,
        kinds=KINDS,
        schedule=lambda replicas: topologies.get("one-peer-exponential", replicas),
        spanning=True,
    )


def _measured(spaces: list[str], n: int, model: str, batch: int, split: Prediction, steps: int) -> float:
    """Return the seconds of a step: the median of the means of all processes."""
    with Swarm(n, namespaces=spaces, address=address(0), interface=INTERFACE, patience=240.0) as swarm:
        setup = {"preset": "wan", "insecure": True, "grid": str(split.grid), "crews_across_hosts": True}
        answers = swarm.run("grid", "sgp", setup, model=model, kind=split.kind, batch=batch, steps=steps, warmup=3)
    return median(float(answer["step_seconds"]) for answer in answers)


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
