"""Asynchronous pairwise averaging: half for half, and no peer waits.

Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent", 2017, arXiv:1710.06952.
After each step a peer pushes half of its mass to its neighbour of the turn. The neighbour finishes its next step and
answers with half of the mass that it had before it merged the push. With equal weights both then hold exactly the mean
of the two. If the answer is lost or late, this is still correct PushSum: no locks, no bipartite graph, no deadlock.
Decision 6 says why peers do not send differences. If several neighbours have pushed, the pairs are averaged one after
the other, and answers that arrived are merged before the first pair. If an edge goes both ways in a turn, one of the
two peers is drawn to begin. So a pair exchanges once, and each sends one model.

In the first ``warmup`` steps both peers of a pair wait for each other, up to the deadline: this is synchronous
averaging of pairs. A stale gradient does most harm while the model is new and the learning rate high (decision 30).

Use it when peers differ in speed: every peer runs at its own pace. A topology of pairs (random-matching,
one-peer-hypercube) costs half as much as one with directed edges, on which a peer begins and answers in every turn.
"""

from __future__ import annotations

from gossip.policies.policy import Policy, momentum_option, variance_option, warmup_option

__all__ = ["ADPSGD"]


class ADPSGD(Policy):
    """Pairwise averaging, asynchronous."""

    name = "adpsgd"
    pairwise = True

    def __init__(self, *, warmup: int = 0, momentum: str = "own", variance: str = "swarm") -> None:
        self.warmup = warmup_option(self.name, warmup)
        self.momentum = momentum_option(self.name, momentum)
        self.variance = variance_option(self.name, variance)
