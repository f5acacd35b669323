"""Those who have not come to an agreement yet: who they are, how far they are, and whether to wait on for them.

A peer waits for as long as a latecomer makes steps, however slow it is. It gives up when nothing has changed for a
minute, or for the time of some of the latecomers' steps if those take longer. A caller's time-out takes the place of
this rule: then a peer waits for so long, whatever the latecomers do, and no longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

__all__ = ["Latecomers"]

#: Seconds without a change after which a peer gives up; if a latecomer's steps take long, the time of some of them.
_STANDSTILL, _STEPS = 60.0, 4
#: Seconds between two looks at the table of the swarm, and between two messages to the user.
_LOOK, _SAY = 0.2, 30.0
#: A disagreement that has become smaller by this factor is a change.
_NEARER = 0.9
#: Ranks that a message names.
_NAMED = 8


class Latecomers:
    """The peers that are waited for in one agreement. For the trainer's thread."""

    def __init__(
        self,
        timeout: float | None,
        rows: Callable[[], Mapping[int, Mapping[str, Any]]],
        states: Callable[[], Mapping[int, str]],
        warn: Callable[[str], None],
        seconds_per_step: Callable[[int], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to wait.

        Args:
            timeout: seconds to wait at most; None: for as long as there is a change.
            rows: returns the table of the swarm, by rank.
            states: returns what membership takes each other rank for.
            warn: is called now and then with a sentence that says who is waited for.
            seconds_per_step: returns how long a step takes a peer, given the step that it is at.
            clock: monotonic seconds.
        """
        self._timeout = timeout
        self._rows, self._states, self._warn = rows, states, warn
        self._seconds_per_step = seconds_per_step
        self._clock = clock
        self._began = self._changed = self._looked = self._said = clock()
        #: The latecomers, each with its life and step, and when it last made one.
        self._steps: dict[int, tuple[Any, Any]] = {}
        self._moved: dict[int, float] = {}
        self._missing: frozenset[int] = frozenset()
        self._gap = float("inf")

    def worth_waiting(self, missing: Collection[int], gap: float = float("inf")) -> bool:
        """Say whether to wait on, for ranks that have not come, or for a disagreement to become smaller."""
        now = self._clock()
        if frozenset(missing) != self._missing:
            self._missing, self._changed = frozenset(missing), now
        if gap < _NEARER * self._gap:
            self._gap, self._changed = gap, now
        if now - self._looked >= _LOOK:
            self._looked = now
            self._look(now)
        if self._timeout is not None:
            return now - self._began <= self._timeout
        return now - self._changed <= max(_STANDSTILL, _STEPS * self._step_seconds())

    def described(self) -> str:
        """Return who is missing, with what is known of each."""
        rows, states, now = self._rows(), self._states(), self._clock()
        named = []
        for rank in sorted(self._missing)[:_NAMED]:
            row = rows.get(rank, {})
            known = [states.get(rank, "alive"), row.get("state") or "no report yet"]
            if row.get("step") is not None:
                known.append(f"at step {row['step']}")
            if rank in self._moved:
                known.append(f"last step {now - self._moved[rank]:.0f} s ago")
            else:
                known.append(f"no step in {now - self._began:.0f} s")
            named.append(f"rank {rank} ({', '.join(known)})")
        more = len(self._missing) - len(named)
        return ", ".join(named) + (f" and {more} more" if more else "")

    @property
    def waited(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._began

    @property
    def missing(self) -> Collection[int]:
        """Those who had not come at the last look."""
        return self._missing

    def _look(self, now: float) -> None:
        rows = self._rows() if self._missing else {}
        for rank in self._missing & rows.keys():
            at = rows[rank].get("incarnation"), rows[rank].get("step")
            if rank in self._steps and at != self._steps[rank]:
                self._changed = self._moved[rank] = now
            self._steps[rank] = at
        if self._missing and now - self._said >= _SAY:
            self._said = now
            self._warn(f"waits for {self.described()}: all peers must come to the same call")

    def _step_seconds(self) -> float:
        """Return how long a step takes the slowest latecomer."""
        steps = [step for _, step in (self._steps.get(rank, (0, 0)) for rank in self._missing)]
        return max((self._seconds_per_step(step) for step in steps if step), default=0.0)
