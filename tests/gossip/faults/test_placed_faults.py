"""Faults of grids: processes by replica and row, replicas that die as a unit, and cuts in the swarm of each row."""

from __future__ import annotations

import pytest

from gossip.errors import SettingsError
from gossip.faults import parse_faults, parse_stragglers
from gossip.grids import Grid, row_of_run, run_of_row

GRID = Grid(2, 4)


def test_a_process_is_named_by_its_rank_or_by_its_replica_and_row() -> None:
    written = parse_faults(["kill:1.1@300", "restart:1.1@2.5s", "pause:2.0@100+0.5s"], 8, grid=GRID)
    assert written == parse_faults(["kill:3@300", "restart:3@2.5s", "pause:4@100+0.5s"], 8, grid=GRID)
    assert [kill.rank for kill in written.kills] == [3]
    assert written.pauses[0].span.value == 0.5, "a time is no process"
    (straggler,) = parse_stragglers(["0.1-1.0,3.1=1.5x@0.5s-2.5s"], 8, GRID)
    assert straggler.ranks == {1, 2, 7}
    assert straggler.factors == (1.5, 1.5)


def test_a_replica_dies_and_returns_as_a_unit() -> None:
    assert parse_faults(["kill:1.0@300", "restart:1.1@400", "kill:1.1@500"], 8, grid=GRID).kills
    assert len(parse_faults(["kill:1.0@300", "kill:1.1@300"], 8, grid=GRID).kills) == 2, "a host dies"
    for faults, complaint in (
        (["restart:1.0@400"], "replica 1 is never killed, so it cannot be restarted; add kill:1.0@100"),
        (["kill:1.0@300", "kill:1.1@400"], "replica 1 is killed before; add a restart:1.0@... in between"),
        (["kill:1.0@300", "restart:0.0@400"], "replica 0 is never killed"),
    ):
        with pytest.raises(SettingsError) as refused:
            parse_faults(faults, 8, grid=GRID)
        assert complaint in str(refused.value)


def test_a_cut_is_one_between_replicas_in_each_row_that_it_concerns() -> None:
    one_row = parse_faults(["cut:0.1|1.1,3.1@5+1s"], 8, grid=GRID)
    assert not one_row.in_row(GRID, 0).cuts
    (cut,) = one_row.in_row(GRID, 1).cuts
    assert (cut.left, cut.right) == ({0}, {1, 3})
    assert cut.separates(3, 0)
    assert not cut.separates(1, 3)
    both = parse_faults(["cut:0-3|4-7@5+1s"], 8, grid=GRID)
    for row in range(2):
        assert [(cut.left, cut.right) for cut in both.in_row(GRID, row).cuts] == [({0, 1}, {2, 3})]
    assert both.in_row(Grid(1, 8), 0) == both, "without crews, ranks are what transports know"


def test_a_cut_between_processes_that_exchange_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"cuts nothing off: with the grid 2x4 .*same row on both sides"):
        parse_faults(["cut:0.0|0.1@5+1s"], 8, grid=GRID)


def test_a_replica_and_row_need_a_grid_that_has_them() -> None:
    with pytest.raises(SettingsError, match="the run has no grid: give a rank, or --grid"):
        parse_faults(["kill:1.0@5"], 8)
    with pytest.raises(SettingsError, match="the grid 2x4 has no replica 4 with row 0"):
        parse_faults(["kill:4.0@5"], 8, grid=GRID)


def test_the_name_of_a_rows_swarm_says_which_row_of_which_run_it_is() -> None:
    assert row_of_run(run_of_row("some/run", 4, 2)) == ("some/run", 4, 2)
    assert row_of_run("run") is None
