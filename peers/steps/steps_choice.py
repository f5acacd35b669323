"""Which steps go with an algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gossip.collective.server import CENTRE
from peers.methods.method import Method
from peers.methods.outer_average import CommonMomentum, OuterAverage
from peers.model.gradients import Gradients
from peers.model.replica import Replica
from peers.model.whole_state import WholeState
from peers.session.session import Session
from peers.steps.allreduce_steps import AllReduceSteps
from peers.steps.gossip_steps import GossipSteps
from peers.steps.outer_steps import OuterSteps
from peers.steps.server_steps import ServerSteps
from peers.steps.steps import Steps

__all__ = ["choose_steps"]

#: The name of outer's momentum in the state of a replica.
_MOMENTUM = "outer momentum"


def choose_steps(
    session: Session,
    replica: Replica,
    method: Method,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    also: dict[str, Any],
    *,
    step: int,
    set_step: Callable[[int], None],
    warn: Callable[[str], None],
) -> Steps:
    """Return the steps that the session's policy wants, ready for the first one.

    Args:
        session: gathered.
        replica: the values.
        method: what the algorithm does to the values besides exchanging them.
        model: the model.
        optimizer: its optimizer.
        also: further parts of the training state, by name.
        step: the number of steps that the replica has made.
        set_step: is called with another number of steps, if the replica takes over the state of another peer.
        warn: is called with a sentence that the user should read.
    """
    match session.policy.collective:
        case "server":
            if session.status().me.rank == CENTRE.rank:
                warn(session.policy.warning)
            return ServerSteps(session, model, warn)
        case "reduction" if isinstance(method, OuterAverage):
            state = WholeState(model, optimizer, {**also, _MOMENTUM: CommonMomentum(method)})
            return OuterSteps(session, method, state, step, set_step, warn)
        case "reduction":
            state = WholeState(model, optimizer, also)
            return AllReduceSteps(session, Gradients(model, optimizer), state, step, set_step, warn)
    return GossipSteps(session, replica, method)
