"""An asynchronous parameter server: a reference with a centre.

Rank 0, the lowest rank of the founders, holds the model. After each optimizer step a peer sends the change u_i that the
step made to its model, and continues from the updated model:

    m <- m + u_i        in the order of arrival;        z_i <- m

A peer waits only for the server's answer. n peers make n moves per step time, and each move has a gradient that is up
to about n moves old: the learning rate has to suit that. Each peer has its own optimizer, including its momentum. Dean
et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD); Li et al., "Scaling Distributed Machine Learning
with the Parameter Server", 2014; Ho et al. 2013 on stale moves.

The server trains like the other peers: the same script runs on all ranks, and its own moves need no network. All
traffic goes through its link, 2 models per peer and step. When the server dies, the run ends.

Use it as a reference.
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
        "run ends. No other algorithm here has a centre"
    )

    def exchanges(self, step: int) -> bool:  # noqa: ARG002
        """Return False: no mass moves."""
        return False
