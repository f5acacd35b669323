"""Every algorithm has the steps that it needs, behind one interface."""

from __future__ import annotations

import pytest
import torch
from swarms import swarm

from gossip import policies
from peers import Peer
from peers.session.consensus import Terms
from peers.steps.allreduce_steps import AllReduceSteps
from peers.steps.gossip_steps import GossipSteps
from peers.steps.outer_steps import OuterSteps
from peers.steps.server_steps import ServerSteps
from peers.steps.steps import Steps

COLLECTIVE: dict[str, type[Steps]] = {"allreduce": AllReduceSteps, "outer": OuterSteps, "parameter-server": ServerSteps}


@pytest.mark.parametrize("algorithm", policies.names())
def test_the_policy_chooses_the_steps(algorithm: str) -> None:
    def body(peer: Peer) -> tuple[type[Steps], bool, float]:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        steps = peer._attached().steps
        steps.pause()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()  # a pause ends with the next step
        return type(steps), steps.own_is_average, steps.consensus(Terms(timeout=1.0))

    kind, own_is_average, disagreement = swarm(1, body, algorithm=algorithm)[0]
    assert kind is COLLECTIVE.get(algorithm, GossipSteps)
    assert own_is_average == (algorithm in COLLECTIVE and algorithm != "outer"), "outer: replicas differ in between"
    assert disagreement == 0.0
