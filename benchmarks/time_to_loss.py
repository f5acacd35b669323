"""Seconds until a transformer has a given validation loss, over slow links: 4 hosts on 50 Mbit/s.

    sudo .venv/bin/python -m benchmarks.time_to_loss [--quick] [--json] [--size small|base] [--mbit 50] [--seconds 60]
        [--target 2.2] [--rate 0.006] [--methods "osgp auto" ...]

The hosts are those of `benchmarks.slow_network`: network namespaces on one bridge, with ``tc tbf`` on both ends of each
link. They really train: the GPT of `benchmarks.transformers`, 12 x 64 characters per host and step, with AdamW,
clipping, and the same rate and samples for all methods. The rate is constant after a warm-up of 30 steps, so that it
does not depend on how many steps a method will take. Gradients are computed on this machine's cores, which
the hosts share: the fewer cores, the more a step takes, and the less the links matter. Nothing else should run on the
machine meanwhile. A second run of each has one
host that computes 4 times as long.

A method is ``ddp``, or an algorithm and perhaps a codec. All train for the same time, by default 60 seconds. Rank 0's
own model is kept every 20 steps and evaluated when the run is over. *Seconds* are those from the first step until its
loss is at most the target and stays there; *inf*: never. *Final* is the loss of what all agree on in the end.

Bars: osgp with int8 and with ``auto`` reach the target 3 times as fast as DDP, without and with a slow host.
``--quick`` is 15 seconds, a target of 3, and no bar.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.namespaces import INTERFACE, address, slow_hosts, unable
from benchmarks.processes import Answer
from benchmarks.swarms import Swarm
from benchmarks.transformer_processes import RATES

__all__ = ["main", "ratio", "until"]

N, SLOW, FACTOR = 4, 3, 4
SEED = 20
EVERY = 20
#: Steps of which a twentieth is the warm-up.
SCHEDULED = 600
FASTER = 3.0
METHODS = ("ddp", "sgp int8", "osgp", "osgp int8", "osgp auto")
#: Those with a bar.
FAST = ("osgp int8", "osgp auto")


def main(arguments: list[str] | None = None) -> bool:
    """Print the figures and return whether the bars hold."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="15 seconds, a target of 3")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--size", choices=list(RATES), default="small", help="of the model (default: small)")
    parser.add_argument("--mbit", type=float, default=50.0, help="that a link carries (default: 50)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default: 60)")
    parser.add_argument("--target", type=float, default=2.2, help="validation loss (default: 2.2)")
    parser.add_argument("--rate", type=float, help="of all methods (default: a provisional one)")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="beside ddp; default: %(default)s")
    asked = parser.parse_args(arguments)
    if reason := unable():
        raise SystemExit(f"time_to_loss: {reason}")
    limit, target = (15.0, 3.0) if asked.quick else (asked.seconds, asked.target)
    methods = list(dict.fromkeys(["ddp", *asked.methods]))
    task = {"size": asked.size, "seed": SEED, "lr": asked.rate or RATES[asked.size], "seconds": limit, "every": EVERY}
    task |= {"schedule": "warm-up", "steps": SCHEDULED}
    found: dict[str, dict[str, Answer]] = {name: {} for name in methods}
    with (
        slow_hosts(N, asked.mbit) as names,
        Swarm(N, namespaces=names, address=address(0), interface=INTERFACE, patience=3600.0) as swarm,
    ):
        for kind, slow in (("even", None), ("slow", SLOW)):
            for name in methods:
                found[name][kind] = answer = _run(swarm, name, {**task, "slow": slow, "factor": FACTOR})
                said = f"{until(answer['curve'], target):.0f} s of {answer['seconds']:.0f}, loss {answer['loss']:.3f}"
                print(f"  {name}, {kind}: {said}", file=sys.stderr, flush=True)
    seconds = {
        name: {kind: until(answer["curve"], target) for kind, answer in kinds.items()} for name, kinds in found.items()
    }
    rows = [
        [
            name,
            *(f"{seconds[name][kind]:.0f}" for kind in kinds),
            *(f"{ratio(seconds, name, kind, limit):.1f}" for kind in kinds),
            *(f"{answer['seconds'] / answer['steps']:.3f}" for answer in kinds.values()),
            *(f"{answer['loss']:.3f}" for answer in kinds.values()),
        ]
        for name, kinds in found.items()
    ]
    columns = ("seconds", "ddp over it", "s/step", "final")
    head = ["method", *(column for each in columns for column in (each, "with a slow one"))]
    text = f"time_to_loss: {asked.size} GPT, {N} hosts on {asked.mbit:g} Mbit/s, {limit:g} s; until a validation loss "
    text += f"of {target:g}; rank {SLOW} even or {FACTOR}x slower\n{table(head, rows)}"
    bars = [
        Bar(f"{name}, {kind}: times as fast as ddp", ratio(seconds, name, kind, limit), ">=", FASTER)
        for name in methods
        if name in FAST
        for kind in ("even", "slow")
    ]
    return finish(text, {"found": found, "seconds": seconds}, [] if asked.quick else bars, as_json=asked.json)


def _run(swarm: Swarm, name: str, task: dict[str, Any]) -> Answer:
    algorithm, _, codec = name.partition(" ")
    setup = {"preset": "wan", "insecure": True, "seed": SEED, **({"compress": codec} if codec else {})}
    return swarm.run("characters", algorithm, setup, **task)[0]


def ratio(seconds: dict[str, dict[str, float]], name: str, kind: str, limit: float) -> float:
    """Return how many times as long DDP takes, at least: one that never gets there counts as if it did in the end.

    It is not a number if the method itself never gets there.
    """
    own = seconds[name][kind]
    return min(seconds["ddp"][kind], limit) / own if own < float("inf") else float("nan")


def until(curve: Iterable[tuple[int, float, float]], target: float) -> float:
    """Return the seconds until the loss is at most the target for good, infinity if it never is.

    Args:
        curve: steps, seconds and loss.
        target: a loss.
    """
    reached = float("inf")
    for _, seconds, loss in curve:
        reached = min(reached, seconds) if loss <= target else float("inf")
    return reached


if __name__ == "__main__":
    raise SystemExit(not main())
