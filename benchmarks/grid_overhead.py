"""What ``--grid 1xN`` costs over the path without a grid: CPU seconds of a step, in runs that take turns.

    python -m benchmarks.grid_overhead [--quick] [--json]

Two peers on loopback train 1 MiB of parameters at almost no cost, with osgp. The processes are started once and do one
run after the other, without a grid and with ``1x2``; every other round is in reverse order. What else runs on the
machine adds CPU time, by colder caches, and takes some away, since a peer that is late skips pushes. So runs of one
round are compared: the figure is the median of their ratios. A third run of each round is once more without a grid: its
ratio is the noise. Bar: a ratio of 1.05.
"""

from __future__ import annotations

import sys
from statistics import fmean, median

from benchmarks.bars import Bar, command, finish, table
from benchmarks.swarms import Swarm

__all__ = ["main"]

_NBYTES = 1 << 20
_LIMIT = 1.05
#: The runs of a round, with their grids.
_GRIDS = {"without": "", "without again": "", "1x2": "1x2"}


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bar holds."""
    rounds, steps = (4, 100) if quick else (16, 300)
    found: dict[str, list[float]] = {name: [] for name in _GRIDS}
    with Swarm(2) as swarm:
        for turn in range(rounds + 1):
            for name in list(_GRIDS)[:: -1 if turn % 2 else 1]:
                setup = {"grid": _GRIDS[name]} if _GRIDS[name] else {}
                answers = swarm.run(
                    "emulated", "osgp", setup, nbytes=_NBYTES, compute=0.002, steps=steps, warmup=steps // 5, linger=0.2
                )
                if turn:  # the first round warms up
                    found[name].append(fmean(answer["cpu_seconds"] for answer in answers))
            print(f"  round {turn} of {rounds}", file=sys.stderr, flush=True)
    ratios = {
        name: median(one / other for one, other in zip(each, found["without"], strict=True))
        for name, each in found.items()
    }
    rows = [
        [name, f"{min(found[name]) * 1e3:.3f}", f"{median(found[name]) * 1e3:.3f}", f"{ratios[name]:.4f}"]
        for name in found
    ]
    text = f"grid overhead: two peers on loopback, osgp, 1 MiB, {rounds} rounds\n"
    text += table(["CPU ms per step", "least", "median", "median ratio"], rows)
    bars = [Bar("1x2 over no grid, CPU time of a step", ratios["1x2"], "<=", _LIMIT)]
    return finish(text, {"cpu_seconds": found, "ratios": ratios}, bars, as_json=as_json)


if __name__ == "__main__":
    sys.exit(command(main, __doc__))
