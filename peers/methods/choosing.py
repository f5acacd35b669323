"""The choice of the method for a policy, and of the replica that it needs; bad combinations are refused here."""

from __future__ import annotations

import torch

from gossip.errors import SettingsError
from gossip.policies import Policy
from peers.crew.crew import Crew
from peers.methods.global_direction import GlobalDirection
from peers.methods.inferred_momentum import InferredMomentum, is_inferable
from peers.methods.method import Method, Methods
from peers.methods.momentum_buffers import Buffers, MixedMomentum, refuse_momentum, require_momentum, zeros_for
from peers.methods.outer import OuterMomentum
from peers.methods.outer_average import OuterAverage
from peers.methods.quasi_global import QuasiGlobal
from peers.methods.swarm_variance import SwarmVariance, is_adaptive
from peers.model.replica import Replica

__all__ = ["fit", "suited"]

#: The margin of the swarm's second moment where parameters are stale: the largest stable rate is 0.6 of that in step
#: (decision 30), and rates go by the root.
_STALE = 1 / 0.6**2


def suited(policy: Policy, optimizer: torch.optim.Optimizer) -> Policy:
    """Return the policy as it is for the optimizer."""
    return policy.for_adaptive() if is_adaptive(optimizer) else policy


def fit(
    policy: Policy,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    shard_bytes: int,
    share: float = 1.0,
    compress: str = "none",
    crew: Crew | None = None,
) -> tuple[Replica, Method]:
    """Make a replica of the model, and return it with the method of the policy."""
    if policy.collective and (crew is not None and not crew.alone):
        raise SettingsError(
            f"algorithm={policy.name}: all its processes exchange with each other, and replicas of {crew.rows} "
            "processes only gossip, row by row: use sgp, osgp or another algorithm that gossips"
        )
    if policy.averages_gradients and isinstance(optimizer, torch.optim.LBFGS):
        raise SettingsError(
            f"{type(optimizer).__name__} computes gradients several times in a step, as the loss of each peer decides, "
            "but allreduce averages them once per step: use another optimizer, or another algorithm"
        )
    if policy.momentum in ("mixed", "quasi-global"):
        require_momentum(policy.momentum, optimizer)
    if policy.correction:
        refuse_momentum(policy.correction, optimizer)
    adapts = policy.variance == "swarm" and is_adaptive(optimizer)
    if policy.momentum == "mixed":
        zeros = zeros_for(model, optimizer)
        also = {f"momentum of {name}": buffer for name, (_, buffer) in zeros.items()}
        replica = Replica(model, shard_bytes, also, share, compress, crew)
        mixing = MixedMomentum(Buffers(optimizer, dict(zeros.values())), replica)
        return replica, Methods(mixing, _variance(policy, optimizer)) if adapts else mixing
    replica = Replica(model, shard_bytes, share=share, compress=compress, crew=crew)
    if policy.momentum == "quasi-global":
        return replica, QuasiGlobal(replica, optimizer)
    if policy.outer is not None and policy.collective:
        return replica, OuterAverage(policy.outer, model, optimizer)
    if policy.outer is not None:
        return replica, OuterMomentum(policy.outer, replica, optimizer)
    if policy.blend and policy.every > 1:
        return replica, GlobalDirection(policy.blend, replica, optimizer)
    methods: list[Method] = []
    if _infers(policy, optimizer, compress):
        methods.append(InferredMomentum(replica, optimizer))
    if adapts:
        methods.append(_variance(policy, optimizer))
    return replica, Methods(*methods) if len(methods) > 1 else methods[0] if methods else Method()


def _infers(policy: Policy, optimizer: torch.optim.Optimizer, compress: str) -> bool:
    if policy.momentum == "inferred" and not is_inferable(optimizer):
        raise SettingsError(
            f"momentum=inferred needs Adam or AdamW without amsgrad, but the optimizer is {type(optimizer).__name__}; "
            "use momentum=own"
        )
    return policy.momentum == "inferred" or (
        policy.momentum == "auto" and compress == "none" and is_inferable(optimizer) and policy.variance == "swarm"
    )


def _variance(policy: Policy, optimizer: torch.optim.Optimizer) -> SwarmVariance:
    margin = 1.0 if policy.lag == 0 else _STALE
    return SwarmVariance(optimizer, mixed=policy.momentum == "mixed", margin=margin, in_step=policy.warmup)
