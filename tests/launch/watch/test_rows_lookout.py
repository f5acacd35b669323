"""`gossip status --rows` and `gossip watch --rows`: every row of a grid, each through a member of its own swarm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Capture, failure, said
from test_watch import Shower, drawn, member, run_watch

from launch import cli
from launch.watch.invitation import WATCH, Invitation, write_invitation
from launch.watch.watching import NOBODY, SOME_TROUBLED

ROWS, REPLICAS = 2, 2


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[tuple[list[Shower], Path]]:
    """The processes of a grid of 2x2, by rank, and the run directory that lists them."""
    many = [Shower() for _ in range(ROWS * REPLICAS)]
    for rank, one in enumerate(many):
        replica, row = divmod(rank, ROWS)
        places = [many[other * ROWS + row].place for other in range(REPLICAS)]
        members = [member(other, endpoint=place, step=100 + row) for other, place in enumerate(places)]
        picture = drawn(*members, shown_by=replica)
        picture["setup"]["run"] = f"mine/{ROWS}x/{row}"
        one.picture = picture
    write_invitation(tmp_path / WATCH, Invitation({one.place: "" for one in many}))
    try:
        yield many, tmp_path
    finally:
        for one in many:
            one.close()


def test_a_line_for_each_replica_and_with_rows_for_each_row(grid: tuple[list[Shower], Path], capsys: Capture) -> None:
    many, directory = grid
    short = said(capsys, "status", str(directory)).splitlines()
    assert short[0].startswith("mine, row 0 of 2 in each replica: 2 alive; step 100; ")
    assert len(short) == 2 + REPLICAS
    told = said(capsys, "status", "--rows", str(directory)).splitlines()
    assert len(told) == ROWS * len(short)
    heads = [line for line in told if line.startswith("mine, ")]
    assert [head.partition(":")[0] for head in heads] == [f"mine, row {row} of 2 in each replica" for row in range(2)]
    assert heads[1].endswith(f"by replica 0 at {many[1].place}")
    assert "step 101" in heads[1]


def test_json_is_a_list_of_the_rows(grid: tuple[list[Shower], Path], capsys: Capture) -> None:
    found = json.loads(said(capsys, "status", "--rows", "--json", str(grid[1])))
    assert [one["run"] for one in found] == ["mine/2x/0", "mine/2x/1"]
    assert [[one["step"] for one in row["members"]] for row in found] == [[100, 100], [101, 101]]


def test_trouble_in_any_row_shows_in_the_exit_code(grid: tuple[list[Shower], Path], capsys: Capture) -> None:
    many, directory = grid
    many[1].picture["members"][1]["membership"] = "suspect"  # type: ignore[index,call-overload]
    assert cli.main(["status", str(directory)]) == 0
    assert cli.main(["status", "--rows", str(directory)]) == SOME_TROUBLED
    assert "suspect" in capsys.readouterr().out


def test_the_second_member_of_a_row_is_asked_when_the_first_is_gone(
    grid: tuple[list[Shower], Path], capsys: Capture
) -> None:
    many, directory = grid
    many[1].close()
    told = said(capsys, "status", "--rows", str(directory))
    assert f"by replica 1 at {many[3].place}" in told
    many[3].close()
    assert cli.main(["status", "--rows", str(directory)]) == NOBODY
    assert "no peer of row 1 answered, among the 4 that are known here" in capsys.readouterr().err


def test_a_run_without_a_grid_has_no_rows(tmp_path: Path, capsys: Capture) -> None:
    one = Shower()
    try:
        one.picture = drawn(member(0, endpoint=one.place))
        write_invitation(tmp_path / WATCH, Invitation({one.place: ""}))
        assert "the run test has no grid: leave --rows out" in failure(capsys, "status", "--rows", str(tmp_path))
    finally:
        one.close()


def test_watching_tells_of_changes_in_each_row(grid: tuple[list[Shower], Path]) -> None:
    many, _ = grid

    def slows() -> None:
        many[1].picture["members"][1]["membership"] = "slow"  # type: ignore[index,call-overload]

    def end() -> None:
        for one in many:
            one.close()

    code, out = run_watch(Invitation({one.place: "" for one in many}), slows, end, rows=True)
    assert code == NOBODY
    assert out.count("replica 1: alive, training") == 2, "of both rows"
    assert out.count("replica 1: slow, training") == 1
    assert out.count("mine, row 0 of 2 in each replica: ") == out.count("mine, row 1 of 2 in each replica: ") == 2
