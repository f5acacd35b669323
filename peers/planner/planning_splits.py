"""``peers.plan``: the best grid for a model on a machine, and what every other split would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

import topologies
from gossip import codecs, policies
from gossip.costs.choosing_splits import SplitChoice, choose, seconds_text
from gossip.costs.exchange_across import Across
from gossip.costs.inner_kinds import KINDS
from gossip.costs.machine import LinkSpeed, Machine, Pace
from gossip.costs.predictions import Job
from gossip.costs.units import parse_flops, parse_latency, parse_rate, parse_size
from gossip.errors import SettingsError
from gossip.policies.policy import Policy
from gossip.settings import ALGORITHM
from peers.planner.measuring import measure_loopback, measure_pace
from peers.planner.model_reading import InputShape, read_layers
from topologies import Schedule, UnsupportedSize

__all__ = ["OPTIMIZERS", "GridPlan", "plan"]

#: Values that an optimizer keeps for each weight.
OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
#: Values of a shard, for the size of what a codec makes of it.
_SHARD = 1 << 18


@dataclass(frozen=True)
class GridPlan:
    """A choice, and where its figures come from."""

    choice: SplitChoice
    shape: InputShape | None
    #: What was assumed, measured or given, in words: a line each.
    sources: tuple[str, ...]


def plan(
    model: nn.Module,
    *,
    batch: int,
    hosts: Sequence[int],
    shape: str | Sequence[int] | None = None,
    inside: str | float = "10Gbit",
    between: str | float = "1Gbit",
    latency: str | float = "1ms",
    inside_latency: str | float = "50us",
    flops: str | float = "100G",
    memory: str | float | None = None,
    optimizer: str = "momentum",
    algorithm: str = ALGORITHM,
    topology: str = "",
    share: float = 1.0,
    compress: str = "none",
    backend: str = "gloo",
    kinds: Sequence[str] = KINDS,
    measure: bool = False,
    spanning: bool = False,
) -> GridPlan:
    """Predict what every split of a model over processes costs, and choose the best.

    Args:
        model: the model that one process would train.
        batch: the samples of a step, of all replicas together.
        hosts: the slots of each host; ``[8]`` is one machine with eight processes.
        shape: of one sample: ``"3x224x224"``, ``"int:128"`` for tokens, or numbers. May be left out where the model
            begins with a linear layer.
        inside: what each process gets towards the others of its host, in bytes per second or as ``"10Gbit"``.
        between: the link of a host, which its processes share.
        latency: of a message between hosts, in seconds or as ``"1ms"``.
        inside_latency: of a message inside a host.
        flops: operations per second of a process, unless ``measure`` is given.
        memory: the bytes that a process may take, or ``"8GiB"``; splits that need more are ruled out.
        optimizer: ``"sgd"``, ``"momentum"`` or ``"adam"``: 0, 1 or 2 values for each weight.
        algorithm: how replicas exchange: a gossip algorithm, or ``"allreduce"``.
        topology: of the replicas; empty: the algorithm's default.
        share: the part of the values that is sent in an exchange.
        compress: the codec.
        backend: inside crews, ``"gloo"`` or ``"nccl"``.
        kinds: the kinds inside crews that come into question.
        measure: measure computing and the loopback on this machine, in place of ``flops``, ``inside`` and
            ``inside_latency``.
        spanning: whether crews may be spread over several hosts.
    """
    sides = InputShape.parse(shape) if isinstance(shape, str) else InputShape(shape) if shape else None
    if batch < 1:
        raise SettingsError(f"batch must be 1 or more samples, not {batch}")
    if optimizer not in OPTIMIZERS:
        raise SettingsError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, not {optimizer!r}")
    layers = read_layers(model, sides)
    work = sum(layer.work for layer in layers)
    near = LinkSpeed(_number(inside, parse_rate), _number(inside_latency, parse_latency))
    far = LinkSpeed(_number(between, parse_rate), _number(latency, parse_latency))
    machine = Machine(tuple(hosts), near, far)
    speed = _number(flops, parse_flops)
    pace, source = Pace.of_flops(work, speed), f"at {speed / 1e9:g} Gflop/s"
    if measure:
        sides = sides or InputShape([layers[0].inputs])
        pace = measure_pace(model, sides, max(1, batch // machine.processes), max(machine.hosts))
        near = measure_loopback(max(machine.hosts))
        machine, source = Machine(machine.hosts, near, far), "measured on this machine"
    policy = policies.parse(algorithm)
    across = _across(policy, share, compress)
    job = Job(layers, batch, pace, across, OPTIMIZERS[optimizer], backend)
    choice = choose(
        job,
        machine,
        kinds=kinds,
        schedule=(lambda n: _schedule(topology, policy, n)) if across.gossips else None,
        memory=None if memory is None else _number(memory, parse_size),
        spanning=spanning,
    )
    return GridPlan(choice, sides, _sources(machine, pace, source, work, algorithm))


def _number(value: str | float, parse: Any) -> float:
    return float(parse(value)) if isinstance(value, str) else float(value)


def _across(policy: Policy, share: float, compress: str) -> Across:
    """Return how replicas exchange under an algorithm."""
    if policy.collective and not policy.averages_gradients:
        raise SettingsError(f"{policy.name} cannot be planned: choose a gossip algorithm, such as osgp, or allreduce")
    if compress == "auto":
        raise SettingsError(f"compress {compress} follows the link in a run; to plan, name a codec, such as int8")
    codec = codecs.parse(compress).size(_SHARD) / (4 * _SHARD)
    if policy.collective:
        return Across(gossips=False, codec=codec, overlaps=False)
    overlaps = policy.lag is None or policy.lag > 0
    return Across(share=share, codec=codec, frequency=policy.rounds / policy.every, overlaps=overlaps)


def _schedule(topology: str, policy: Policy, replicas: int) -> Schedule:
    """Return the schedule of the replicas; where the topology has none for their number, the algorithm's default."""
    try:
        return topologies.parse(topology or policy.default_topology, replicas)
    except UnsupportedSize:
        return topologies.parse(policy.default_topology, replicas)


def _sources(machine: Machine, pace: Pace, source: str, work: float, algorithm: str) -> tuple[str, ...]:
    slots = machine.hosts
    hosts = "1 host" if len(slots) == 1 else f"{len(slots)} hosts"
    links = f"{_link(machine.inside)} for each process inside a host"
    if len(slots) > 1:
        links += f"; {_link(machine.between)} for each host to the others"
    fixed = f" and {seconds_text(pace.fixed)} a step" if pace.fixed else ""
    computing = f"{seconds_text(pace.each)} a sample{fixed} for the whole model ({work:.3g} multiply-adds), {source}"
    return (f"{hosts}, {sum(slots)} processes: {links}", f"computing: {computing}", f"across replicas: {algorithm}")


def _link(link: LinkSpeed) -> str:
    rate = f"{link.rate * 8 / 1e9:.3g} Gbit/s" if link.rate >= 1.25e8 else f"{link.rate * 8 / 1e6:.3g} Mbit/s"
    return f"{rate} and {seconds_text(link.latency)}"
