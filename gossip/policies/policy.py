"""What a policy decides.

An algorithm, as the user calls it, is a policy here: a few answers about when to push what to whom and what
to wait for. It holds no state and touches no mass; the core does the moving, so no policy can lose any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gossip.errors import SettingsError
from topologies import Schedule

__all__ = ["Outer", "Policy"]

#: What becomes of the optimizer's momentum buffers.
_MOMENTA = ("own", "mixed", "quasi-global")
#: Ranks and edges of a schedule that are looked at before it is run, at most, which takes a second or so. Formulas for
#: very many peers have more, and what holds for their first ranks holds for all; files rarely do.
_LOOKS = 1_000_000
#: Steps of a schedule that never repeats that are looked at.
_APERIODIC = 8


class Outer(NamedTuple):
    """An outer step after each exchange: u <- decay u + (z0 - z), z <- z0 - rate u; z0 is what the last one left."""

    decay: float
    rate: float

    @classmethod
    def checked(cls, policy: str, given: dict[str, float]) -> Outer:
        """Return the outer step with these two parameters, decay and rate as the policy calls them."""
        (decay_name, decay), (rate_name, rate) = given.items()
        if not 0 <= decay < 1:
            raise SettingsError(f"{policy}: {decay_name} is the outer momentum, from 0 to below 1, not {decay}")
        if not 0 < rate <= 10:
            raise SettingsError(f"{policy}: {rate_name} is the outer rate, above 0 and at most 10, not {rate}")
        return cls(decay, rate)


class Policy:
    """Push the schedule's fractions after every step and never wait: the base that others refine."""

    #: What users call it.
    name = "push"
    #: How many turns a neighbour's parcel may be late before the next step waits for it; None: never wait.
    lag: int | None = None
    #: The first steps, so many, wait for the turn's parcels whatever `lag` says.
    warmup = 0
    #: How many steps there are from one push to the next.
    every = 1
    #: Whether the receiver answers a push with the same fraction of its own mass. Then a pair exchanges once in a turn.
    pairwise = False
    #: Whether mass is asked for instead of pushed.
    pulls = False
    #: Whether compressed differences are told instead of pushing mass, and which part of the way is gone then; 0: what
    #: suits the codec.
    differences = False
    gamma = 0.0
    #: Whether users may choose differences.
    may_differ = False
    #: What goes to each neighbour of a turn instead of what the schedule says; None: what it says.
    fraction: float | None = None
    #: The outer step after each exchange, if there is one.
    outer: Outer | None = None
    #: The part of each move that is the swarm's direction, in steps without an exchange.
    blend = 0.0
    #: What becomes of the optimizer's momentum: own, mixed or quasi-global.
    momentum = "own"
    #: The momentum that is applied to gradients before a codec leaves any out; 0: none.
    correction = 0.0

    #: What is exchanged instead of mass, if anything: a kind of `gossip.collective`.
    collective = ""
    #: What users should hear before they rely on it.
    warning = ""

    @property
    def default_topology(self) -> str:
        """What it goes by where nobody says, or where the topology that was asked for does not suit as many peers."""
        if self.differences:
            return "bidirectional-ring"
        return "random-matching" if self.pairwise else "one-peer-exponential"

    def exchanges(self, step: int) -> bool:
        """Whether the step, counted from 1, ends in an exchange."""
        return step % self.every == 0

    def step_of(self, turn: int) -> int:
        """Return the step with which so many turns have been taken."""
        return turn * self.every

    def check(self, schedule: Schedule) -> None:
        """Raise an error that says what to use instead, if the schedule does not suit."""
        if self.differences:
            _require_fixed(f"{self.name} with differences" if self.may_differ else self.name, schedule)

    def notice(self, schedule: Schedule) -> str:
        """Return what users should hear before they rely on it with a schedule that suits, if there is anything."""
        if self.pairwise and _goes_one_way(schedule):
            return (
                f"edges of {schedule.name} go one way, so under {self.name} a peer begins and answers in every turn, "
                "for up to twice the bytes of pairs; random-matching, or one-peer-hypercube for 2, 4, 8, ... peers, "
                "suits better"
            )
        return self.warning

    @property
    def follows_turns(self) -> bool:
        """Whether peers keep to the turns of those who are ahead: where somebody waits, or pairs are to find together.

        Of two that are at different turns each begins with somebody else, or with the other just after it has begun.
        """
        return self.lag is not None or self.pairwise

    def lag_at(self, step: int) -> int | None:
        """Return how many turns a neighbour's parcel may be late with a step, counted from 1; None: never wait."""
        return 0 if step <= self.warmup else self.lag


def warmup_option(policy: str, warmup: int) -> int:
    """Return for how many steps users want a policy to be synchronous, if there can be so many."""
    if warmup < 0:
        raise SettingsError(f"{policy}: warmup is how many steps are synchronous at first, 0 or more, not {warmup}")
    return warmup


def momentum_option(policy: str, momentum: str) -> str:
    """Return what users say is to become of the optimizer's momentum, if there is such a thing."""
    if momentum not in _MOMENTA:
        raise SettingsError(f"{policy}: momentum is {', '.join(_MOMENTA[:-1])} or {_MOMENTA[-1]}, not {momentum}")
    return momentum


def planned_edges(schedule: Schedule) -> Iterator[tuple[int, dict[int, dict[int, float]]]]:
    """Yield each step of a period, or the first few, with the edges {rank: {neighbour: fraction}} of all ranks.

    Of a schedule that is too large for that, as many ranks as can be afforded.
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
    """Whether some edge has none back in its step."""
    return any(
        rank not in edges.get(other, [rank])
        for _, edges in planned_edges(schedule)
        for rank, neighbours in edges.items()
        for other in neighbours
    )


def require_pairs(policy: str, schedule: Schedule) -> None:
    """Raise unless each rank swaps halves with one other at most."""
    for step, edges in planned_edges(schedule):
        for rank, neighbours in edges.items():
            for other, fraction in neighbours.items():
                mutual = list(edges.get(other, [rank])) == [rank]
                if len(neighbours) > 1 or abs(fraction - 0.5) > 1e-9 or not mutual:
                    raise SettingsError(
                        f"{policy} needs pairs that swap halves, and in step {step} of {schedule.name} rank {rank} "
                        f"sends {fraction:.3g} to {other}, which is no such pair; use random-matching, or "
                        "one-peer-hypercube for 2, 4, 8, ... peers, or another algorithm: slowmo takes any topology"
                    )


def _require_fixed(policy: str, schedule: Schedule) -> None:
    """Raise unless neighbours stay the same, so that estimates of them can be kept, and edges go both ways."""
    if schedule.period != 1:
        raise SettingsError(
            f"{policy} needs the same neighbours in every turn, of whom it keeps estimates, and {schedule.name} "
            "changes them; use bidirectional-ring, torus, hypercube or complete, or dpsgd, which takes any "
            "symmetric topology"
        )
    require_symmetric(policy, schedule, "bidirectional-ring, torus, hypercube or complete")


def require_symmetric(
    policy: str, schedule: Schedule, such_as: str = "base, bidirectional-ring or random-matching"
) -> None:
    """Raise unless every edge goes both ways with equal fractions."""
    for step, edges in planned_edges(schedule):
        for rank, neighbours in edges.items():
            for other, fraction in neighbours.items():
                back = edges[other].get(rank, 0.0) if other in edges else fraction
                if abs(back - fraction) > 1e-9:
                    raise SettingsError(
                        f"{policy} needs edges that go both ways with equal fractions, and in step {step} of "
                        f"{schedule.name} rank {rank} sends {fraction:.3g} to {other} and gets {back:.3g}; "
                        f"use a symmetric topology such as {such_as}, or sgp"
                    )
