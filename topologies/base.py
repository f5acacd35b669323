"""The Base-(k+1) graph: at most k neighbours a step, and the exact average for every n.

Takezawa, Sato, Bao, Niwa, Yamada, "Beyond Exponential Graph: Communication-Efficient Topologies for
Decentralized Learning via Finite-time Convergence", 2023, arXiv:2305.11420. The graph is built from three parts. Each
part is a formula for the neighbours of one index at one step, so no plan is stored and any n is cheap:

Cliques (the paper's hyper-hypercube), for m = f1 * ... * fL with every factor at most k + 1: write the index in
    mixed radix; step l averages the f_l indices that differ only in digit l. Exact after L steps.

SimpleBase, for any n: n in base k + 1 is a_1 (k+1)^p_1 + a_2 (k+1)^p_2 + ..., largest first, and block l
    has a_l groups of (k+1)^p_l indices.
    1. Each block averages itself by cliques; the smaller ones start again until block 1 is done.
    2. In step l each index after block l links to one index in each of block l's groups, with a weight
       that gives each group, and each of the linking indices, the average of everything from block l on.
       Block 1 starts. Earlier averages of a block count, so each block ends up with the overall average in each of
       its groups, though not yet in each index.
    3. Each group averages itself by cliques as soon as its block's turn in part 2 is over.
    Part 3 of block 1 ends last: (cliques of block 1) + 1 + p_1 <= 2 log_{k+1}(n) + 2 steps.

Base, for any n: split off the largest divisor p of n whose primes are all at most k + 1. The p lanes of
    q = n / p indices run SimpleBase(q) side by side, then equal indices average across the lanes by cliques.
    SimpleBase(n) is taken instead where it is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from topologies.plans import symmetric
from topologies.registry import register
from topologies.schedule import Edges, Plan
from topologies.topology_errors import BadParameter

__all__ = ["base"]

#: The neighbours of an index at a step.
Formula = Callable[[int, int], Edges]


@register("base", directed=False, paper="Takezawa et al. 2023, arXiv:2305.11420")
def base(n: int, *, k: int = 1) -> Plan:
    """At most k neighbours a step and the exact average for every n, within 2 log_{k+1}(n) + 2 steps."""
    if k < 1:
        raise BadParameter(f"base: k, the most neighbours of a peer in a step, must be at least 1, not {k}")
    k = min(k, max(n - 1, 1))  # a peer has at most n - 1 neighbours
    simple = _SimpleBase(n, k)
    lanes = _smooth_part(n, k)
    inner, across = _SimpleBase(n // lanes, k), _Cliques(lanes, k)
    if simple.steps < inner.steps + across.steps:
        return symmetric(max(simple.steps, 1), simple.neighbours)

    def out(rank: int, step: int) -> Edges:
        lane, index = divmod(rank, inner.n)
        if step < inner.steps:
            return tuple([(lane * inner.n + other, w) for other, w in inner.neighbours(index, step)])
        if not across.steps:  # a swarm of one
            return ()
        met = across.neighbours(lane, step - inner.steps)
        return tuple([(other * inner.n + index, w) for other, w in met])

    return symmetric(max(inner.steps + across.steps, 1), out)


class _Cliques:
    """The exact average of m indices, m a product of factors up to k + 1, in one step per factor."""

    def __init__(self, m: int, k: int) -> None:
        self.factors = _factors(m, k + 1)
        self.steps = len(self.factors)
        self._strides = [1]
        for factor in self.factors:
            self._strides.append(self._strides[-1] * factor)

    def neighbours(self, index: int, step: int) -> Edges:
        factor, stride = self.factors[step], self._strides[step]
        first = index - index // stride % factor * stride
        clique = range(first, first + factor * stride, stride)
        return tuple([(other, 1.0 / factor) for other in clique if other != index])


@dataclass(frozen=True)
class _Block:
    start: int
    groups: int
    group_size: int
    whole: _Cliques
    group: _Cliques

    @property
    def size(self) -> int:
        return self.groups * self.group_size


class _SimpleBase:
    """The exact average of n indices, for any n."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self._k = n, k
        self._blocks: list[_Block] = []
        start, power = 0, 1
        while power * (k + 1) <= n:
            power *= k + 1
        while power:
            groups = (n - start) // power
            if groups:
                self._blocks.append(_Block(start, groups, power, _Cliques(groups * power, k), _Cliques(power, k)))
                start += groups * power
            power //= k + 1
        first = self._blocks[0]
        self.steps = first.whole.steps
        if len(self._blocks) > 1:
            self.steps += 1 + first.group.steps

    def neighbours(self, index: int, step: int) -> Edges:
        number = next(i for i, b in reversed(list(enumerate(self._blocks))) if index >= b.start)
        block = self._blocks[number]
        turn = step - self._blocks[0].whole.steps
        if turn < 0:
            return _repeated(block.whole, block.start, index, step)
        linking = min(number, len(self._blocks) - 2)  # the last turn in which this block links
        if turn > linking:
            return _repeated(block.group, block.start, index, turn - linking - 1)
        target = self._blocks[turn]
        after = target.start + target.size  # where the later, linking blocks begin
        weight = target.group_size / (self.n - target.start)
        if number > turn:
            return tuple(
                [(target.start + group * target.group_size + index - after, weight) for group in range(target.groups)]
            )
        offset = (index - block.start) % block.group_size
        if offset < self.n - after:
            return ((after + offset, weight),)
        return self._idle(index, offset - (self.n - after), block.group_size - (self.n - after))

    def _idle(self, index: int, position: int, count: int) -> Edges:
        """Return the neighbours of an index without links: up to k other indices of its group without links."""
        first = position - position % (self._k + 1)
        size = min(self._k + 1, count - first)
        clique = range(index - position + first, index - position + first + size)
        return tuple([(other, 1.0 / size) for other in clique if other != index])


def _repeated(cliques: _Cliques, start: int, index: int, step: int) -> Edges:
    if not cliques.steps:
        return ()
    return tuple([(start + other, w) for other, w in cliques.neighbours(index - start, step % cliques.steps)])


def _smooth_part(n: int, k: int) -> int:
    """Return the largest divisor of n whose prime factors are all at most k + 1."""
    part, rest = 1, n
    for factor in range(2, k + 2):
        while rest % factor == 0:
            part, rest = part * factor, rest // factor
    return part


def _factors(m: int, largest: int) -> list[int]:
    """Write m as a product of as few factors up to ``largest`` as possible, large ones first.

    The search is depth first, with a growing number of factors: m has few divisors that small, and few are needed.
    """

    def search(rest: int, count: int, limit: int) -> list[int] | None:
        if rest == 1:
            return []
        if count == 0 or limit**count < rest:
            return None
        for factor in range(min(limit, rest), 1, -1):
            if rest % factor == 0:
                found = search(rest // factor, count - 1, factor)
                if found is not None:
                    return [factor, *found]
        return None

    count = 0
    while (found := search(m, count, largest)) is None:
        count += 1
    return found
