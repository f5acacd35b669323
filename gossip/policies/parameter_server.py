"""An asynchronous parameter server: the contrast that has a centre.

The lowest rank of the founders, rank 0, holds the model. After each optimizer step a peer sends what the step did to
its model, u_i, and goes on from what the model is then:

    m <- m + u_i        in the order in which they come;        z_i <- m

Nobody waits for anybody but for the answer. A move is as old as the steps that others made meanwhile, so n peers make n
moves per step time, each with a gradient that is up to about n moves old: the learning rate has to suit that. Each peer
has its own optimizer, momentum and all. Dean et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD); Li
et al., "Scaling Distributed Machine Learning with the Parameter Server", 2014; Ho et al. 2013 on stale moves.

The centre trains like everybody else: the same script runs on all ranks, and its own moves take no network. All traffic
goes through its link, 2 models per peer and step, and when it dies the run is over.

Use it to compare with.
"""

from __future__ import annotations

from gossip.policies.policy import Policy

__all__ = ["ParameterServerPolicy"]


class ParameterServerPolicy(Policy):
    """Moves go to rank 0, which holds the model: asynchronous, and with a centre."""

    name = "parameter-server"
    collective = "server"
    warning = (
        "parameter-server has a centre: rank 0 holds the model, all traffic goes through its link, and if it dies the "
        "run is over. Every other algorithm here does without"
    )

    def exchanges(self, step: int) -> bool:  # noqa: ARG002
        """Return False: no mass moves."""
        return False
