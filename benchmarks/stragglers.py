"""What a slow peer costs the others: 8 processes, steps of 50 ms, one of them 4 times slower.

    python -m benchmarks.stragglers [--quick] [--json]

A step sleeps instead of computing, so that 8 processes are fair on few cores. osgp, adpsgd and sgp on
one-peer-exponential, with ``--straggler 3=4x``, and gloo's all-reduce by torch's DistributedDataParallel with the same
sleep; without and with the straggler in turns, several times. A figure is the median over the other peers' steps.

Bar: under osgp and adpsgd the others keep 95% of their step rate.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

from benchmarks.bars import Bar, command, finish, table
from benchmarks.swarms import Swarm

__all__ = ["main"]

N, SLOW, FACTOR = 8, 3, 4
METHODS = ("osgp", "adpsgd", "sgp", "ddp")
KEPT = 0.95
_COMPUTE = 0.05
_BYTES = 1 << 20


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    runs, steps = (1, 60) if quick else (3, 200)
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {"even": [], "slow": []} for name in METHODS}
    with Swarm(N, patience=120.0 + steps) as swarm:
        for _ in range(runs):
            for name in METHODS:
                found[name]["even"].append(_run(swarm, name, steps, None))
                found[name]["slow"].append(_run(swarm, name, steps, SLOW))
    rates = {name: _middle(runs, "mean") for name, runs in found.items()}
    medians = {name: _middle(runs, "median") for name, runs in found.items()}
    rows = [
        [
            name,
            *(f"{medians[name][kind] * 1e3:.1f}" for kind in ("even", "slow")),
            *(f"{rates[name][kind] * 1e3:.1f}" for kind in ("even", "slow")),
            f"{rates[name]['even'] / rates[name]['slow']:.1%}",
            f"{_middle(found[name], 'straggler')['slow'] * 1e3:.0f}",
        ]
        for name in METHODS
    ]
    head = ["method", "median even", "median slow", "mean even", "mean slow", "rate kept", "the slow one"]
    setting = f"{N} processes, steps of {_COMPUTE * 1e3:.0f} ms, rank {SLOW} {FACTOR}x slower"
    text = f"stragglers: {setting}; ms per step of the others\n"
    text += table(head, rows)
    kept = {name: rates[name]["even"] / rates[name]["slow"] for name in METHODS}
    bars = [Bar(f"step rate kept under {name}", kept[name], ">=", KEPT) for name in ("osgp", "adpsgd")]
    return finish(text, {"seconds": found, "kept": kept}, bars, as_json=as_json)


def _run(swarm: Swarm, method: str, steps: int, slow: int | None) -> dict[str, float]:
    """Return seconds per step: of the others, and of the slow one."""
    setup: dict[str, Any] = {"topology": "one-peer-exponential"}
    if slow is not None:
        setup["stragglers"] = [f"{slow}={FACTOR}x"]
    answers = swarm.run(
        "emulated",
        method,
        setup,
        nbytes=_BYTES,
        compute=_COMPUTE,
        steps=steps,
        warmup=steps // 10,
        slow=slow,
        factor=FACTOR,
        linger=0.5,
    )
    others = [answer for rank, answer in enumerate(answers) if rank != SLOW]
    return {
        "median": median(each for answer in others for each in answer["step_each"]),
        "mean": fmean(answer["step_seconds"] for answer in others),
        "straggler": answers[SLOW]["step_seconds"],
    }


def _middle(runs: dict[str, list[dict[str, float]]], figure: str) -> dict[str, float]:
    return {kind: median(run[figure] for run in found) for kind, found in runs.items()}


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
