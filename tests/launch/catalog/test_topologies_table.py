"""``gossip topologies``: every figure in the table and in the JSON is the one that `analyse` gives."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import threading
from typing import Any

import pytest
from commands import Capture, said

import topologies
from launch import cli, terminal
from launch.catalog.topologies_table import steps_text
from topologies import Analysis, TopologyError


def line_of(table: str, name: str) -> list[str]:
    lines = [line.split() for line in table.splitlines() if line.startswith(f"{name} ")]
    assert len(lines) == 1, f"{name} stands in the table once"
    return lines[0]


def figures(name: str, n: int) -> list[str]:
    """Return the row's cells as they must read."""
    topology = topologies.describe(name)
    try:
        a = topologies.analyse(topologies.get(name, n))
    except TopologyError as error:
        return str(error).split(". ")[0].split()
    reached = [f">{a.max_steps}" if s is None else str(s) for s in (a.steps_to_1e3, a.steps_to_1e9)]
    exact = "-" if a.exact_after is None else str(a.exact_after)
    star = ["*"] if "seed" in topology.parameters else []
    directed = "yes" if topology.directed else "no"
    return [name, *star, directed, str(a.degree), f"{a.traffic:.2f}", exact, *reached]


@pytest.mark.parametrize("n", [1, 2, 32, 33])
def test_the_table_has_every_topology_with_its_figures(capsys: Capture, n: int) -> None:
    table = said(capsys, "topologies", "-n", str(n))
    for name in topologies.names():
        line = line_of(table, name)
        topology = topologies.describe(name)
        expected = figures(name, n)
        assert line[: len(expected)] == expected
        assert " ".join(line).endswith(" ".join([topology.sizes, topology.paper]).strip())


def test_the_default_is_32_peers(capsys: Capture) -> None:
    assert said(capsys, "topologies").startswith(f"{len(topologies.names())} topologies for 32 peers\n")


def test_what_does_not_exist_for_n_says_which_n_do(capsys: Capture) -> None:
    line = " ".join(line_of(said(capsys, "topologies", "-n", "33"), "hypercube"))
    assert line.startswith("hypercube needs a power of two, not n = 33; the nearest supported sizes: n = 32 and 64")


def test_random_ones_are_marked_and_depend_on_the_seed(capsys: Capture) -> None:
    first, other = said(capsys, "topologies", "-n", "9"), said(capsys, "topologies", "-n", "9", "--seed", "7")
    assert "* random: the figures are those of --seed 7." in other
    assert line_of(first, "epidemic")[1] == "*"
    assert line_of(first, "base") == line_of(other, "base")
    assert line_of(first, "epidemic") != line_of(other, "epidemic")


def test_what_is_piped_is_wide_and_plain(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = said(capsys, "topologies", "-n", "33")
    assert "\x1b" not in out
    assert "…" not in out
    assert out.count("topology  ") == 1, "one table, not the two of a narrow terminal"


class Terminal(io.StringIO):
    """A screen that one can wait for something to appear on."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def until(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), timeout=30), f"{text!r} never appeared"


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, *argv: str) -> list[str]:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "25")  # without both, rich takes a dumb terminal for one of 80 columns
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", screen)
    assert cli.main(["topologies", *argv]) == 0
    return screen.getvalue().splitlines()


def test_eighty_columns_hold_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(monkeypatch, 80, "-n", "33")
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "…" not in text
    rows = [line.split() for line in lines if line.startswith("base ")]
    assert rows == [figures("base", 33), ["base", "any", *topologies.describe("base").paper.split()]]
    assert "n = 32 and 64" in text


def test_a_wide_terminal_gets_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(monkeypatch, 220, "-n", "33")
    assert sum(line.startswith("topology ") for line in lines) == 1


@pytest.mark.parametrize("n", [1, 2, 32, 33])
def test_json_has_all_that_is_known(capsys: Capture, n: int) -> None:
    rows: list[dict[str, Any]] = json.loads(said(capsys, "topologies", "-n", str(n), "--json"))
    assert [row["name"] for row in rows] == topologies.names()
    for row in rows:
        topology = topologies.describe(row["name"])
        expected: dict[str, Any] = {
            "name": topology.name,
            "n": n,
            "summary": topology.summary,
            "directed": topology.directed,
            "random": topology.random,
            "sizes": topology.sizes,
            "paper": topology.paper,
            "parameters": [
                {"name": p.name, "type": p.expected, "default": p.default} for p in topology.parameters.values()
            ],
        }
        try:
            expected |= dataclasses.asdict(topologies.analyse(topologies.get(topology.name, n)))
        except TopologyError as error:
            expected["error"] = str(error)
        assert row == expected
    assert any("error" in row for row in rows) == (n == 33)


def analysis(**changes: Any) -> Analysis:
    return dataclasses.replace(topologies.analyse(topologies.get("ring", 4)), **changes)


def test_steps_that_were_not_reached_and_estimates() -> None:
    assert steps_text(None, analysis(max_steps=50_000)) == ">50000"
    assert steps_text(17, analysis(estimated=True)) == "~17"
    assert steps_text(17, analysis()) == "17"


def test_estimates_are_said_to_be_estimates(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topologies, "names", lambda: ["base", "complete"])
    large, small = said(capsys, "topologies", "-n", "257"), said(capsys, "topologies", "-n", "256")
    assert line_of(large, "complete")[4] == "~1"
    assert "~ an estimate" in large
    assert "~" not in small


def test_progress_shows_on_a_slow_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "_PATIENCE", 600.0)
    assert list(terminal.watched([1, 2], "counting")) == [1, 2]
    assert screen.getvalue() == "", "quick work is not worth a word"
    monkeypatch.setattr(terminal, "_PATIENCE", 0.0)
    items = terminal.watched([1, 2], "counting")
    assert next(items) == 1
    screen.until("0/2")
    assert next(items) == 2
    screen.until("1/2")
    assert next(items, None) is None
    monkeypatch.setattr(sys, "stderr", plain := io.StringIO())
    assert list(terminal.watched([1, 2], "counting")) == [1, 2]
    assert plain.getvalue() == ""
