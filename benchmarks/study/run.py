"""One run of the study: everything that defines it, and what came out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

__all__ = ["VERSION", "Outcome", "Run"]

#: Goes up when the same run would come out differently: older results in a cache are not used then.
VERSION = 6


@dataclass(frozen=True)
class Run:
    """A swarm that trains in virtual time until it has seen a number of samples."""

    algorithm: str
    topology: str
    peers: int
    #: The learning rate.
    rate: float
    seed: int
    #: Of all peers together.
    samples: int
    task: str = "fashion"
    #: Of one peer.
    batch: int = 16
    #: sgd, adamw or muon; see `benchmarks.study.learner`.
    optimizer: str = "sgd"
    #: Nesterov's, of sgd.
    momentum: float = 0.9
    #: The largest norm of a gradient, which is shortened to it: that of all peers where they average gradients, else
    #: each peer's own; 0: any.
    clip: float = 0.0
    #: How the rate changes: constant, warm-up and then constant, or warm-up and a cosine to a tenth or to 0; see
    #: `benchmarks.study.learner`.
    schedule: str = "constant"
    #: The parameter of the Dirichlet distribution that classes are dealt out by; 0: evenly.
    dirichlet: float = 0.0
    #: Virtual seconds of a step, and the share by which it varies either way.
    step_seconds: float = 0.1
    jitter: float = 0.1
    #: Megabits per second that a machine sends, and as many that it receives; 0: no limit.
    megabits: float = 1000.0
    #: Seconds that a message takes besides, at least and at most.
    delay: tuple[float, float] = (0.001, 0.001)
    loss: float = 0.0
    #: Straggler, as `gossip simulate` takes it; empty: none.
    straggler: str = ""
    #: As `gossip simulate` takes them, several with commas.
    kills: str = ""
    restarts: str = ""
    compress: str = "none"
    share: float = 1.0
    #: The least number of shards that the model is cut into.
    shards: int = 1
    #: How the optimizer's move counts where w is not 1: capped, z-step or textbook; see `benchmarks.study.rules`.
    rule: str = "capped"
    weight_floor: float = 0.3
    weight_cap: float = 3.0
    #: Step times for which a synchronous method waits for a neighbour; see `gossip.settings`.
    patience: float = 2.0

    @property
    def key(self) -> str:
        """What a cache knows the run by."""
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)

    def but(self, **changes: Any) -> Run:
        """Return the same run with something changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Outcome:
    """What came out of a run: accuracies and losses of the average of all living replicas.

    An accuracy is per cent of the task's samples for validation, a loss is their mean cross-entropy.
    """

    accuracy: float
    validation_loss: float
    #: (samples that all peers have seen, virtual seconds, accuracy).
    curve: list[tuple[int, float, float]]
    #: The losses at the points of the curve.
    losses: list[float]
    #: Whether a loss was not finite, or the model ended at the level of chance.
    diverged: bool
    virtual_seconds: float
    #: Steps of the peers that lived to the end: least, most.
    steps: tuple[int, int]
    #: Bytes on the wire, of all peers, overheads included.
    bytes: int
    #: Root mean square distance of a value from the average replica's, relative to the root mean square of the latter.
    disagreement: float
    #: The least and the most weight that any peer trained with.
    weight_min: float
    weight_max: float
    #: The largest relative error of the books of weights.
    book_error: float
    cpu_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it for a cache."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Outcome:
        """Return what `to_json` made of it."""
        found = {field.name: found[field.name] for field in fields(cls)}
        found["curve"] = [(int(samples), seconds, accuracy) for samples, seconds, accuracy in found["curve"]]
        found["steps"] = tuple(found["steps"])
        return cls(**found)
