"""What a policy decides.

An algorithm, as the user calls it, is a policy here: a few answers about when to push what to whom and what
to wait for. It holds no state and touches no mass; the core does the moving, so no policy can lose any.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from topologies import Schedule

__all__ = ["Policy"]


class Policy:
    """Push the schedule's fractions after every step and never wait: the base that others refine."""

    #: What users call it.
    name = "push"
    #: How many turns a neighbour's parcel may be late before the next step waits for it; None: never wait.
    lag: int | None = None
    #: How many steps there are from one push to the next.
    every = 1
    #: Whether the receiver answers a push with the same fraction of its own mass.
    pairwise = False

    def check(self, schedule: Schedule) -> None:
        """Raise an error that says what to use instead, if the schedule does not suit."""

    def awaited(self, turn: int) -> int | None:
        """Return the turn whose parcels must be there, or waited for, once ``turn`` has been pushed."""
        if self.lag is None or turn < self.lag:
            return None
        return turn - self.lag


def require_symmetric(policy: str, schedule: Schedule) -> None:
    """Raise unless every edge goes both ways with equal fractions, in each step of a period or the first few."""
    for step in range(min(schedule.period or 8, 64)):
        for rank in range(min(schedule.n, 256)):
            for other, fraction in schedule.out_edges(rank, step):
                back = dict(schedule.out_edges(other, step)).get(rank)
                if back is None or abs(back - fraction) > 1e-9:
                    raise SettingsError(
                        f"{policy} needs edges that go both ways with equal fractions, and in step {step} of "
                        f"{schedule.name} rank {rank} sends {fraction:.3g} to {other} and gets {back or 0:.3g}; "
                        "use a symmetric topology such as base, bidirectional-ring or random-matching, or sgp"
                    )
