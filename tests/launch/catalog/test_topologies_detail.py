"""``gossip topologies NAME``: the edges, parameters and findings of one topology."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Capture, said

import topologies
from launch.catalog.edge_list import fraction_text, links_at, shown_steps
from topologies import Schedule


def fact(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"{label} ")).removeprefix(label).strip()


@pytest.fixture
def lopsided(tmp_path: Path) -> str:
    """Return a graph file in which 0 and 1 exchange unequal fractions and 2 hears from nobody but 1."""
    path = tmp_path / "lopsided.edges"
    path.write_text("0 0 0.75\n0 1 0.25\n1 0 0.5\n1 2 0.5\n2 2 0.5\n2 0 0.5\n")
    return str(path)


def test_what_base_of_six_is(capsys: Capture) -> None:
    text = said(capsys, "topologies", "base", "-n", "6")
    topology = topologies.describe("base")
    assert text.startswith("base of 6 peers\n")
    assert fact(text, "summary") == topology.summary
    assert fact(text, "paper") == topology.paper
    assert fact(text, "parameters") == "k = 1  (an integer; the default)"
    assert fact(text, "repeats") == "after 4 steps"
    assert fact(text, "exact") == "after 4 steps all hold the exact average"
    assert fact(text, "weights").startswith("not needed")
    assert fact(text, "step 0:") == "0.5  0<->1  3<->4"
    assert fact(text, "step 1:") == "2/3  0<->2  3<->5"
    assert "step 4:" not in text


def test_parameters_in_force_and_their_defaults(capsys: Capture) -> None:
    text = said(capsys, "topologies", "hierarchical:groups=4+2,between=ring", "-n", "6", "--seed", "5")
    assert "groups = 4+2  (an integer or a list like 4+4+8 or none; the default is none)" in text
    assert "hosts = none  (a list like 4+4+8 or none; the default)" in text
    assert "between = ring  (a word; the default is base)" in text
    assert "seed = 5  (an integer; the default is 0)" in text


def test_one_that_is_never_exact_and_never_repeats(capsys: Capture) -> None:
    text = said(capsys, "topologies", "equidyn", "-n", "5")
    a = topologies.analyse(topologies.get("equidyn", 5))
    assert fact(text, "repeats") == "never"
    assert fact(text, "exact") == (
        f"never, only ever closer: in the long run {a.rate:.4g} of the disagreement is left per step"
    )
    assert fact(text, "mixing") == (
        f"the disagreement is below 1e-3 after {a.steps_to_1e3} steps, below 1e-9 after {a.steps_to_1e9} steps"
    )
    assert "(the first 6 steps; they never repeat)" in text
    assert text.endswith("More steps: --steps K\n")


def test_what_was_not_reached_is_said_so(capsys: Capture) -> None:
    text = said(capsys, "topologies", "bidirectional-ring", "-n", "256")
    reached = topologies.analyse(topologies.get("bidirectional-ring", 256)).steps_to_1e3
    assert fact(text, "mixing") == (
        f"the disagreement is below 1e-3 after {reached} steps, not below 1e-9 within 50000 steps"
    )


def test_steps_chooses_how_many(capsys: Capture) -> None:
    text = said(capsys, "topologies", "equidyn", "-n", "5", "--steps", "9")
    assert re.findall(r"^step \d+:", text, re.MULTILINE) == [f"step {i}:" for i in range(9)]
    assert "--steps K" not in text


def test_too_many_links_are_cut_and_counted(capsys: Capture) -> None:
    text = said(capsys, "topologies", "complete", "-n", "16")  # 120 links
    assert len(re.findall(r"\d<->\d", text)) == 100
    assert "20 links are left out here; --json lists all." in text


def test_idle_steps_are_said_to_be_idle(capsys: Capture) -> None:
    assert "step 0:  -  all are idle" in said(capsys, "topologies", "ring", "-n", "1")


def test_the_users_own_graph_needs_no_n(capsys: Capture, lopsided: str) -> None:
    text = said(capsys, "topologies", f"@{lopsided}")
    assert text.startswith(f"{lopsided} of 3 peers\n")
    assert fact(text, "summary") == "your own graph"
    assert fact(text, "links") == "directed"
    assert fact(text, "weights").startswith("needed")
    assert fact(text, "step 0:") == "0.5   1->0  1->2  2->0"
    assert "0.25  0->1" in text
    assert said(capsys, "topologies", f"@{lopsided}", "-n", "3") == text


def test_a_graph_in_pieces_is_said_to_be(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "pieces.edges"
    path.write_text("0 1\n1 0\n2 3\n3 2\n")
    assert fact(said(capsys, "topologies", f"@{path}"), "connected").startswith("NO")
    assert "connected" not in said(capsys, "topologies", "ring", "-n", "4")


@pytest.mark.parametrize("name", ["base:k=2", "epidemic:s=2", "ring", "hierarchical"])
def test_json_has_every_edge(capsys: Capture, name: str) -> None:
    found: dict[str, Any] = json.loads(said(capsys, "topologies", name, "-n", "9", "--seed", "3", "--json"))
    schedule = topologies.parse(name, 9, seed=3)
    topology = topologies.describe(schedule.name)
    assert found["name"] == topology.name
    assert found["summary"] == topology.summary
    assert found["analysis"] == dataclasses.asdict(topologies.analyse(schedule))
    assert {p["name"]: p["value"] for p in found["parameters"]} == dict(schedule.parameters)
    assert {p["name"]: p["default"] for p in found["parameters"]} == {
        p.name: p.default for p in topology.parameters.values()
    }
    assert len(found["steps"]) == (schedule.period or 6)
    for step, edges in enumerate(found["steps"]):
        assert edges == [[u, v, f] for u in range(9) for v, f in schedule.out_edges(u, step)]


def test_json_of_the_users_own_graph(capsys: Capture, lopsided: str) -> None:
    found = json.loads(said(capsys, "topologies", f"@{lopsided}", "--json", "--steps", "2"))
    assert found["n"] == 3
    assert found["parameters"] == []
    assert found["directed"] is True
    assert found["steps"] == [[[0, 1, 0.25], [1, 0, 0.5], [1, 2, 0.5], [2, 0, 0.5]]] * 2


def test_json_has_null_where_a_rate_is_not_finite(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    real = topologies.analyse
    monkeypatch.setattr(topologies, "analyse", lambda s: dataclasses.replace(real(s), rate=float("nan")))
    assert json.loads(said(capsys, "topologies", "ring", "-n", "4", "--json"))["analysis"]["rate"] is None


@pytest.mark.parametrize("name", topologies.names())
def test_links_are_the_edges_with_exchanges_counted_once(name: str) -> None:
    schedule = topologies.get(name, 16)
    for step in range(3):
        unfolded = []
        for link in links_at(schedule, step):
            unfolded.append((link.tail, link.head, link.fraction))
            if link.both:
                assert link.tail < link.head
                unfolded.append((link.head, link.tail, link.fraction))
        edges = [(u, v, f) for u in range(16) for v, f in schedule.out_edges(u, step)]
        assert [edge[:2] for edge in sorted(unfolded)] == [edge[:2] for edge in edges]
        assert [edge[2] for edge in sorted(unfolded)] == pytest.approx([edge[2] for edge in edges])


def test_a_long_period_shows_its_beginning() -> None:
    base = topologies.get("base", 33)
    assert shown_steps(base) == (11, "all 11 steps, which then repeat")
    assert shown_steps(base, 3) == (3, "the first 3 steps; they repeat after 11")
    assert shown_steps(base, 1) == (1, "the first step; they repeat after 11")
    assert shown_steps(topologies.get("ring", 4)) == (1, "every step is the same")
    long = Schedule("long", 2, dataclasses.replace(base.plan, period=13))
    assert shown_steps(long) == (6, "the first 6 steps; they repeat after 13")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.5, "0.5"), (1 / 3, "1/3"), (32 / 33, "32/33"), (0.05, "0.05"), (0.123456789, "0.1235"), (1e-9, "1e-09")],
)
def test_fractions_are_written_briefly(fraction: float, text: str) -> None:
    assert fraction_text(fraction) == text
