"""Elastic averaging on a star whose hub was slow and died: leaves that have nothing to give are given something."""

from __future__ import annotations

import pytest

from gossip.faults import parse_incident, parse_straggler
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate


@pytest.mark.parametrize(
    ("peers", "later"),
    [
        (3, {"restarts": (parse_incident("0@20"),)}),
        (3, {"joins": (parse_incident("3@70"),)}),
        (4, {"restarts": (parse_incident("0@20"),)}),
        (4, {}),
    ],
)
def test_leaves_at_their_floor_ask_the_hub_which_never_begins(peers: int, later: dict[str, object]) -> None:
    """While the first hub is slow, the leaves push until they may not push any more; what they gave dies with it."""
    result = simulate(
        Scenario(
            peers=peers,
            steps=400,
            size=40,
            topology="star",
            algorithm="easgd",
            stragglers=(parse_straggler("0=60x@0-1"),),
            kills=(parse_incident("0@1"),),
            **later,  # type: ignore[arg-type]
        )
    )
    assert result.disagreement < 1e-6
    assert result.mass_error < 1e-12


@pytest.mark.parametrize(
    ("peers", "topology", "alpha", "slow"), [(8, "one-peer-exponential", 0.5, "3=3x"), (4, "star", 0.25, "0=10x")]
)
def test_who_is_asked_for_all_it_has_keeps_something(peers: int, topology: str, alpha: float, slow: str) -> None:
    """More ask at once than there are neighbours in a turn, and there is no floor: what rounding took off stays."""
    result = simulate(
        Scenario(
            peers=peers,
            steps=60,
            topology=topology,
            algorithm=f"easgd:alpha={alpha}",
            stragglers=(parse_straggler(slow),),
            joins=(parse_incident(f"{peers}@5"),),
            settings=Settings(compress="int8", weight_floor=0.0),
        )
    )
    assert result.mass_error < 1e-12
    assert result.weight_min > 0
