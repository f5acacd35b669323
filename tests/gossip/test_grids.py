"""Grids: how they are written, and which process is where."""

from __future__ import annotations

import pytest

from gossip.errors import SettingsError
from gossip.grids import Grid


@pytest.mark.parametrize("text", ["2x4", " 2X4 ", "02x4"])
def test_a_grid_is_read(text: str) -> None:
    grid = Grid.parse(text)
    assert (grid.rows, grid.replicas, grid.size, str(grid)) == (2, 4, 8, "2x4")


@pytest.mark.parametrize("text", ["", "2", "x4", "2x", "2x4x1", "-2x4", "0x4", "2x0", "2 x 4", "٢x4", "9999999x1"])
def test_what_is_no_grid_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a grid: write the rows of a crew, x and the number of replicas"):
        Grid.parse(text)


def test_rows_and_replicas_are_at_least_one() -> None:
    with pytest.raises(SettingsError, match="at least one of its rows and of its replicas, not 0 and 4"):
        Grid(0, 4)
    with pytest.raises(SettingsError, match="not 2 and -1"):
        Grid(2, -1)


def test_the_rows_of_a_crew_have_ranks_that_follow_one_another() -> None:
    grid = Grid(3, 2)
    assert [(grid.replica(rank), grid.row(rank)) for rank in range(6)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    assert [grid.rank(grid.replica(rank), grid.row(rank)) for rank in range(6)] == list(range(6))
    assert [list(grid.crew(replica)) for replica in range(2)] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("rank", [-1, 6])
def test_other_ranks_are_refused(rank: int) -> None:
    for ask in (Grid(3, 2).replica, Grid(3, 2).row):
        with pytest.raises(SettingsError, match=f"rank {rank} is not in the grid 3x2, which has the ranks 0 to 5"):
            ask(rank)


@pytest.mark.parametrize("place", [(2, 0), (0, 3), (-1, 0), (0, -1)])
def test_other_places_are_refused(place: tuple[int, int]) -> None:
    with pytest.raises(SettingsError, match="the grid 3x2 has no replica"):
        Grid(3, 2).rank(*place)


def test_all_grids_of_a_number_of_processes() -> None:
    assert [str(grid) for grid in Grid.all_of(12)] == ["1x12", "2x6", "3x4", "4x3", "6x2", "12x1"]
    assert [str(grid) for grid in Grid.all_of(1)] == ["1x1"]
    with pytest.raises(SettingsError, match="processes must be at least 1, not 0"):
        list(Grid.all_of(0))
