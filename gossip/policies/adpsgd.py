"""Asynchronous pairwise averaging: half for half, and nobody waits.

Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent", 2017, arXiv:1710.06952.
After each step a peer pushes half of its mass to its neighbour of the turn, and the neighbour, once it has made its
next step, answers with half of its own mass from before it merged that. With equal weights both then hold
exactly the mean of the two. If the answer is lost, or comes late, this is still correct push-sum: no
locks, no bipartite graph, no deadlock. docs/decisions tells why not differences. Where several have pushed, it is one
pair after the other, and what others owe is merged before the first. Where an edge goes both ways in a turn, one of
the two is drawn to begin, so that a pair exchanges once, for one model sent by each.

In the first ``warmup`` steps both ends of a pair wait for each other, within reason: it is synchronous averaging of
pairs. A gradient that is old when it counts does most harm where the model is fresh and the rate high (decision 30).

Use it when peers are unequal: everybody runs at its own speed. A topology of pairs (random-matching,
one-peer-hypercube) costs half of what one with directed edges does, on which a peer begins and answers in every turn.
"""

from __future__ import annotations

from gossip.policies.policy import Policy, momentum_option, warmup_option

__all__ = ["ADPSGD"]


class ADPSGD(Policy):
    """Pairwise averaging, asynchronous."""

    name = "adpsgd"
    pairwise = True

    def __init__(self, *, warmup: int = 0, momentum: str = "own") -> None:
        self.warmup = warmup_option(self.name, warmup)
        self.momentum = momentum_option(self.name, momentum)
