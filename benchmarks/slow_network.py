"""Training over slow links: 8 hosts on 50 Mbit/s, 6.25 MiB of parameters, half a second of computing per step.

    sudo .venv/bin/python -m benchmarks.slow_network [--quick] [--json]

The hosts are network namespaces on one bridge, with ``tc tbf`` on both ends of each link. Computing is a sleep. One run
has osgp, adpsgd, sgp, osgp with a quarter of the shards per step and with ``--compress auto``, and gloo's all-reduce by
torch's DistributedDataParallel, without and with one peer that is 4 times slower. Nothing is encrypted, as in gloo.
Figures are the mean of the other seven peers, in seconds per step; of ``auto`` after 40 steps, in which it looks what
the links carry.

One push of all parameters takes 1.05 s of link time, all-reduce 1.83 s. Bars: osgp takes at most 1.15 s per step, and
with compression at most 1.05 times the computing. A peer that holds too little weight, or whose last parcel is still
in flight, skips a push. *pushed* is the part of the parameters that was sent per step: a step time below the link time
is only possible by pushing less than all.
"""

from __future__ import annotations

import sys
from statistics import fmean
from typing import Any

from benchmarks.bars import Bar, command, finish, table
from benchmarks.namespaces import INTERFACE, address, slow_hosts, unable
from benchmarks.swarms import Swarm

__all__ = ["main"]

N, SLOW, FACTOR = 8, 3, 4
MBIT = 50.0
SECONDS = 1.15
COMPRESSED = 1.05
_COMPUTE = 0.5
#: Steps that ``auto`` gets to find its way.
_SETTLE = 40
_BYTES = 25 << 18
#: The name of a row, the method, and its other settings.
METHODS: list[tuple[str, str, dict[str, Any]]] = [
    ("osgp", "osgp", {}),
    ("adpsgd", "adpsgd", {"topology": "one-peer-exponential"}),
    ("sgp", "sgp", {}),
    ("osgp, share 25%", "osgp", {"share": 0.25}),
    ("osgp, auto", "osgp", {"compress": "auto"}),
    ("ddp", "ddp", {}),
]


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if reason := unable():
        raise SystemExit(f"slow_network: {reason}")
    steps = 12 if quick else 32
    found: dict[str, dict[str, dict[str, float]]] = {}
    with (
        slow_hosts(N, MBIT) as names,
        Swarm(N, namespaces=names, address=address(0), interface=INTERFACE, patience=240.0) as swarm,
    ):
        for name, method, setup in METHODS:
            found[name] = {
                "even": _run(swarm, method, setup, steps, None),
                "slow": _run(swarm, method, setup, steps, SLOW),
            }
            told = ", ".join(f"{kind} {run['seconds']:.2f} s" for kind, run in found[name].items())
            print(f"  {name}: {told}", file=sys.stderr, flush=True)
    rows = [
        [
            name,
            *(f"{found[name][kind]['seconds']:.2f}" for kind in ("even", "slow")),
            *(f"{found['ddp'][kind]['seconds'] / found[name][kind]['seconds']:.2f}" for kind in ("even", "slow")),
            *(f"{run['sent'] / _BYTES:.0%}" if run["sent"] else "-" for run in found[name].values()),
            f"{found[name]['slow']['straggler']:.2f}",
        ]
        for name, _, _ in METHODS
    ]
    head = [
        "method",
        "s/step",
        "with a slow one",
        "ddp over it",
        "with a slow one",
        "pushed",
        "with a slow one",
        "the slow one",
    ]
    text = f"slow_network: {N} hosts on {MBIT:.0f} Mbit/s, {_BYTES / (1 << 20):.2f} MiB, {_COMPUTE} s of computing; "
    text += f"rank {SLOW} even or {FACTOR}x slower\n{table(head, rows)}"
    bars = [
        Bar("osgp, seconds per step", found["osgp"]["even"]["seconds"], "<=", SECONDS, " s"),
        Bar(f"osgp, one {FACTOR}x slower", found["osgp"]["slow"]["seconds"], "<=", SECONDS, " s"),
        Bar("auto, over the computing", found["osgp, auto"]["even"]["seconds"] / _COMPUTE, "<=", COMPRESSED),
        Bar(f"auto, one {FACTOR}x slower", found["osgp, auto"]["slow"]["seconds"] / _COMPUTE, "<=", COMPRESSED),
    ]
    return finish(text, {"found": found}, bars, as_json=as_json)


def _run(swarm: Swarm, method: str, setup: dict[str, Any], steps: int, slow: int | None) -> dict[str, float]:
    told = {"preset": "wan", "insecure": True, **setup}
    warmup = max(4, steps // 8) if setup.get("compress") != "auto" else _SETTLE
    if slow is not None:
        told["stragglers"] = [f"{slow}={FACTOR}x"]
    answers = swarm.run(
        "emulated",
        method,
        told,
        nbytes=_BYTES,
        compute=_COMPUTE,
        steps=steps if warmup < _SETTLE else steps + _SETTLE,
        warmup=warmup,
        slow=slow,
        factor=FACTOR,
        linger=2.0,
    )
    others = [answer for rank, answer in enumerate(answers) if rank != SLOW]
    return {
        "seconds": fmean(answer["step_seconds"] for answer in others),
        "straggler": answers[SLOW]["step_seconds"],
        "sent": fmean(answer.get("bytes_sent", 0.0) for answer in others),
        "wait": fmean(answer.get("wait_seconds", 0.0) for answer in others),
    }


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
