"""Synchronous steps to warm up, then a synchronous step in k, and between them the others' direction beside one's own.

Xu, Dong, Zhao, Xu, Liao, "SSD-SGD: Communication Sparsification for Distributed Deep Learning Training", 2020,
arXiv:2012.05396 (SSD: several steps delay), with push-sum in the place of its server. For the first ``warmup`` steps
this is sgp. Then peers exchange with every k-th step only, and on the k - 1 steps between, which are local, the
optimizer's move u becomes

    (1 - b) u + b d        b = 1/2

where d is the swarm's mean move per step over the last periods: the changes of the mixed z from exchange to exchange,
the last one counting 1/4, those before it 3/4 as much as the next, divided by the steps in between. (The authors' code
divides by a constant that is set by hand; here it follows from the exchanges by itself.) If the rate has changed since,
d is scaled by the ratio.

Why these factors. Let u' be the mean of all peers' u, which changes slowly from one period to the next.

- Over peers the mean of a local move is (1 - b) u' + b d. In a period z then moves by k (p d + (1 - p) u'),
  p = b (k - 1) / k, so d tends to u': factors that add up to 1 leave the length of a step as it is, whatever k. (In the
  paper the server is sent every gradient and overwrites what was done locally, so that its factors, in its code 2 and
  0.5, need not add up. Here the local moves are what is mixed, and other factors would be a learning rate in disguise.)
- What takes replicas apart is u - u', and that is scaled by 1 - b: a half of the drift, a quarter of its square.
- Why several periods. Unless an exchange is with all others, z also changes by as much as the neighbours were
  elsewhere, and repeating that overshoots. It is no move of the swarm: over many exchanges it adds up to no more than
  the disagreement, so in a mean of 4 there is a quarter of it. The price: d is behind u' by 1 / a(1 - p) - 1 periods, a
  being 1/4, 5.4 for k = 4, where the last change alone would be 0.6.

With k = 1, and as long as it warms up, it is sgp to the last bit.

With ``differences=true`` the exchange is that of `choco`, on a fixed symmetric graph, and any codec will do.

Use it where a link carries a model every few steps and peers' data differ, so that `local` drifts apart. In the paper
each exchange is with all. With ``--topology exponential --compress int8`` 8 peers exchange with three others for fewer
bytes than with one in fp32 (docs/results/accuracy.md).
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
            raise SettingsError(f"ssd: k is the number of steps from one exchange to the next, 1 or more, not {k}")
        self.every = k
        self.warmup = warmup_option(self.name, warmup)
        self.differences = differences

    def exchanges(self, step: int) -> bool:
        """Whether the step, counted from 1, ends in an exchange."""
        return step <= self.warmup or super().exchanges(step - self.warmup)

    def step_of(self, turn: int) -> int:
        """Return the step with which so many turns have been taken."""
        return min(turn, self.warmup) + super().step_of(max(0, turn - self.warmup))
