"""What a peer costs the training loop: CPU time, waiting and memory.

    python -m benchmarks.overhead [--quick] [--json]

- *attach*: one peer alone, the small ResNet of ``examples/fashion.py`` on batches of 32, without and with ``attach`` in
  steps that take turns; the median of the differences of neighbouring steps. Bar: 2% of a step's CPU time.
- *waiting*: two peers on loopback with 25 MiB of parameters each; computing is a sleep, so that two processes are fair
  on few cores. What sgp waits is what communication takes; osgp overlaps it. ``wait_seconds`` of the metrics. Bar: 5%
  of the step under osgp, where computing takes several times as long as communication.
- *memory*: the most that each of two such peers ever held, above the same loop alone. Bar: 5 times the parameters.
"""

from __future__ import annotations

import sys
from statistics import fmean, median
from typing import Any

from benchmarks.bars import Bar, command, finish, table
from benchmarks.processes import Fleet
from benchmarks.swarms import Swarm

__all__ = ["main"]

ATTACH, WAIT, MEMORY = 1.02, 0.05, 5.0
_MIB = 1 << 20
_COMPUTE = (0.1, 0.25, 0.5)


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    attach = _attach(60 if quick else 400)
    waits = _waits(25 * _MIB, 12 if quick else 40, 1 if quick else 3)
    memory = {mib: _memory(mib * _MIB) for mib in ((25,) if quick else (25, 100))}
    text = "overhead: attach, one peer, small ResNet\n"
    text += table(
        ["ms per step", "without", "with", "ratio"],
        [
            [kind, f"{found['without'] * 1e3:.2f}", f"{found['with'] * 1e3:.2f}", f"{found['ratio']:.4f}"]
            for kind, found in attach.items()
        ],
    )
    text += "\noverhead: waiting, two peers on loopback, 25 MiB\n"
    text += table(
        ["computing ms", "algorithm", "step ms", "wait ms", "wait, of the step", "CPU ms"],
        [
            [
                f"{wait['compute'] * 1e3:.0f}",
                wait["algorithm"],
                f"{wait['step'] * 1e3:.1f}",
                f"{wait['wait'] * 1e3:.1f}",
                f"{wait['wait'] / wait['step']:.1%}",
                f"{wait['cpu'] * 1e3:.1f}",
            ]
            for wait in waits
        ],
    )
    text += "\noverhead: memory, two peers, osgp; MiB\n"
    text += table(
        ["parameters", "alone", "as a peer", "more, of the parameters"],
        [
            [mib, f"{one['alone']:.0f}", f"{one['peer']:.0f}", f"{(one['peer'] - one['alone']) / mib:.2f}"]
            for mib, one in memory.items()
        ],
    )
    longest = next(wait for wait in waits if wait["algorithm"] == "osgp" and wait["compute"] == _COMPUTE[-1])
    bars = [
        Bar("attach, CPU time of a step", attach["CPU"]["ratio"], "<=", ATTACH),
        Bar(f"osgp's wait at {_COMPUTE[-1]} s, of the step", longest["wait"] / longest["step"], "<=", WAIT),
        *(
            Bar(
                f"memory beyond the loop, {mib} MiB, of the parameters",
                (one["peer"] - one["alone"]) / mib,
                "<=",
                MEMORY,
            )
            for mib, one in memory.items()
        ),
    ]
    return finish(text, {"attach": attach, "waits": waits, "memory": memory}, bars, as_json=as_json)


def _attach(steps: int) -> dict[str, dict[str, float]]:
    with Fleet("benchmarks.overhead_attach", [[str(steps)]], patience=600.0) as fleet:
        (found,) = fleet.answers()
    out = {}
    for index, kind in enumerate(("CPU", "wall")):
        without = [step[index] for step in found["without"]]
        attached = [step[index] for step in found["with"]]
        more = median(mine - other for mine, other in zip(attached, without, strict=True))
        out[kind] = {
            "without": median(without),
            "with": median(without) + more,
            "ratio": 1 + more / median(without),
        }
    return out


def _waits(nbytes: int, steps: int, runs: int) -> list[dict[str, Any]]:
    """Return steps and waits of both algorithms, in turns."""
    settings = [(compute, algorithm) for compute in _COMPUTE for algorithm in ("osgp", "sgp")]
    found: dict[tuple[float, str], list[dict[str, float]]] = {setting: [] for setting in settings}
    with Swarm(2) as swarm:
        for _ in range(runs):
            for compute, algorithm in settings:
                answers = swarm.run(
                    "emulated", algorithm, nbytes=nbytes, compute=compute, steps=steps, warmup=steps // 4, linger=0.2
                )
                names = {"step": "step_seconds", "wait": "wait_seconds", "cpu": "cpu_seconds"}
                run = {name: fmean(answer[key] for answer in answers) for name, key in names.items()}
                found[compute, algorithm].append(run)
                print(f"  {algorithm}, computing {compute} s: waits {run['wait']:.4f} s", file=sys.stderr, flush=True)
    return [
        {"compute": compute, "algorithm": algorithm, **{name: median(run[name] for run in runs_) for name in runs_[0]}}
        for (compute, algorithm), runs_ in found.items()
    ]


def _memory(nbytes: int) -> dict[str, float]:
    """Return the peak of the loop alone and of two peers, each in fresh processes."""
    peaks = {}
    for name, method, n in (("alone", "alone", 1), ("peer", "osgp", 2)):
        with Swarm(n) as swarm:
            answers = swarm.run("emulated", method, nbytes=nbytes, compute=0.2, steps=24, warmup=2, linger=0.2)
        peaks[name] = max(answer["peak_rss_mib"] for answer in answers)
    return peaks


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
