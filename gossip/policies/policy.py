"""Policies: the decisions of an algorithm.

An algorithm is a policy here: a few answers about when to push which mass to which peers, and what to wait for. A
policy has no state and does not touch mass. The core moves the mass, so no policy can lose any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gossip.errors import SettingsError
from topologies import Schedule

__all__ = ["Outer", "Policy"]

#: The possible treatments of the optimizer's momentum buffers.
_MOMENTA = ("own", "mixed", "quasi-global")
#: And of algorithms whose peers may be in step.
_IN_STEP = ("auto", "inferred", *_MOMENTA)
#: The possible second moments of adaptive optimizers.
_VARIANCES = ("swarm", "own")
#: The most ranks and edges of a schedule that are checked before a run, which takes about a second. Formulas for very
#: many peers have more, and what holds for their first ranks holds for all; graphs from files rarely have more.
_LOOKS = 1_000_000
#: The number of steps that are checked of a schedule without a period.
_APERIODIC = 8


class Outer(NamedTuple):
    """An outer step after each exchange: u <- decay u + (z0 - z), z <- z0 - rate u; z0 is z after the last one."""

    decay: float
    rate: float

    @classmethod
    def checked(cls, policy: str, given: dict[str, float]) -> Outer:
        """Return the outer step with these two parameters: the policy's names and values of decay and rate."""
        (decay_name, decay), (rate_name, rate) = given.items()
        if not 0 <= decay < 1:
            raise SettingsError(f"{policy}: {decay_name}, the outer momentum, must be from 0 to below 1, not {decay}")
        if not 0 < rate <= 10:
            raise SettingsError(f"{policy}: {rate_name}, the outer rate, must be above 0 and at most 10, not {rate}")
        return cls(decay, rate)


class Policy:
    """Push the schedule's fractions after every step and never wait: the base class of all algorithms."""

    #: The name on the command line.
    name = "push"
    #: The number of turns that a neighbour's parcel may be late before the next step waits for it; None: never wait.
    lag: int | None = None
    #: The number of first steps that wait for the turn's parcels, whatever `lag` says.
    warmup = 0
    #: The part of the time for which a neighbour's parcels of this turn may be waited for where `lag` asks for no wait:
    #: see `gossip.exchange.allowance`.
    wait = 0.0
    #: The number of steps from one push to the next.
    every = 1
    #: The number of turns that every shard takes in an exchange, one after the other. A round begins when the parcels
    #: of the round before have arrived, so that it passes on what they brought; only policies that wait can have
    #: several.
    rounds = 1
    #: Whether the receiver answers a push with the same fraction of its own mass. Then a pair exchanges once in a turn.
    pairwise = False
    #: Whether peers ask for mass instead of pushing it.
    pulls = False
    #: Whether peers send compressed differences instead of mass; and the part of the way that they move then, where 0
    #: means the codec's default.
    differences = False
    gamma = 0.0
    #: Whether users may choose differences.
    may_differ = False
    #: The fraction that goes to each neighbour of a turn; None: the schedule's fraction.
    fraction: float | None = None
    #: The outer step after each exchange, if there is one.
    outer: Outer | None = None
    #: How much longer than its first peer a round of local steps may take, as a part of that time.
    slack = 0.0
    #: How long a peer stands still for an average at most, in parts of the time that its own steps took; and the number
    #: of steps that it makes then, while the average travels, before it stands still again.
    stands = 0.0
    late = 0.0
    #: The part of each move that is the swarm's direction, in steps without an exchange.
    blend = 0.0
    #: The treatment of the optimizer's momentum: own, inferred, mixed or quasi-global; auto: inferred where it is known
    #: to help, else own.
    momentum = "own"
    #: The second moment that Adam and its relatives divide by: the swarm's or the peer's own.
    variance = "own"
    #: The momentum that is applied to gradients before a codec leaves values out; 0: none.
    correction = 0.0

    #: The kind of `gossip.collective` that replaces the exchange of mass; empty: mass is exchanged.
    collective = ""
    #: A warning that users should read before they rely on the algorithm.
    warning = ""

    @property
    def default_topology(self) -> str:
        """The topology to use if the user names none, or if the named one does not support the number of peers."""
        if self.differences:
            return "bidirectional-ring"
        return "random-matching" if self.pairwise else "one-peer-exponential"

    def exchanges(self, step: int) -> bool:
        """Whether the step, counted from 1, ends in an exchange."""
        return step % self.every == 0

    def step_of(self, turn: int) -> int:
        """Return the step after which this number of turns has been taken."""
        return turn * self.every // self.rounds

    def check(self, schedule: Schedule) -> None:
        """Raise a `SettingsError`, which says what to use instead, if the schedule does not suit the algorithm."""
        if self.differences:
            _require_fixed(f"{self.name} with differences" if self.may_differ else self.name, schedule)

    def notice(self, schedule: Schedule) -> str:
        """Return a notice for users about this algorithm on a schedule that suits it; empty if there is none."""
        if self.pairwise and _goes_one_way(schedule):
            return (
                f"edges of {schedule.name} go one way, so under {self.name} a peer begins and answers in every turn, "
                "with up to twice the bytes of pairs; random-matching, or one-peer-hypercube for 2, 4, 8, ... peers, "
                "suits better"
            )
        return self.warning

    @property
    def averages_gradients(self) -> bool:
        """Whether gradients are averaged in every step, before the optimizer moves the values."""
        return self.collective == "reduction" and self.outer is None

    @property
    def trains_alone(self) -> bool:
        """Whether peers exchange nothing after most steps."""
        return self.outer is not None if self.collective else self.every > 1

    @property
    def follows_turns(self) -> bool:
        """Whether peers follow the turns of peers that are ahead: if peers wait for each other, or exchange in pairs.

        Two peers at different turns would begin with other partners, or each with the other just after it has begun.
        """
        return self.lag is not None or self.pairwise

    def for_adaptive(self) -> Policy:
        """Return the policy for an optimizer that divides by a second moment: the same, if it does not matter."""
        return self

    def lag_at(self, step: int) -> int | None:
        """Return the turns that a neighbour's parcel may be late at a step, counted from 1; None: never wait."""
        return 0 if step <= self.warmup else self.lag


def warmup_option(policy: str, warmup: int) -> int:
    """Return the number of synchronous first steps if it is valid."""
    if warmup < 0:
        raise SettingsError(f"{policy}: warmup, the number of synchronous first steps, must be 0 or more, not {warmup}")
    return warmup


def rounds_option(policy: str, rounds: int) -> int:
    """Return the number of turns in an exchange if it is valid."""
    if rounds < 1:
        raise SettingsError(f"{policy}: rounds, the hops of mass within a step, must be 1 or more, not {rounds}")
    return rounds


def momentum_option(policy: str, momentum: str, in_step: bool = False) -> str:
    """Return the treatment of the optimizer's momentum if it is valid; ``in_step``: peers may be in step."""
    valid = _IN_STEP if in_step else _MOMENTA
    if momentum not in valid:
        raise SettingsError(f"{policy}: momentum must be {', '.join(valid[:-1])} or {valid[-1]}, not {momentum}")
    return momentum


def variance_option(policy: str, variance: str) -> str:
    """Return which second moment adaptive optimizers divide by, if it is valid."""
    if variance not in _VARIANCES:
        raise SettingsError(f"{policy}: variance must be {' or '.join(_VARIANCES)}, not {variance}")
    return variance


def planned_edges(schedule: Schedule) -> Iterator[tuple[int, dict[int, dict[int, float]]]]:
    """Yield each step of a period, or the first few, with the edges {rank: {neighbour: fraction}} of all ranks.

    If the schedule is too large for that, only the first ranks are included.
    """
    left = _LOOKS
    for step in range(schedule.period or _APERIODIC):
        edges: dict[int, dict[int, float]] = {}
        for rank in range(schedule.n):
            edges[rank] = dict(schedule.out_edges(rank, step))
            left -= 1 + len(edges[rank])
            if left <= 0:
                break
        yield step, edges
        if left <= 0:
            return


def _goes_one_way(schedule: Schedule) -> bool:
    """Whether some edge has no reverse edge in the same step."""
    return any(
        rank not in edges.get(other, [rank])
        for _, edges in planned_edges(schedule)
        for rank, neighbours in edges.items()
        for other in neighbours
    )


def require_pairs(policy: str, schedule: Schedule) -> None:
    """Raise a `SettingsError` unless each rank swaps halves with at most one other."""
    for step, edges in planned_edges(schedule):
        for rank, neighbours in edges.items():
            for other, fraction in neighbours.items():
                mutual = list(edges.get(other, [rank])) == [rank]
                if len(neighbours) > 1 or abs(fraction - 0.5) > 1e-9 or not mutual:
                    raise SettingsError(
                        f"{policy} needs pairs that swap halves, but in step {step} of {schedule.name} rank {rank} "
                        f"sends {fraction:.3g} to {other}, which is not such a pair; use random-matching, or "
                        "one-peer-hypercube for 2, 4, 8, ... peers, or another algorithm: slowmo takes any topology"
                    )


def _require_fixed(policy: str, schedule: Schedule) -> None:
    """Raise a `SettingsError` unless neighbours never change, so that estimates can be kept, and edges go both ways."""
    if schedule.period != 1:
        raise SettingsError(
            f"{policy} keeps estimates of its neighbours, so they must be the same in every turn, but {schedule.name} "
            "changes them; use bidirectional-ring, torus, hypercube or complete, or dpsgd, which takes any "
            "symmetric topology"
        )
    require_symmetric(policy, schedule, "bidirectional-ring, torus, hypercube or complete")


def require_symmetric(
    policy: str, schedule: Schedule, such_as: str = "base, bidirectional-ring or random-matching"
) -> None:
    """Raise a `SettingsError` unless every edge goes both ways with equal fractions."""
    for step, edges in planned_edges(schedule):
        for rank, neighbours in edges.items():
            for other, fraction in neighbours.items():
                back = edges[other].get(rank, 0.0) if other in edges else fraction
                if abs(back - fraction) > 1e-9:
                    raise SettingsError(
                        f"{policy} needs edges that go both ways with equal fractions, but in step {step} of "
                        f"{schedule.name} rank {rank} sends {fraction:.3g} to {other} and gets {back:.3g}; "
                        f"use a symmetric topology such as {such_as}, or sgp"
                    )
