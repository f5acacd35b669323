"""What several of these tests share: all topologies with the sizes they have, and their dense matrices.

The matrices come from `graph_at` by way of networkx, so that what is tested is not also the measure.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import numpy.typing as npt

import topologies
from topologies import Schedule

__all__ = ["NAMES", "VARIANTS", "apply", "exact_average", "exists", "matrix", "period_product", "product"]

Matrix = npt.NDArray[np.float64]

#: The built-in topologies. Listed rather than asked for, so that one that goes missing is missed.
NAMES = [
    "base",
    "bidirectional-ring",
    "complete",
    "de-bruijn",
    "epidemic",
    "epidemic-regular",
    "equidyn",
    "equidyn-undirected",
    "equistatic",
    "erdos-renyi",
    "exponential",
    "hierarchical",
    "hypercube",
    "kautz",
    "matcha",
    "one-peer-exponential",
    "one-peer-hypercube",
    "random-matching",
    "random-regular",
    "ring",
    "star",
    "torus",
]

#: Topologies with other parameters than the defaults, as the command line writes them.
VARIANTS = [
    "base:k=2",
    "base:k=5",
    "de-bruijn:d=3",
    "de-bruijn:d=7",
    "epidemic:s=3",
    "epidemic:s=40",
    "epidemic-regular:s=3",
    "equidyn:eta=1",
    "equidyn-undirected:eta=0.25",
    "equistatic:m=1",
    "equistatic:m=5",
    "erdos-renyi:p=1",
    "hierarchical:between=random-matching",
    "hierarchical:between=[epidemic-regular:s=2],groups=1",
    "hierarchical:between=kautz",
    "kautz:d=3",
    "kautz:d=7",
    "matcha:graph=star,budget=0.9",
    "matcha:graph=complete,budget=0.2",
    "matcha:graph=bidirectional-ring,budget=1",
    "random-regular:d=2",
    "random-regular:d=6",
    "torus:rows=1",
]


def exists(name: str, n: int) -> bool:
    """Whether a topology is meant to exist for n peers, by a definition of the test's own."""
    if name in ("hypercube", "one-peer-hypercube"):
        return bin(n).count("1") == 1
    if name == "torus":  # a prime has no grid, and 2 and 3 peers do as a single row
        return n <= 3 or any(n % divisor == 0 for divisor in range(2, n))
    return True


def matrix(schedule: Schedule, step: int) -> Matrix:
    """Return the step's matrix, W[v, u] = the fraction of u's mass that goes to v."""
    graph = schedule.graph_at(step)
    return np.asarray(nx.to_numpy_array(graph, nodelist=range(schedule.n), weight="weight").T)


def product(schedule: Schedule, steps: int) -> Matrix:
    """Return what the first ``steps`` steps do together."""
    result = np.eye(schedule.n)
    for step in range(steps):
        result = apply(matrix(schedule, step), result)
    return result


def apply(step: Matrix, before: Matrix) -> Matrix:
    """Return ``step @ before`` by way of the entries of ``step`` that are not 0, each row having some.

    BLAS would start threads for this, and those of several workers get in each other's way.
    """
    rows, columns = np.nonzero(step)
    starts = np.searchsorted(rows, np.arange(len(step)))
    return np.asarray(np.add.reduceat(step[rows, columns][:, None] * before[columns], starts, axis=0))


def period_product(text: str, n: int) -> Matrix:
    """Return what one period of the named topology does."""
    schedule = topologies.parse(text, n)
    assert schedule.period is not None
    return product(schedule, schedule.period)


def exact_average(mixed: Matrix) -> bool:
    """Whether everybody ends up with the average of all, but for rounding."""
    return float(np.abs(mixed - 1.0 / len(mixed)).max()) < 1e-12
