"""The choice of the method for a policy, and of the replica that it needs; bad combinations are refused here."""

from __future__ import annotations

import torch

from gossip.errors import SettingsError
from gossip.policies import Policy
from peers.methods.global_direction import GlobalDirection
from peers.methods.method import Method, Methods
from peers.methods.momentum_buffers import Buffers, MixedMomentum, refuse_momentum, require_momentum, zeros_for
from peers.methods.outer import OuterMomentum
from peers.methods.outer_average import OuterAverage
from peers.methods.quasi_global import QuasiGlobal
from peers.methods.swarm_variance import SwarmVariance, is_adaptive
from peers.model.replica import Replica

__all__ = ["fit"]


def fit(
    policy: Policy,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    shard_bytes: int,
    share: float = 1.0,
    compress: str = "none",
) -> tuple[Replica, Method]:
    """Make a replica of the model, and return it with the method of the policy."""
    if policy.averages_gradients and isinstance(optimizer, torch.optim.LBFGS):
        raise SettingsError(
            f"{type(optimizer).__name__} computes gradients several times in a step, as the loss of each peer decides, "
            "but allreduce averages them once per step: use another optimizer, or another algorithm"
        )
    if policy.momentum != "own":
        require_momentum(policy.momentum, optimizer)
    if policy.correction:
        refuse_momentum(policy.correction, optimizer)
    adapts = policy.variance == "swarm" and is_adaptive(optimizer)
    if policy.momentum == "mixed":
        zeros = zeros_for(model, optimizer)
        also = {f"momentum of {name}": buffer for name, (_, buffer) in zeros.items()}
        replica = Replica(model, shard_bytes, also, share, compress)
        mixing = MixedMomentum(Buffers(optimizer, dict(zeros.values())))
        return replica, Methods(mixing, SwarmVariance(optimizer, mixed=True)) if adapts else mixing
    replica = Replica(model, shard_bytes, share=share, compress=compress)
    if policy.momentum == "quasi-global":
        return replica, QuasiGlobal(replica, optimizer)
    if policy.outer is not None and policy.collective:
        return replica, OuterAverage(policy.outer, model, optimizer)
    if policy.outer is not None:
        return replica, OuterMomentum(policy.outer, replica, optimizer)
    if policy.blend and policy.every > 1:
        return replica, GlobalDirection(policy.blend, replica, optimizer)
    if adapts:
        return replica, SwarmVariance(optimizer)
    return replica, Method()
