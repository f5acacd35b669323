"""Measure how well a schedule mixes.

The measure is the *disagreement* after t steps: the largest factor by which any initial difference between the peers
survives. It is the spectral norm of D^-1 P - J, where P is the product of the t mixing matrices, D = diag(P 1) holds
the PushSum weights and J is the exact average. For a doubly stochastic schedule D = I.

Up to `DENSE` peers the disagreement is computed with dense matrices. A schedule with a period is analysed by repeated
squaring, so a ring that needs a million steps takes no longer than a torus. For more peers, four random vectors are
followed instead. The result is then an estimate, and `Analysis.estimated` is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import networkx as nx
import numpy as np
import numpy.typing as npt

from topologies.schedule import Schedule
from topologies.topology_errors import TopologyError

__all__ = ["DENSE", "Analysis", "analyse", "disagreement", "mixing_matrix"]

Matrix = npt.NDArray[np.float64]

#: Up to this number of peers the figures are exact, from dense matrices.
DENSE = 256
#: A step with more edges than this is not analysed.
EDGES = 5_000_000
#: A disagreement below this is an exact average with rounding errors.
_EXACT = 1e-12
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Analysis:
    """What `analyse` found out about a schedule."""

    name: str
    n: int
    period: int | None
    #: Whether every peer receives as much as it sends in every step, so that averaging needs no weights.
    doubly_stochastic: bool
    #: Whether every step's edges go both ways with equal fractions.
    symmetric: bool
    #: Whether mass from each peer reaches every other within a period, or within 1,000 steps if there is no period.
    connected: bool
    #: The most peers that any peer sends to in a step.
    degree: int
    #: Number of models that a peer sends per step, on average over peers and steps.
    traffic: float
    #: The factor by which the disagreement shrinks per step, in the long run; 0 if the average becomes exact.
    rate: float
    #: Steps until the disagreement is below 1e-3; None if that takes more than `max_steps`.
    steps_to_1e3: int | None
    #: Steps until the disagreement is below 1e-9; None if that takes more than `max_steps`.
    steps_to_1e9: int | None
    #: Steps after which the average is exact; None if the schedule only approaches it.
    exact_after: int | None
    #: The largest number of steps that the analysis follows.
    max_steps: int
    #: Whether the rate and the steps are estimates because n is too large for dense matrices.
    estimated: bool


def mixing_matrix(schedule: Schedule, step: int) -> Matrix:
    """Return the step's matrix, ``W[v, u]`` = the fraction of u's mass that goes to v. Columns sum to 1."""
    matrix = np.zeros((schedule.n, schedule.n))
    for rank in range(schedule.n):
        kept = 1.0
        for destination, fraction in schedule.out_edges(rank, step):
            matrix[destination, rank] = fraction
            kept -= fraction
        matrix[rank, rank] = max(kept, 0.0)
    return matrix


def disagreement(schedule: Schedule, steps: int) -> list[float]:
    """Return the disagreement after 0, 1, ..., ``steps`` steps."""
    walk = _walk_dense(schedule) if schedule.n <= DENSE else _walk_probes(schedule)
    return list(islice(walk, steps + 1))


def analyse(schedule: Schedule, max_steps: int = 50_000) -> Analysis:
    """Measure how a schedule mixes; the fields of `Analysis` are the results.

    A schedule without a period, or with more than `DENSE` peers, has to be followed step by step. The analysis follows
    at most 5,000 steps of it.

    Raises:
        TopologyError: If a step has more than `EDGES` edges.
    """
    if (edges := schedule.n * len(schedule.out_edges(schedule.n - 1, 0))) > EDGES:
        raise TopologyError(
            f"{schedule.name} of {schedule.n} peers has about {edges} edges in a step, and at most {EDGES} can be "
            "analysed; use a smaller n"
        )
    dense = schedule.n <= DENSE
    if schedule.period is None or not dense:
        max_steps = min(max_steps, 5_000)
    window = schedule.period or (32 if dense else 8)
    structures = [_Structure(schedule, step) for step in range(window)]
    if dense and schedule.period is not None:
        below, rate, exact_after = _by_squaring(schedule, schedule.period, max_steps)
    else:
        below, rate, exact_after = _by_walking(schedule, max_steps, dense)
    return Analysis(
        name=schedule.name,
        n=schedule.n,
        period=schedule.period,
        doubly_stochastic=all(s.doubly_stochastic for s in structures),
        symmetric=all(s.symmetric for s in structures),
        connected=_connected(schedule),
        degree=max(s.degree for s in structures),
        traffic=sum(s.edges for s in structures) / window / schedule.n,
        rate=rate,
        steps_to_1e3=below(1e-3),
        steps_to_1e9=below(1e-9),
        exact_after=exact_after,
        max_steps=max_steps,
        estimated=not dense,
    )


class _Structure:
    """The properties of one step's edges, computed without a matrix."""

    def __init__(self, schedule: Schedule, step: int) -> None:
        fractions = {(u, v): fraction for u in range(schedule.n) for v, fraction in schedule.out_edges(u, step)}
        received = [schedule.kept(u, step) for u in range(schedule.n)]
        degrees = [0] * schedule.n
        for (u, v), fraction in fractions.items():
            received[v] += fraction
            degrees[u] += 1
        self.edges = len(fractions)
        self.degree = max(degrees)
        self.doubly_stochastic = all(abs(total - 1) < _TOLERANCE for total in received)
        self.symmetric = all(
            abs(fraction - fractions.get((v, u), 0.0)) < _TOLERANCE for (u, v), fraction in fractions.items()
        )


def _connected(schedule: Schedule) -> bool:
    """Whether the union of a period's edges is strongly connected. Without a period, 1,000 steps count as one."""
    union: nx.DiGraph[int] = nx.DiGraph()
    union.add_nodes_from(range(schedule.n))
    for step in range(schedule.period or 1_000):
        union.add_edges_from((u, v) for u in range(schedule.n) for v, _ in schedule.out_edges(u, step))
        if schedule.period is None and step % 10 == 9 and nx.is_strongly_connected(union):
            return True
    return nx.is_strongly_connected(union)


Below = Callable[[float], "int | None"]


def _by_walking(schedule: Schedule, max_steps: int, dense: bool) -> tuple[Below, float, int | None]:
    walk = _walk_dense(schedule) if dense else _walk_probes(schedule)
    seen: list[float] = []
    for current in walk:
        seen.append(current)
        if seen[-1] < _EXACT or len(seen) > max_steps:
            break
    steps = len(seen) - 1
    exact = steps if _is_cliff(seen) else None
    start = steps // 2
    slope = (seen[-1] / seen[start]) ** (1 / (steps - start)) if steps > start and seen[start] > 0 else 0.0
    if not math.isfinite(slope) or not math.isfinite(seen[-1]):
        slope = 1.0  # some peer has no weight: its differences never disappear
    rate = 0.0 if exact is not None else slope
    return (lambda tolerance: next((t for t, d in enumerate(seen) if d < tolerance), None)), rate, exact


def _is_cliff(seen: list[float]) -> bool:
    """Whether the disagreement dropped to 0, up to rounding, in one step: the average is exact, not just fast."""
    return seen[-1] < _EXACT and (len(seen) == 1 or seen[-2] > 1e-6)


def _by_squaring(schedule: Schedule, period: int, max_steps: int) -> tuple[Below, float, int | None]:
    identity = np.eye(schedule.n)
    matrices = lru_cache(maxsize=64)(lambda step: mixing_matrix(schedule, step))

    def after(start: Matrix, steps: int) -> Matrix:
        for step in range(steps):
            start = matrices(step) @ start
        return start

    whole = after(identity, period)
    powers = [whole]  # whole^(2^i)

    def at(step: int) -> Matrix:
        periods, rest = divmod(step, period)
        product = identity
        for i in range(periods.bit_length()):
            if i == len(powers):
                powers.append(powers[-1] @ powers[-1])
            if periods >> i & 1:
                product = powers[i] @ product
        return after(product, rest)

    def below(tolerance: float) -> int | None:
        high = 1
        while not _is_below(at(high), tolerance):
            if high >= max_steps:
                return None
            high = min(2 * high, max_steps)
        low = high // 2  # either 0, or a step at which the disagreement is not below the tolerance
        if schedule.n == 1:
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _is_below(at(middle), tolerance) else (middle, high)
        return high

    exact = below(_EXACT)
    if exact is not None and exact > 0 and not _norm(at(exact - 1)) > 1e-6:
        exact = None
    second = np.sort(np.abs(np.linalg.eigvals(whole)))[-2] if schedule.n > 1 else 0.0
    rate = 0.0 if exact is not None else float(second) ** (1 / period)
    if not np.isfinite(_errors(at(max_steps))).all():
        rate = 1.0  # some peer ends up without any weight
    return below, rate, exact


def _errors(product: Matrix) -> Matrix:
    """Return D^-1 P - J; infinite everywhere if some peer has no weight."""
    weights = product.sum(axis=1, keepdims=True)
    if not weights.min() > 0:
        return np.full_like(product, math.inf)
    result: Matrix = product / weights - 1.0 / len(product)
    return result


def _norm(product: Matrix) -> float:
    errors = _errors(product)
    return float(np.linalg.norm(errors, 2)) if np.isfinite(errors).all() else math.inf


def _is_below(product: Matrix, tolerance: float) -> bool:
    """Whether the spectral norm is below the tolerance. The cheap Frobenius norm is tried first: it often decides."""
    frobenius = float(np.linalg.norm(_errors(product)))
    if frobenius < tolerance:
        return True
    if not frobenius < tolerance * math.sqrt(len(product)):
        return False
    return _norm(product) < tolerance


def _walk_dense(schedule: Schedule) -> Iterator[float]:
    product = np.eye(schedule.n)
    keep = schedule.period if schedule.period is not None else 0
    matrices = lru_cache(maxsize=min(keep, 64))(lambda step: mixing_matrix(schedule, step))
    step = 0
    while True:
        yield _norm(product)
        product = matrices(step % keep if keep else step) @ product
        step += 1


def _walk_probes(schedule: Schedule) -> Iterator[float]:
    """Follow four random vectors and the weights along the edges."""
    n = schedule.n
    columns = [np.ones(n), *np.random.default_rng(0).standard_normal((4, n))]
    means = [column.mean() for column in columns[1:]]
    scale = math.sqrt(sum(float(((c - m) ** 2).sum()) for c, m in zip(columns[1:], means, strict=True)))

    def edges(step: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Matrix]:
        rows = [(u, v, f) for u in range(n) for v, f in schedule.out_edges(u, step)]
        rows += [(u, u, schedule.kept(u, step)) for u in range(n)]
        u, v, f = zip(*rows, strict=True)
        return np.array(u), np.array(v), np.array(f)

    keep = min(schedule.period or 1, 64)
    edges_at = lru_cache(maxsize=keep)(edges)
    step = 0
    while True:
        weights = columns[0]
        if weights.min() > 0:
            off = [float(((c / weights - m) ** 2).sum()) for c, m in zip(columns[1:], means, strict=True)]
            yield math.sqrt(sum(off)) / scale
        else:
            yield math.inf
        tail, head, fraction = edges_at(step % schedule.period if schedule.period else step)
        columns = [np.bincount(head, weights=c[tail] * fraction, minlength=n) for c in columns]
        step += 1
