"""The result of a simulated run."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from gossip.simulation.scenario import Scenario

__all__ = ["Result"]

#: From this disagreement on a run has diverged: peers that only average come nearer to each other.
_DIVERGED = 2.0


@dataclass(frozen=True)
class Result:
    """The figures of a run. Weights are per shard; the average weight of a peer is 1."""

    scenario: Scenario
    #: The weight of all living peers and of all parcels in flight.
    weight_total: float
    #: The weight that was lost with dead peers, minus what was booked afterwards.
    weight_written_off: float
    #: The weight that was minted for joiners and restarted peers, 1 for each.
    weight_minted: float
    #: The weight that two peers hold at once, because one falsely declared the other dead. 0 once they have met.
    weight_contested: float
    #: The largest relative error in the conservation of x and w, after any event.
    mass_error: float
    #: The least and the largest weight that any peer trained with in any shard, after the first 50 steps.
    weight_min: float
    weight_max: float
    #: The spread of the living peers' estimates, relative to the spread at the start.
    disagreement: float
    #: The distance of their mean from the mean at the start, relative to the spread at the start.
    bias: float
    messages: int
    bytes: int
    #: Frames that the living rejected.
    rejected: int
    virtual_seconds: float
    #: min, median and max.
    steps_per_peer: dict[str, float]
    events: int
    wall_seconds: float
    #: Whether some peer was alive at the end.
    alive: bool
    #: Whether at the end the members in every living peer's view were exactly the living peers.
    agreed: bool
    #: A digest of all events: two runs are identical exactly if their digests are equal.
    trace: str
    #: (virtual seconds, disagreement), once per nominal step.
    curve: list[tuple[float, float]]
    #: (virtual seconds, incident).
    incidents: list[tuple[float, str]]

    @property
    def diverged(self) -> bool:
        """Whether the living peers, if there are any, ended farther apart than they began."""
        return self.alive and not self.disagreement < _DIVERGED

    def to_json(self) -> dict[str, Any]:
        """Return the result as the command line prints it."""
        head = {key: getattr(self.scenario, key) for key in ("peers", "steps", "seed", "topology", "algorithm")}
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {
            key: _plain(value) for key, value in own.items() if key not in ("scenario", "alive", "curve", "incidents")
        }
        return {**head, **figures, "diverged": self.diverged}


def _plain(value: Any) -> Any:
    """Replace NaN, which JSON does not have: the disagreement of no peers is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
