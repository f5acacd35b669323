"""Sparse pairs in the simulator, which checks the books after every event: exact in any weather, and they agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from repeats import some
from weather import storm

from gossip.errors import SettingsError
from gossip.faults import parse_cut, parse_incident, parse_pause, parse_straggler
from gossip.membership import MembershipSettings
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate

#: 10 of 100 values at a time, in the default codecs.
TENTH = "topk-pair:share=10%"


def calm(compress: str = TENTH, **more: object) -> Scenario:
    known: dict[str, object] = {"peers": 8, "steps": 120, "algorithm": "adpsgd", "size": 100, **more}
    return Scenario(**known, settings=Settings(compress=compress))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", some(range(4), 2))
def test_mass_is_conserved_in_a_storm(seed: int) -> None:
    """Loss, copies, damage, delay, kills, restarts, joins, pauses, cuts, stragglers: `simulate` raises if it is not."""
    found = storm(seed)
    compress = ("topk-pair:share=40%", "topk-pair:share=100%,told=none", "topk-pair:share=20%,told=int8,values=int4")
    settings = replace(found.settings, compress=compress[seed % 3])
    algorithm = ("adpsgd", "easgd:alpha=0.1")[seed % 2]
    result = simulate(replace(found, topology="one-peer-exponential", algorithm=algorithm, settings=settings))
    assert result.messages > 100
    assert result.mass_error < 1e-12


def test_who_leaves_takes_nothing_along() -> None:
    leaves = tuple(parse_incident(text) for text in ("2@20", "5@30", "6@31"))
    result = simulate(calm(peers=8, steps=80, leaves=leaves, loss=0.1, delay=(0.01, 0.1), shards=2))
    assert result.weight_total == pytest.approx(8)
    assert result.weight_written_off == pytest.approx(0)


def test_who_watch_each_other_come_through_deaths_and_newcomers() -> None:
    result = simulate(
        calm(
            peers=6,
            steps=100,
            watch=MembershipSettings(),
            kills=(parse_incident("1@20"),),
            joins=(parse_incident("6@30"),),
            pauses=(parse_pause("2@25+1s"),),
            loss=0.05,
        )
    )
    assert result.agreed
    assert result.disagreement < 0.2


def test_after_a_cut_both_halves_come_together() -> None:
    result = simulate(calm(peers=4, steps=150, cuts=(parse_cut("0-1|2-3@20+30"),)))
    assert result.weight_contested == pytest.approx(0)
    assert result.disagreement < 0.02


@pytest.mark.parametrize(
    ("algorithm", "topology", "jitter"),
    [
        ("adpsgd", "one-peer-exponential", 0.0),
        ("adpsgd", "random-matching", 0.0),
        ("adpsgd", "exponential", 0.1),
        ("easgd:alpha=0.3", "one-peer-exponential", 0.1),
    ],
)
def test_all_agree_and_go_on_agreeing_better(algorithm: str, topology: str, jitter: float) -> None:
    """Without rounding of what is told there is no floor; in lockstep, too, where offers cross each other."""
    scenario = calm(f"{TENTH},told=none", algorithm=algorithm, topology=topology, jitter=jitter, peers=4, steps=160)
    result = simulate(scenario)
    middle = result.curve[len(result.curve) // 2][1]
    assert result.disagreement < 1e-2
    assert result.disagreement < 0.1 * middle, "it falls by a factor, not by an amount"
    assert (result.weight_min, result.weight_max) == (1.0, 1.0), "weights never move"
    assert result.bias < 1e-3


@pytest.mark.parametrize(("told", "floor"), [("bf16", 2**-8), ("int8", 1 / 127)])
def test_what_rounding_leaves_is_in_proportion_to_the_values(told: str, floor: float) -> None:
    """Values are up to 1, their first spread is 0.58; half a step of the codes, 1/512 or 1/254, is left at most."""
    result = simulate(calm(f"{TENTH},told={told}", peers=4))
    assert result.disagreement < floor


def test_a_straggler_neither_stops_the_others_nor_drags_them_apart() -> None:
    result = simulate(calm(stragglers=(parse_straggler("3=10x"),), steps=150))
    assert result.disagreement < 0.4, "the straggler alone would be 1/sqrt(8) = 0.35 of the first spread off"


def test_the_bytes_are_a_few_percent_of_those_of_whole_shards() -> None:
    """3.02 + 4 bytes for each of 1% of the values, where whole shards have 8 + 8 for all: 1/228, without headers."""
    settings = {"peers": 4, "steps": 30, "size": 50_000}
    whole, some = simulate(calm("none", **settings)), simulate(calm("topk-pair:share=1%", **settings))
    assert some.bytes < whole.bytes / 150


def test_it_is_refused_before_anything_is_simulated() -> None:
    with pytest.raises(SettingsError, match="sgp does not average in pairs; use it with adpsgd or easgd"):
        simulate(calm(algorithm="sgp"))
