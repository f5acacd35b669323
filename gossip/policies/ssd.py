"""Synchronous steps to warm up, then every k-th step; local steps blend a peer's own move with the swarm's direction.

Xu, Dong, Zhao, Xu, Liao, "SSD-SGD: Communication Sparsification for Distributed Deep Learning Training", 2020,
arXiv:2012.05396 (SSD: several steps delay), with PushSum instead of its server. For the first ``warmup`` steps this is
sgp. Then peers exchange only after every k-th step. In the k - 1 local steps between, the optimizer's move u becomes

    (1 - b) u + b d        b = 1/2

where d is the swarm's mean move per step over the last periods: an average of the changes of the mixed z from exchange
to exchange, divided by the steps in between. The last change has the weight 1/4, and each earlier one 3/4 of the weight
of the next. (The authors' code divides by a constant that is set by hand.) If the learning rate has changed since, d is
scaled by the ratio.

Why these factors: let u' be the mean of all peers' u, which changes slowly from one period to the next.

- The mean over peers of a local move is (1 - b) u' + b d. In a period z then moves by k (p d + (1 - p) u'),
  p = b (k - 1) / k, so d tends to u'. Factors that add up to 1 do not change the length of a step, for any k. (In the
  paper the server gets every gradient and overwrites the local changes, so its factors, in its code 2 and 0.5, need not
  add up to 1. Here the local moves are mixed, and other factors would act like another learning rate.)
- Replicas drift apart by u - u', and that is scaled by 1 - b: half of the drift, a quarter of its square.
- Why several periods: unless an exchange is with all others, z also changes by the neighbours' deviation, and repeating
  that overshoots. That change is not a move of the swarm: over many exchanges it adds up to no more than the
  disagreement, so a mean of 4 contains a quarter of it. The cost: d lags behind u' by 1 / a(1 - p) - 1 periods, with
  a = 1/4. For k = 4 that is 5.4 periods, where the last change alone would lag by 0.6.

With k = 1, and during the warm-up, it is bit-identical to sgp.

With ``differences=true`` the exchange is that of `choco`, on a fixed symmetric graph, and any codec works.

Use it where a link carries a model every few steps and the peers' data differ, so that `local` drifts apart. In the
paper each exchange is with all peers. With ``--topology exponential --compress int8`` 8 peers exchange with three
others for fewer bytes than with one in fp32 (README, Measured).
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, warmup_option

__all__ = ["SSD"]


class SSD(Policy):
    """PushSum with every step of a ``warmup``, then with every ``k``-th, half the others' direction in between."""

    name = "ssd"
    may_differ = True
    lag = 0
    blend = 0.5

    def __init__(self, *, k: int = 4, warmup: int = 100, differences: bool = False) -> None:
        if k < 1:
            raise SettingsError(f"ssd: k, the steps from one exchange to the next, must be 1 or more, not {k}")
        self.every = k
        self.warmup = warmup_option(self.name, warmup)
        self.differences = differences

    def exchanges(self, step: int) -> bool:
        """Whether the step, counted from 1, ends in an exchange."""
        return step <= self.warmup or super().exchanges(step - self.warmup)

    def step_of(self, turn: int) -> int:
        """Return the step after which this number of turns has been taken."""
        return min(turn, self.warmup) + super().step_of(max(0, turn - self.warmup))
