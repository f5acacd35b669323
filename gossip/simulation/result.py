"""What came out of a simulated run."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from gossip.simulation.scenario import Scenario

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """The figures of a run; weights are per shard, where a peer's fair part is 1."""

    scenario: Scenario
    #: The weight of all living peers and of all parcels in flight.
    weight_total: float
    #: What was lost with the dead, less what came back from them.
    weight_written_off: float
    #: What was made for joiners and for those who came back, 1 for each.
    weight_minted: float
    #: What two peers hold at once, since one falsely declared the other dead. 0 once they have met.
    weight_contested: float
    #: The largest relative error in the conservation of x and w, after any event.
    mass_error: float
    #: The least and the most weight that any peer trained with in any shard, after the first 50 steps.
    weight_min: float
    weight_max: float
    #: The spread of the living peers' estimates, relative to the spread at the start.
    disagreement: float
    #: How far their mean is from the mean at the start, relative to the spread at the start.
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
    #: Whether in the end all that live held each other, and nobody else, for members.
    agreed: bool
    #: A digest of all that happened: two runs are the same exactly if this is.
    trace: str
    #: (virtual seconds, disagreement), once per nominal step.
    curve: list[tuple[float, float]]
    #: (virtual seconds, what happened).
    incidents: list[tuple[float, str]]

    def to_json(self) -> dict[str, Any]:
        """Return it as the command line prints it."""
        head = {key: getattr(self.scenario, key) for key in ("peers", "steps", "seed", "topology", "algorithm")}
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {key: _plain(value) for key, value in own.items() if key not in ("scenario", "curve", "incidents")}
        return {**head, **figures}


def _plain(value: Any) -> Any:
    """Replace what JSON cannot say: the disagreement of nobody is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
