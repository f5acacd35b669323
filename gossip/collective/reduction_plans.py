"""Plans of a reduction: which place sends which part of a vector to which other place, so that all end with the sum.

A plan is made for n *places* 0 to n-1 and a number of elements. It is a sequence of rounds, each of transfers. In a
transfer a place sends a range of its vector, with the values at the start of the round, and the receiver adds it to its
own range or replaces it. Each element's final value is computed at one place and copied from there, so all places end
with the same bits.

With S the bytes of the vector, L the latency of a message, o the work to send or to receive one, and b the time of a
byte (the LogP model, Culler et al. 1993, with the bytes of LogGP), the busiest place takes:

    ring      2 (n-1) rounds of S/n bytes:        2 (n-1) (L + 2 o) + 2 (n-1)/n S b
    halving   2 log2 n rounds of S/2, S/4, ...:   2 log2 n (L + 2 o) + 2 (n-1)/n S b; for n = p + rest, p a power of
              two, the rest is folded in first and served last: with p for n, and 2 (L + o + S b) more if there is any
    tree      2 ceil(log2 n) rounds of S:         2 ceil(log2 n) (L + o + S b)

Ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. Halving
(recursive halving and doubling): Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
MPICH", 2005. Tree: binomial, up to place 0 and down again.

`choose` takes the cheapest: the tree for small vectors, where fewer messages count, then halving, and the ring for
large vectors if n is not a power of two. All peers have to make the same choice, so the times are constants, not
measurements; only their ratios matter. Cells flow through the rounds one after the other (`gossip.collective.attempt`),
so a long vector takes less time than the model predicts, in the tree most of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["PLANS", "ReductionPlan", "Transfer", "choose", "cost", "plan"]

#: Seconds: the latency of a message, the work at either end in this engine, and per byte of a link of 10 Gbit/s.
LATENCY, OVERHEAD, PER_BYTE = 1e-4, 1e-4, 8e-10


class Transfer(NamedTuple):
    """A transfer of a range of elements from one place to another."""

    sender: int
    receiver: int
    start: int
    stop: int
    #: Whether the receiver adds the range to its own, or replaces its own by it.
    add: bool


@dataclass(frozen=True)
class ReductionPlan:
    """The rounds of a reduction."""

    name: str
    n: int
    size: int
    rounds: tuple[tuple[Transfer, ...], ...]


def _ring(n: int, size: int) -> list[list[Transfer]]:
    bounds = [size * block // n for block in range(n + 1)]

    def turned(by: int, add: bool) -> list[Transfer]:
        blocks = [(place + by) % n for place in range(n)]
        return [
            Transfer(place, (place + 1) % n, bounds[block], bounds[block + 1], add)
            for place, block in enumerate(blocks)
        ]

    return [turned(-step, True) for step in range(n - 1)] + [turned(1 - step, False) for step in range(n - 1)]


def _halving(n: int, size: int) -> list[list[Transfer]]:
    power = 1 << (n.bit_length() - 1)
    bounds = [size * block // power for block in range(power + 1)]
    halving: list[list[Transfer]] = []
    distance = power // 2
    while distance:
        transfers = []
        for place in range(power):
            # Places that agree in the bits above hold the same blocks; the partner keeps its half of them.
            first = (place ^ distance) & -distance
            transfers.append(Transfer(place, place ^ distance, bounds[first], bounds[first + distance], True))
        halving.append(transfers)
        distance //= 2
    doubling = [
        [Transfer(one.receiver, one.sender, one.start, one.stop, False) for one in transfers]
        for transfers in reversed(halving)
    ]
    rest = range(power, n)
    fold = [[Transfer(place, place - power, 0, size, True) for place in rest]] if rest else []
    serve = [[Transfer(place - power, place, 0, size, False) for place in rest]] if rest else []
    return fold + halving + doubling + serve


def _tree(n: int, size: int) -> list[list[Transfer]]:
    up: list[list[Transfer]] = []
    distance = 1
    while distance < n:
        up.append([Transfer(place, place - distance, 0, size, True) for place in range(distance, n, 2 * distance)])
        distance *= 2
    down = [[Transfer(one.receiver, one.sender, 0, size, False) for one in transfers] for transfers in reversed(up)]
    return up + down


#: All kinds of plan, by name.
PLANS: dict[str, Callable[[int, int], list[list[Transfer]]]] = {"ring": _ring, "halving": _halving, "tree": _tree}


def plan(name: str, n: int, size: int) -> ReductionPlan:
    """Return the plan of this name for n places and ``size`` elements; ranges without elements are left out."""
    rounds = PLANS[name](n, size) if n > 1 else []
    return ReductionPlan(name, n, size, tuple(tuple(one for one in each if one.start < one.stop) for each in rounds))


def cost(name: str, n: int, nbytes: int) -> float:
    """Return the seconds that the model of this module predicts for a plan."""
    if n == 1:
        return 0.0
    power = 1 << (n.bit_length() - 1)
    depth = (n - 1).bit_length()
    folds = 2 * (n > power)
    # The rounds, the messages that the busiest place handles in them, and the vectors that pass through it.
    rounds, messages, vectors = {
        "ring": (2 * (n - 1), 4 * (n - 1), 2 * (n - 1) / n),
        "halving": (
            2 * (power.bit_length() - 1) + folds,
            4 * (power.bit_length() - 1) + folds,
            2 * (power - 1) / power + folds,
        ),
        "tree": (2 * depth, 2 * depth, 2.0 * depth),
    }[name]
    return rounds * LATENCY + messages * OVERHEAD + vectors * nbytes * PER_BYTE


def choose(n: int, nbytes: int) -> str:
    """Return the name of the cheapest plan; of equally cheap ones, the first by name."""
    return min(sorted(PLANS), key=lambda name: cost(name, n, nbytes))
