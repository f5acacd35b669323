"""What the planner predicts for every split, against what the split takes: hosts with slots on slow links.

    sudo .venv/bin/python -m benchmarks.grids [--quick] [--free] [--json]

The hosts are network namespaces on one bridge, with ``tc tbf`` on both ends of each link: 4 hosts x 2 slots and 2 hosts
x 4 slots (``--quick``: 2 x 2). On each an MLP and a small convolutional network train, with three batch sizes each, in
every split that the planner considers: whole replicas, FSDP, tensor parallel, and for the convolutions image rows
("domain") and samples in front of tensor parallel layers ("mixed"). Replicas gossip by sgp with endless patience, so
that a step has all of its traffic. Loopback and computing are measured before; the links are what they were made, less
the headers of TCP, IP and Ethernet.

The formulas count replicas that are in step, so all processes begin each step together. They meet at a file, which
takes no traffic, and the wait is not counted. A step is as long as that of the slowest process. With ``--free`` nobody
waits for anybody but its neighbours: then replicas drift apart by turns, parcels of several turns share the links, and
where four replicas or more gossip a step takes up to twice as long. The time of a step is then the mean over processes.

All processes share the cores of this machine, so links are slow and batches small enough that traffic takes most of a
step. A schedule repeats after 1, 2 or 3 steps: the time of a step is the median over blocks of six steps of the mean of
a block.

Bars: in every case the planner's pick takes at most 1.1 times as long as the split that was measured to be the best,
and in one case at least the best is neither whole replicas nor one replica.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import topologies
from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.grid_job import MODELS, SHAPES
from benchmarks.namespaces import INTERFACE, address, slow_hosts, unable
from benchmarks.swarms import Swarm
from gossip.costs import Across, Job, LinkSpeed, Machine, Prediction, SplitChoice, choose
from peers.planner.measuring import measure_loopback, measure_pace
from peers.planner.model_reading import read_layers

__all__ = ["main"]

MBIT = 50.0
MARGIN = 1.1
#: Of all replicas together. An image takes longer to compute than a row of the MLP.
BATCHES = {"mlp": (64, 256, 2048), "conv": (16, 64, 256)}
#: Seconds of a message between two namespaces, at least.
_LATENCY = 2e-4
#: Bytes of a full frame that are TCP's, with its time stamps, of those that the link counts.
_PAYLOAD = 1448 / 1514
#: Steps after which every schedule here repeats, and seconds that a split may take beyond one such block.
_BLOCK, _LONG = 6, 8.0
#: Seconds after which a split hangs.
_PATIENCE = 600.0


def main(*, quick: bool = False, as_json: bool = False, free: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if reason := unable():
        raise SystemExit(f"grids: {reason}")
    machines = [[2, 2]] if quick else [[2, 2, 2, 2], [4, 4]]
    cases = []
    for slots in machines:
        with slow_hosts(len(slots), MBIT) as names:
            spaces = [name for name, count in zip(names, slots, strict=True) for _ in range(count)]
            with Swarm(
                len(spaces), namespaces=spaces, address=address(0), interface=INTERFACE, patience=_PATIENCE
            ) as swarm:
                for model, batches in BATCHES.items():
                    for batch in batches[1:] if quick else batches:
                        cases.append(_case(slots, swarm, model, batch, blocks=1 if quick else 3, in_step=not free))
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
    loads = [case["load"] for case in cases]
    text = f"grids: links of {MBIT:g} Mbit/s between hosts; {os.cpu_count()} cores, load {min(loads):.0f} to "
    text += f"{max(loads):.0f}; {'free' if free else 'in step'}\n{table(head, rows)}"
    bars = [Bar(f"{case['case']}: pick over best", case["ratio"], "<=", MARGIN) for case in cases]
    between = sum(not case["best"].startswith("1x") and "x1 " not in case["best"] for case in cases)
    bars.append(Bar("cases whose best is neither extreme", between, ">=", 1))
    return finish(text, {"cases": cases}, bars, as_json=as_json)


def _case(slots: Sequence[int], swarm: Swarm, model: str, batch: int, *, blocks: int, in_step: bool) -> dict[str, Any]:
    """Predict and measure all splits for one model and batch."""
    name = f"{len(slots)} hosts x {slots[0]}, {model}, B = {batch}"
    planned = _planned(slots, model, batch)
    splits: list[dict[str, Any]] = []
    for split in planned.splits:
        if split.fits:
            some = min(blocks, 1 + int(_LONG / (_BLOCK * split.step)))
            seconds = _measured(swarm, model, batch, split, some, in_step)
            print(f"  {name}, {split}: {split.step:.3f} -> {seconds:.3f} s", file=sys.stderr, flush=True)
            splits.append({"grid": str(split.grid), "kind": split.kind, "predicted": split.step, "measured": seconds})
    best = min(splits, key=lambda one: float(one["measured"]))
    pick = next(one for one in splits if _name(one) == str(planned.best))
    return {
        "case": name,
        "load": os.getloadavg()[0],
        "splits": splits,
        "pick": _name(pick),
        "best": _name(best),
        "ratio": pick["measured"] / best["measured"],
    }


def _name(split: dict[str, Any]) -> str:
    return f"{split['grid']} {split['kind']}"


def _planned(slots: Sequence[int], model: str, batch: int) -> SplitChoice:
    """Predict all splits from what is measured here and from the links as they were made."""
    made, shape, n = MODELS[model](), SHAPES[model], sum(slots)
    # All hosts are this machine, so all processes share its cores.
    pace = measure_pace(made, shape, max(1, batch // n), n)
    inside = measure_loopback(n)
    machine = Machine(tuple(slots), inside, LinkSpeed(_PAYLOAD * MBIT * 1e6 / 8, max(_LATENCY, inside.latency)))
    job = Job(read_layers(made, shape), batch, pace, Across(overlaps=False), states=0)
    return choose(
        job,
        machine,
        schedule=lambda replicas: topologies.get("one-peer-exponential", replicas),
        spanning=True,
    )


def _measured(swarm: Swarm, model: str, batch: int, split: Prediction, blocks: int, in_step: bool) -> float:
    """Return the seconds of a step."""
    setup = {"preset": "wan", "insecure": True, "grid": str(split.grid), "crews_across_hosts": True}
    task = {"model": model, "kind": split.kind, "batch": batch, "steps": blocks * _BLOCK, "warmup": 2}
    answers = swarm.run("grid", "sgp", setup, in_step=in_step, **task)
    steps = zip(*(answer["step_each"] for answer in answers), strict=True)
    each = [max(step) if in_step else fmean(step) for step in steps]
    return median(fmean(each[start : start + _BLOCK]) for start in range(0, blocks * _BLOCK, _BLOCK))


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="two hosts of two slots, and two batch sizes")
    parser.add_argument("--free", action="store_true", help="let replicas drift apart")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    args = parser.parse_args()
    sys.exit(int(not main(quick=args.quick, as_json=args.json, free=args.free)))
