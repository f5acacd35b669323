"""The prediction for one split: a grid and the kind of parallelism inside its crews."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gossip.costs.exchange_across import Across, Crossing, crossing
from gossip.costs.inner_kinds import KINDS, PAPER_KINDS, VALUE, InnerCost, inner_costs, misfit
from gossip.costs.layers import Layer
from gossip.costs.machine import LinkSpeed, Machine, Pace
from gossip.costs.volumes import NOTHING, Volume, all_gather
from gossip.errors import SettingsError
from gossip.grids import Grid
from topologies.schedule import Schedule

__all__ = ["Job", "LayerPrediction", "MemoryNeed", "Prediction", "predict"]


@dataclass(frozen=True)
class Job:
    """What is to be trained: a model, the samples of a step of all replicas, and how replicas exchange."""

    layers: tuple[Layer, ...]
    batch: int
    pace: Pace
    across: Across = field(default_factory=Across)
    #: Values that the optimizer keeps for each weight: 0 for SGD, 1 with momentum, 2 for Adam.
    states: int = 1
    #: The library inside crews: on gloo a reduce-scatter costs as much as an all-reduce.
    backend: str = "gloo"

    def __post_init__(self) -> None:
        if not self.layers:
            raise SettingsError(f"layers must not be empty: {self.layers}")
        if self.batch < 1:
            raise SettingsError(f"batch must be 1 or more samples, not {self.batch}")
        if self.states < 0:
            raise SettingsError(f"states must be 0 or more values for each weight, not {self.states}")
        if self.backend not in ("gloo", "nccl"):
            raise SettingsError(f"backend must be gloo or nccl, not {self.backend!r}")

    @property
    def weights(self) -> int:
        """The weights of a replica."""
        return sum(layer.weights for layer in self.layers)


@dataclass(frozen=True)
class LayerPrediction:
    """What a layer costs each process in a step."""

    name: str
    kind: str
    role: str
    inner: Volume
    #: Gathering, after the exchange, what every row holds and one row exchanged.
    gathering: Volume
    across: Volume
    #: Without the latency of what travels together with other layers: the gathering and the exchange across.
    inner_seconds: float
    across_seconds: float


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of a process. What torch and Python take themselves is not counted."""

    parameters: float
    gradients: float
    optimizer: float
    #: What the exchange across holds: a part sent and not yet answered, and one received and not yet merged.
    exchange: float
    #: What FSDP gathers for a layer: its weights and their gradient.
    gathered: float
    #: Outputs that are kept for the backward pass: an estimate.
    activations: float

    @property
    def total(self) -> float:
        """The sum of all."""
        parts = (self.parameters, self.gradients, self.optimizer, self.exchange, self.gathered, self.activations)
        return sum(parts)


@dataclass(frozen=True)
class Prediction:
    """What a split costs each process in a step, or why it cannot be had."""

    grid: Grid
    kind: str
    #: Why the split is ruled out; empty if it is not.
    reason: str = ""
    layers: tuple[LayerPrediction, ...] = ()
    computing: float = 0.0
    #: Seconds of traffic inside the crew, gathering included.
    inner: float = 0.0
    #: Seconds of traffic between replicas.
    across: float = 0.0
    step: float = 0.0
    memory: MemoryNeed | None = None

    @property
    def fits(self) -> bool:
        """Whether the split can be had."""
        return not self.reason

    @property
    def communication(self) -> float:
        """Seconds of all traffic, whether computing hides it or not."""
        return self.inner + self.across

    @property
    def exposed(self) -> float:
        """Seconds of traffic between replicas that a step waits for."""
        return max(0.0, self.step - self.inner - self.computing)

    @property
    def inner_volume(self) -> Volume:
        """What a process sends inside its crew."""
        return sum((layer.inner for layer in self.layers), _together([layer.gathering for layer in self.layers]))

    @property
    def across_volume(self) -> Volume:
        """What a process sends to other replicas."""
        return _together([layer.across for layer in self.layers])

    def __str__(self) -> str:
        return f"{self.grid} {self.kind}"


def predict(
    job: Job,
    machine: Machine,
    grid: Grid,
    kind: str,
    *,
    schedule: Callable[[int], Schedule] | None = None,
    memory: float | None = None,
    spanning: bool = False,
) -> Prediction:
    """Predict one split.

    Args:
        job: what is to be trained.
        machine: where.
        grid: rows and replicas; as many processes as the machine has slots.
        kind: the kind inside crews, of `KINDS` or `PAPER_KINDS`; for a crew of one "data".
        schedule: returns the schedule of this many replicas, if they gossip.
        memory: the bytes that a process may take.
        spanning: whether crews may be spread over several hosts.
    """
    if kind not in (*KINDS, *PAPER_KINDS):
        raise SettingsError(f"kind must be one of {', '.join((*KINDS, *PAPER_KINDS))}, not {kind!r}")
    if grid.size != machine.processes:
        raise SettingsError(f"grid {grid} has {grid.size} processes, but the hosts have {machine.processes} slots")
    if (kind == "data") != (grid.rows == 1):
        raise SettingsError(
            f"kind {kind} does not suit the grid {grid}: data is the kind of a crew of one, and only it"
        )
    if job.across.gossips and grid.replicas > 1 and schedule is None:
        raise SettingsError(f"schedule is needed to predict the gossip of {grid.replicas} replicas")
    samples = job.batch / grid.replicas
    leaving = machine.spanning(grid)
    reason = misfit(kind, job.layers, grid.rows, samples)
    if leaving and not spanning:
        reason = _uneven(machine, grid)
    if reason:
        return Prediction(grid, kind, reason)
    costs = inner_costs(kind, job.layers, grid.rows, samples, job.backend)
    edges = schedule(grid.replicas) if schedule and job.across.gossips and grid.replicas > 1 else None
    crossed = crossing(machine, grid, job.across, edges)
    # A ring over several hosts leaves each of them once, so a crew puts the volume of one process on the host's link.
    link = LinkSpeed(machine.between.rate / leaving, machine.between.latency) if leaving else machine.inside
    layers = tuple(
        _layer(layer, cost, job.across, machine, grid, link, crossed)
        for layer, cost in zip(job.layers, costs, strict=True)
    )
    computing = _computing(job, costs, samples)
    gathered = _together([layer.gathering for layer in layers])
    inner = sum(layer.inner_seconds for layer in layers) + link.latency * gathered.messages
    across = sum(layer.across_seconds for layer in layers) + _latency(machine, crossed, job.across, grid)
    # What overlaps with computing does not overlap with other traffic on the same link.
    step = inner + max(computing, across) if leaving else max(inner + computing, across)
    need = _memory(job, grid, kind, costs, samples)
    if memory is not None and need.total > memory:
        reason = f"needs {need.total / 2**20:.0f} MiB per process; {memory / 2**20:.0f} MiB are allowed"
    return Prediction(
        grid,
        kind,
        reason,
        layers,
        computing,
        inner,
        across,
        step if job.across.overlaps else inner + computing + across,
        need,
    )


def _together(volumes: Sequence[Volume]) -> Volume:
    """Return the volume of layers that travel together, as one vector: they share their messages."""
    return Volume(max(volume.messages for volume in volumes), sum(volume.size for volume in volumes))


def _layer(
    layer: Layer,
    cost: InnerCost,
    across: Across,
    machine: Machine,
    grid: Grid,
    link: LinkSpeed,
    crossed: Crossing,
) -> LayerPrediction:
    size = layer.weights * VALUE
    # A crew shares its slices after every step, with other replicas or without.
    gathers = across.gossips and grid.rows > 1 and cost.is_replicated
    gathering = all_gather(grid.rows, size) * min(1.0, across.frequency) if gathers else NOTHING
    sent = across.volume(grid, size)
    seconds = max(
        sent.size * crossed.inside / machine.inside.rate if grid.replicas > 1 else 0.0,
        sent.size * crossed.between / machine.between.rate,
    )
    return LayerPrediction(
        layer.name,
        layer.kind,
        cost.role,
        cost.volume,
        gathering,
        Volume(sent.messages, sent.size * crossed.sent),
        link.seconds(cost.volume) + gathering.size / link.rate,
        seconds,
    )


def _latency(machine: Machine, crossed: Crossing, across: Across, grid: Grid) -> float:
    """Return the latency of an exchange. All layers of a row travel together, in gossip and in an all-reduce."""
    link = machine.between if crossed.between else machine.inside
    return link.latency * across.volume(grid, 1.0).messages * across.frequency


def _computing(job: Job, costs: Sequence[InnerCost], samples: float) -> float:
    work = sum(layer.work for layer in job.layers)
    if work:
        part = sum(layer.work * cost.work for layer, cost in zip(job.layers, costs, strict=True)) / work
    else:
        part = sum(cost.work for cost in costs) / len(costs)
    return job.pace.fixed + job.pace.each * samples * part


def _memory(job: Job, grid: Grid, kind: str, costs: Sequence[InnerCost], samples: float) -> MemoryNeed:
    pairs = list(zip(job.layers, costs, strict=True))
    held = sum(layer.weights * cost.held for layer, cost in pairs) * VALUE
    sent = job.across.volume(grid, job.weights * VALUE).size
    parcels = sent * 2 if job.across.gossips else job.across.codec * job.weights * VALUE / grid.rows
    return MemoryNeed(
        parameters=held,
        gradients=held,
        optimizer=held * job.states,
        exchange=parcels if grid.replicas > 1 else 0.0,
        gathered=2 * VALUE * max(layer.weights for layer in job.layers) if kind == "fsdp" else 0.0,
        activations=sum(layer.outputs * cost.kept for layer, cost in pairs) * samples * VALUE,
    )


def _uneven(machine: Machine, grid: Grid) -> str:
    """Return why crews would be spread over hosts."""
    host, slots = next((host, slots) for host, slots in enumerate(machine.hosts) if slots % grid.rows)
    crews = "crews would span hosts" if grid.replicas > 1 else "the crew would span hosts"
    return f"{crews}: host {host} has {slots} slots, which {grid.rows} rows do not divide"
