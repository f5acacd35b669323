"""What the next step waits for, and how long that is worth it."""

from __future__ import annotations

from collections import deque

from gossip.arrivals import Estimate, Lateness
from gossip.exchange.allowance import Allowance
from gossip.settings import Settings

__all__ = ["Waiting"]

_TURNS_REMEMBERED = 64


class Waiting:
    """The parcels that a peer wants before its next step, and what it has learned about when they come."""

    def __init__(self, shards: int, lag: int | None, every: int = 1, allowance: float = 0.0) -> None:
        """Begin.

        Args:
            shards: how many there are.
            lag: how many turns a neighbour may be behind; None: nobody is waited for.
            every: steps from one turn to the next, over which lateness adds up.
            allowance: what a neighbour that may be behind may cost nevertheless, as a part of the time.
        """
        self._allowance = Allowance(allowance)
        #: What is waited for within the allowance.
        self._brief: set[tuple[int, int]] = set()
        self.lag = lag
        self._every = every
        self._lateness = Lateness()
        self._step_time = Estimate()
        self._step_began: float | None = None
        self._step_ended: float | None = None
        #: Seconds between steps, in all: exchanging, and waiting for others.
        self.waited = 0.0
        #: When each shard's recent turns were pushed.
        self._pushed: list[deque[tuple[int, float]]] = [deque(maxlen=_TURNS_REMEMBERED) for _ in range(shards)]
        #: The latest turn that has arrived from (rank, shard).
        self._latest: dict[tuple[int, int], int] = {}
        #: What is waited for, (rank, shard), since which turn and until when.
        self._until: dict[tuple[int, int], tuple[int, float]] = {}
        #: The ranks that are not waited for, because they are regularly too late.
        self.slow: set[int] = set()
        #: The turn of (rank, shard) that was last wanted and not there.
        self._missed: dict[tuple[int, int], int] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    @property
    def ranks(self) -> set[int]:
        """The ranks that are waited for."""
        return {rank for rank, _ in self._until}

    @property
    def deadline(self) -> float | None:
        """When the first wait is over."""
        return min([until for _, until in self._until.values()], default=None)

    @property
    def step_time(self) -> float | None:
        """How long our own steps compute; None: not known yet."""
        return self._step_time.mean

    def step_began(self, now: float) -> None:
        """Note that the trainer started a step."""
        self._step_began = now
        if self._step_ended is not None:
            self.waited += now - self._step_ended

    def step_ended(self, now: float) -> None:
        """Note that the trainer ended a step: our own pace is the measure of patience."""
        self._step_ended = now
        self._allowance.step_ended()
        if self._step_began is not None:
            self._step_time.add(now - self._step_began)

    def keep_lag(self, lag: int | None) -> None:
        """Let neighbours be ``lag`` turns behind from now on; where nobody is waited for any more, nobody is slow."""
        self.lag = lag
        if lag is None:
            self.slow.clear()

    def pushed(self, shard: int, turn: int, now: float) -> None:
        """Note that a shard's turn was pushed: from now on its neighbours' parcels of it are wanted."""
        self._pushed[shard].append((turn, now))

    def want(self, rank: int, shard: int, turn: int, now: float, settings: Settings) -> None:
        """Wait for a neighbour's parcel of a turn, unless it is there or the neighbour is known to be slow."""
        if self._latest.get((rank, shard), -1) >= turn:
            self.slow.discard(rank)
            return
        longest = self.longest(settings)
        if self._latest.get((rank, shard), -1) < self._missed.get((rank, shard), -1):
            # It never came, neither in time nor late: the sender skips turns, which only a slow one does.
            self._lateness.add(rank, 2 * longest)
        self._missed[rank, shard] = turn
        wait = self._lateness.wait(rank, longest)
        (self.slow.discard if wait > 0 else self.slow.add)(rank)
        if wait > 0:
            self._until[rank, shard] = turn, now + wait

    def want_briefly(self, rank: int, shard: int, turn: int, now: float) -> None:
        """Wait within the allowance for a neighbour's parcel of a turn, unless it is there or an older one is not."""
        typical = self._step_time.mean
        if typical is None or (rank, shard) in self._until or self._latest.get((rank, shard), -1) >= turn:
            return
        if (wait := self._allowance.wait(rank, now, typical)) > 0:
            self._until[rank, shard] = turn, now + wait
            self._brief.add((rank, shard))

    def longest(self, settings: Settings) -> float:
        """Return for how many seconds a turn waits at most."""
        typical = self._step_time.mean
        if typical is None:
            return settings.wait_ceiling
        return min(settings.wait_ceiling, max(settings.wait_floor, settings.patience * typical * self._every))

    def excuse(self, rank: int, shard: int, turn: int) -> None:
        """Wait for nothing of a turn from a neighbour that we have left out ourselves."""
        self._latest[rank, shard] = max(turn, self._latest.get((rank, shard), -1))

    def arrived(self, rank: int, shard: int, turn: int, now: float) -> None:
        """Learn from a parcel how late its sender is, and stop waiting for it."""
        if self.lag is None:
            return  # nobody is ever waited for
        self._latest[rank, shard] = max(turn, self._latest.get((rank, shard), -1))
        self._lateness.add(rank, now - self._wanted_since(shard, turn + self.lag, now))
        if self._step_time.mean is not None:
            self._allowance.arrived(rank, now - self._wanted_since(shard, turn, now), now, self._step_time.mean)
        if self._until.get((rank, shard), (turn + 1,))[0] <= turn:
            del self._until[rank, shard]
            self._brief.discard((rank, shard))

    def _wanted_since(self, shard: int, turn: int, now: float) -> float:
        """Return when the turn was pushed, or skipped; now if it has not been."""
        since = now
        for pushed, at in reversed(self._pushed[shard]):
            if pushed < turn:
                break
            since = at
        return since

    def expire(self, now: float) -> None:
        """Give up what is overdue."""
        for key in [key for key, (_, until) in self._until.items() if until <= now]:
            del self._until[key]
            if key in self._brief:
                self._brief.discard(key)
                self._allowance.in_vain(key[0])

    def forget(self, rank: int) -> None:
        """Stop waiting for a peer that died or left, and unlearn its ways."""
        self._lateness.forget(rank)
        self._allowance.forget(rank)
        self.slow.discard(rank)
        for key in [key for key in self._until if key[0] == rank]:
            del self._until[key]
            self._brief.discard(key)
        for table in (self._latest, self._missed):
            for key in [key for key in table if key[0] == rank]:
                del table[key]
