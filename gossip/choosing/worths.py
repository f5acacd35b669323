"""What a step of each method is worth, in steps of all-reduce, as measured.

A worth of 0.8 means: all-reduce has after 80 steps the validation loss that the method has after 100. The figures are
those of eight peers on two small tasks, with one rate for all methods (`python -m benchmarks.step_worth`,
docs/results/choosing.md). They are the best that is known here, and they are no law: other models, rates and longer
runs differ. What is between two measured figures is interpolated over the logarithm of share or h.

Mixing over n peers takes about lg n hops, so what gossip loses is taken to grow with lg n. That is an assumption: only
n = 8 was measured. `outer` takes the exact mean of all, and so does not depend on n. Rounding to bf16 or int8 costs
nothing that could be measured (docs/results/study.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["MEASURED", "share_worth", "worth"]

#: By method, and by the share of the shards in int8 or by h: on Fashion-MNIST with SGD, the mean of two seeds.
MEASURED: Mapping[str, Mapping[float, float]] = {
    "sgp": {1: 0.96, 1 / 4: 0.73, 1 / 16: 0.47},
    "osgp": {1: 0.92, 1 / 2: 0.78, 1 / 4: 0.66, 1 / 8: 0.58, 1 / 16: 0.48},
    "outer": {8: 0.35, 32: 0.20},
}
#: The peers of the measurements.
_PEERS = 8
#: No step is worth less than this, however many peers there are.
_LEAST = 0.02


def worth(method: str, kind: float, peers: int) -> float:
    """Return what a step is worth.

    Args:
        method: of those that were measured.
        kind: the share of the shards that goes with a step, or h, the steps from one exchange to the next.
        peers: how many there are.
    """
    found = _interpolated(MEASURED[method], kind)
    if peers == 1:
        return 1.0
    if method == "outer":
        return found
    return max(_LEAST, 1 - (1 - found) * math.log2(peers) / math.log2(_PEERS))


def share_worth(share: float, waits: bool, peers: int) -> float:
    """Return what a step is worth in which a share of the shards is pushed.

    Args:
        share: of the shards.
        waits: whether the parcels of a turn are waited for, as `sgp` does.
        peers: how many there are.
    """
    return worth("sgp" if waits else "osgp", share, peers)


def _interpolated(points: Mapping[float, float], at: float) -> float:
    """Return the value between two points, linear in the logarithm; beyond the last two on their line, from 0 to 1."""
    places = sorted(points)
    right = next((index for index, place in enumerate(places) if place >= at), len(places) - 1)
    low, high = places[max(0, right - 1)], places[max(1, right)]
    slope = (points[high] - points[low]) / math.log(high / low)
    return min(1.0, max(_LEAST, points[low] + slope * math.log(at / low)))
