"""Agreement without training: peers mix until their values differ by no more than a tolerance, or meet and act."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

from gossip.net.driver import Driver, DriverError
from gossip.values.blocks import is_finite
from peers.model.replica import Replica
from peers.session.rendezvous import Rendezvous

__all__ = ["Consensus"]

#: Seconds of pause after a round of mixing in which nothing arrived.
_PAUSE = 0.005


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
    ) -> None:
        """Prepare.

        Args:
            rank: of this peer.
            driver: of the core.
            rendezvous: where the others are waited for.
            replica: the values.
            exchange: exchanges the values once; returns when that is over.
            warn: is called with a sentence that the user should read.
        """
        self._rank = rank
        self._driver = driver
        self._rendezvous = rendezvous
        self._replica = replica
        self._exchange = exchange
        self._warn = warn
        self._count = 0

    def mix(self, tolerance: float, timeout: float, on_agreed: Callable[[], None] | None = None) -> float:
        """Mix until all agree within the tolerance; return the disagreement that was reached.

        No peer leaves before all know that all agree, so that nobody is sent what another one trained since.

        Args:
            tolerance: the disagreement to reach.
            timeout: seconds to mix at most.
            on_agreed: is called when all agree: soon after, mass of peers that train again may be merged.
        """
        if self._is_alone():
            return 0.0
        if not all(is_finite(values) for values in self._replica.arrays):
            # Mixing does not mend NaN or infinity. The others agree without this peer, once it has left.
            self._warn("there is nothing to agree on: training diverged here")
            return math.inf
        mixing = self._next()
        deadline = time.monotonic() + timeout
        self._rendezvous.reach("mixing", mixing)
        gaps = _Gaps(tolerance, rounds=2 * len(self._driver.status().members).bit_length())
        self._driver.measure(True)
        try:
            while not self._mixed(mixing, gaps, on_agreed):
                if time.monotonic() > deadline:
                    self._warn(f"no agreement within {tolerance:g} after {timeout:g} s of mixing")
                    break
        finally:
            with suppress(DriverError):  # the next call raises it
                self._driver.measure(False)
        self._replica.lend()
        self._driver.rest()
        self._rendezvous.spread()
        self._driver.resume()
        self._replica.reclaim()
        if gaps.reached <= tolerance:
            return gaps.reached
        if self._is_alone():
            self._warn("the others left before all agreed: this model is the average of what they left here")
            return 0.0
        return max(gaps.recent, default=math.inf)

    def _mixed(self, mixing: int, gaps: _Gaps, on_agreed: Callable[[], None] | None) -> bool:
        """Mix for one round; return whether all know that all agree, or nobody else is left."""
        roll = self._rendezvous.roll
        self._exchange()
        status = self._driver.status()
        if status.gaps:
            gaps.measured(max(status.gaps.values()))
        else:
            time.sleep(_PAUSE)
        live = set(status.members)
        if not roll.ranks("mixing", mixing) >= live:
            gaps.restart()  # somebody still trains
        elif gaps.agrees():
            self._rendezvous.reach("agreed", mixing)
        if roll.ranks("agreed", mixing) >= live and self._rank not in roll.ranks("known", mixing):
            if on_agreed is not None:
                on_agreed()
            self._rendezvous.reach("known", mixing)
        return roll.ranks("known", mixing) >= live or len(live) == 1

    def meet(self, timeout: float, act: Callable[[], None]) -> bool:
        """Wait until all peers are here, act, and wait until all have acted; return whether all came in time."""
        meeting = self._next()
        met = self._rendezvous.wait_for_all("mixing", meeting, timeout)
        if met:
            act()
            self._rendezvous.wait_for_all("agreed", meeting, timeout)
        else:
            self._warn(f"not all peers came within {timeout:g} s")
        return met

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
