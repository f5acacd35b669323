"""How long a method that need not wait may wait all the same, to stay in step with those who are nearly there.

A gradient that was computed before a neighbour's move arrived is stale. Where machines are equally fast and links are
short, a moment's wait makes it fresh. Where a peer or a link is slow, waiting is in vain. So each neighbour has an
account of waiting time, in step times:

- Each step puts a part of a step time in, up to one whole. Where turns go round several neighbours, each account is
  filled for as many steps before it is used.
- A wait begins if there is as much in it as the neighbour is usually late, and ends when that is used up.
- A wait in vain quarters what is put in from then on, down to a 64th. So does a wait for a neighbour that is usually
  later than 1.5 times what a step puts in: being in step now and then costs as much as any wait, and brings little. A
  wait for any other puts it back to all.

So a swarm of equals stays in step, and comes back into step after a pause, where an exchange takes no longer than what
a step puts in. A neighbour that is slow for good costs a step time at first, and again when so much has been saved
up, at a rate that falls to a 64th: with a part of 0.35, less than 6 parts in 1,000 of the time.
"""

from __future__ import annotations

from gossip.arrivals import Estimate

__all__ = ["Allowance"]

#: The least part of the full rate that is put in, and by what a wait that was too long changes it.
_LEAST = 1 / 64
_TOO_LONG = 0.25
#: How many times later than what a step puts in a neighbour may usually be: steps vary.
_MOST = 1.5


class _Account:
    """Of one neighbour, in step times."""

    def __init__(self) -> None:
        self.credit = 1.0
        #: The part of the full rate that is put in.
        self.rate = 1.0
        self.lateness = Estimate()
        #: When the wait of this step began; None: there is none.
        self.since: float | None = None

    @property
    def slower(self) -> float:
        """The rate after a wait that was too long."""
        return max(_LEAST, self.rate * _TOO_LONG)


class Allowance:
    """The accounts of one peer."""

    def __init__(self, part: float) -> None:
        """Open no account yet.

        Args:
            part: what a step puts into each account, in step times; 0: never wait.
        """
        self._part = part
        self._accounts: dict[int, _Account] = {}

    def step_ended(self) -> None:
        """Put the time of a step into every account; waits that lasted until now are over."""
        for account in self._accounts.values():
            account.since = None
            account.credit = min(1.0, account.credit + self._part * account.rate)

    def wait(self, rank: int, now: float, step_time: float) -> float:
        """Return for how many seconds to wait for a neighbour that is not there yet; 0: not at all."""
        if not self._part:
            return 0.0
        account = self._accounts.setdefault(rank, _Account())
        if account.since is not None:  # for another shard
            return max(0.0, account.since + account.credit * step_time - now)
        if account.credit < min(1.0, account.lateness.mean or 0.0):
            return 0.0
        account.since = now
        return account.credit * step_time

    def arrived(self, rank: int, late: float, now: float, step_time: float) -> None:
        """Take in how many seconds after our own push a neighbour's parcel came; 0 if it was there before."""
        if not self._part or step_time <= 0:
            return
        account = self._accounts.setdefault(rank, _Account())
        account.lateness.add(min(1.0, late / step_time))
        if account.since is not None:
            self._spend(account, (now - account.since) / step_time)
            account.rate = 1.0 if (account.lateness.mean or 0.0) <= _MOST * self._part else account.slower

    def in_vain(self, rank: int) -> None:
        """Take in that a wait ended without the parcel."""
        if (account := self._accounts.get(rank)) is not None and account.since is not None:
            self._spend(account, 1.0)
            account.rate = account.slower
            account.lateness.add(1.0)

    def forget(self, rank: int) -> None:
        """Close the account of a neighbour that died or left."""
        self._accounts.pop(rank, None)

    def _spend(self, account: _Account, steps: float) -> None:
        account.credit = max(0.0, account.credit - steps)
        account.since = None
