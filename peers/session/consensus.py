"""Agreement without training: peers mix until their values differ by no more than a tolerance, or meet and act."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gossip.errors import SettingsError
from gossip.net.driver import Driver, DriverError
from peers.model.replica import Replica
from peers.session.agreement_errors import AgreementError, DivergenceError
from peers.session.latecomers import Latecomers
from peers.session.rendezvous import Rendezvous

__all__ = ["Consensus", "Terms"]

#: Seconds of pause after a round of mixing in which nothing arrived, and the most while somebody has not come.
_PAUSE, _LONG_PAUSE = 0.005, 0.05
#: The points that a peer comes to in an agreement.
_POINTS = ("mixing", "agreed", "known")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Terms:
    """What an agreement is to reach, and what happens on the way."""

    #: The disagreement to reach.
    tolerance: float = 1e-3
    #: Seconds after which to give up; None: when those who have not come make no steps any more.
    timeout: float | None = None
    #: Is called between two rounds, where values are whole. It may raise, and so end the agreement for this peer.
    between: Callable[[], None] = _nothing
    #: Is called when all agree: soon after, mass of peers that train again may be merged.
    on_agreed: Callable[[], None] = _nothing

    def __post_init__(self) -> None:
        if not (_is_number(self.tolerance) and self.tolerance >= 0):
            raise SettingsError(f"tolerance must be a number of 0 or more, not {self.tolerance!r}")
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout >= 0):
            raise SettingsError(f"timeout must be None or a number of seconds, 0 or more, not {self.timeout!r}")


class Consensus:
    """The agreements of one peer, one after the other. For the trainer's thread."""

    def __init__(
        self,
        rank: int,
        driver: Driver,
        rendezvous: Rendezvous,
        replica: Replica,
        exchange: Callable[[], None],
        warn: Callable[[str], None],
        *,
        rows: Callable[[], Mapping[int, Mapping[str, Any]]],
        states: Callable[[], Mapping[int, str]],
        step: int,
        unit: str = "rank",
    ) -> None:
        """Prepare.

        Args:
            rank: of this peer.
            driver: of the core.
            rendezvous: where the others are waited for.
            replica: the values.
            exchange: exchanges the values once; returns when that is over.
            warn: is called with a sentence that the user should read.
            rows: returns the table of the swarm, by rank.
            states: returns what membership takes each other rank for.
            step: the number of steps before the checkpoint.
            unit: what a number is in sentences, as in `peers.session.chronicle`.
        """
        self._rank, self._unit = rank, unit
        self._driver = driver
        self._rendezvous = rendezvous
        self._replica = replica
        self._exchange = exchange
        self._warn = warn
        self._rows, self._states = rows, states
        self._began, self._first = time.monotonic(), step
        self._count = 0

    def mix(self, terms: Terms) -> float:
        """Mix until all agree; return the disagreement that was reached.

        No peer leaves before all know that all agree, so that nobody is sent what another one trained since.

        Raises:
            AgreementError: not all came, or they did not come near enough to each other.
            DivergenceError: this replica holds NaN or infinity.
        """
        mixing = self._next()
        self._check_finite(mixing)
        if self._is_alone():
            self._say_who_left()
            return 0.0
        self._rendezvous.reach("mixing", mixing)
        gaps = _Gaps(terms.tolerance, rounds=2 * len(self._driver.status().members).bit_length())
        late = self._latecomers(terms.timeout)
        agreed = False
        self._driver.measure(True)
        try:
            pause = _PAUSE
            while not (agreed := self._mixed(mixing, gaps, terms.on_agreed)):
                missing = self._rendezvous.lacking("mixing", mixing)
                if not late.worth_waiting(missing, max(gaps.recent, default=math.inf)):
                    break
                terms.between()
                if missing:  # mixing at full speed would only take time away from those who still train
                    time.sleep(pause)
                    pause = min(2 * pause, _LONG_PAUSE)
        finally:
            with suppress(DriverError):  # the next call raises it
                self._driver.measure(False)
        self._replica.lend()
        self._driver.rest()
        self._rendezvous.spread()
        self._driver.resume()
        self._replica.reclaim()
        if gaps.reached <= terms.tolerance and agreed:
            return gaps.reached
        if self._is_alone():
            self._say_who_left()
            return 0.0
        apart = max(gaps.recent, default=math.inf)
        if agreed and apart <= terms.tolerance:
            return apart
        raise self._disagreement(late, terms.tolerance, apart)

    def _mixed(self, mixing: int, gaps: _Gaps, on_agreed: Callable[[], None]) -> bool:
        """Mix for one round; return whether all know that all agree, or nobody else is left."""
        reached = self._rendezvous.reached
        self._exchange()
        status = self._driver.status()
        if status.gaps:
            gaps.measured(max(status.gaps.values()))
        else:
            time.sleep(_PAUSE)
        live = set(status.members)
        if not reached("mixing", mixing) >= live:
            gaps.restart()  # somebody still trains
        elif gaps.agrees():
            self._rendezvous.reach("agreed", mixing)
        if reached("agreed", mixing) >= live and self._rank not in reached("known", mixing):
            on_agreed()
            self._rendezvous.reach("known", mixing)
        return reached("known", mixing) >= live or len(live) == 1

    def meet(self, terms: Terms, *acts: Callable[[], None]) -> None:
        """Wait until all peers are here; then, for each act, act and wait until all have acted.

        Raises:
            AgreementError: not all came.
            DivergenceError: this replica holds NaN or infinity.
        """
        meeting = self._next()
        self._check_finite(meeting)
        for what, act in zip(_POINTS, (_nothing, *acts), strict=False):
            act()
            late = self._latecomers(terms.timeout)

            def go_on(missing: set[int], late: Latecomers = late) -> bool:
                terms.between()
                return late.worth_waiting(missing)

            if not self._rendezvous.wait_for_all(what, meeting, go_on):
                raise self._disagreement(late, 0.0, math.inf)

    def _check_finite(self, level: int) -> None:
        """Raise an error if this replica has diverged, and let the others agree without it."""
        if self._replica.is_finite():
            return
        for what in _POINTS:
            self._rendezvous.roll.reach(what, self._rank, level)
        self._rendezvous.spread()
        raise DivergenceError("the model holds NaN or infinity, so there is nothing to agree on", math.inf)

    def _latecomers(self, timeout: float | None) -> Latecomers:
        return Latecomers(timeout, self._rows, self._states, self._warn, self._seconds_per_step)

    def _seconds_per_step(self, step: int) -> float:
        """Return how long a step takes a peer that is at this one; 0 if it has made none since the start."""
        made = step - self._first
        return (time.monotonic() - self._began) / made if made > 0 else 0.0

    def _disagreement(self, late: Latecomers, tolerance: float, apart: float) -> AgreementError:
        """Return an error that says who is missing, or else how far apart the peers are."""
        if late.missing:
            why = (
                f"waited {late.waited:.0f} s in vain for {late.described()}. All peers must come to the same call; "
                "wait longer for slow ones with timeout=SECONDS"
            )
        else:
            why = (
                f"all peers came, but after {late.waited:.0f} s they are {apart:.1e} apart, and the tolerance is "
                f"{tolerance:g}. Mix longer with timeout=SECONDS, or allow a larger tolerance"
            )
        return AgreementError(
            f"rank {self._rank}: no agreement, so the models of the peers differ: {why}. To go on without agreement, "
            "pass must_agree=False",
            apart,
        )

    def _say_who_left(self) -> None:
        """Tell a peer that is alone in the end what its model is."""
        members = self._driver.status().members
        left = sorted(rank for rank, state in self._states().items() if rank not in members and state != "dead")
        if left:
            self._warn(
                f"{self._unit}s {left} left before all agreed. The model of this peer is the average of all that they "
                "handed over; their own models differ from it unless all peers call consensus() before they end"
            )

    def _next(self) -> int:
        """Return the number of the next agreement; a newcomer enters the one that the others are at."""
        self._count = max(self._count + 1, self._rendezvous.roll.highest("mixing"))
        return self._count

    def _is_alone(self) -> bool:
        return len(self._driver.status().members) == 1


class _Gaps:
    """How far a peer lay from its neighbours in the latest rounds of mixing."""

    def __init__(self, tolerance: float, rounds: int) -> None:
        """Begin; after this number of rounds every peer has mass of every other, on any schedule that mixes well."""
        self._tolerance = tolerance
        self._rounds = rounds
        #: The gaps of the latest rounds.
        self.recent: list[float] = []
        #: The largest of them when this peer first agreed with its neighbours.
        self.reached = math.inf

    def measured(self, gap: float) -> None:
        """Take in the gap of one round."""
        self.recent = [*self.recent[1 - self._rounds :], gap]

    def restart(self) -> None:
        """Forget the rounds so far: they do not count."""
        self.recent = []

    def agrees(self) -> bool:
        """Whether this peer agrees with its neighbours now, and did not before."""
        if self.reached <= self._tolerance or len(self.recent) != self._rounds:
            return False
        if max(self.recent) > self._tolerance:
            return False
        self.reached = max(self.recent)
        return True
