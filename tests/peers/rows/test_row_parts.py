"""Who holds which rows, and which rows of others are needed: against what a dumb loop finds."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch.nn import functional

from gossip.errors import SettingsError
from peers.rows.row_parts import RowsError, Window, even_bounds, overlaps, row_range


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_parts_are_even_and_in_order(rows: int) -> None:
    for height in range(rows, 40):
        parts = [row_range(height, rows, row) for row in range(rows)]
        assert parts[0][0] == 0
        assert parts[-1][1] == height
        assert all(one[1] == other[0] for one, other in pairwise(parts))
        sizes = [last - first for first, last in parts]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1
        assert even_bounds(height, rows) == (0, *(last for _, last in parts))


@pytest.mark.parametrize(
    ("values", "words"),
    [((3, 4, 0), "height=3 for rows=4"), ((9, 2, 2), "row=2 of rows=2"), ((9, 0, 0), "rows=0"), ((9, 2, -1), "row=-1")],
)
def test_parts_that_do_not_exist_are_refused(values: tuple[int, int, int], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        row_range(*values)


WINDOWS = [Window(*values) for values in product([1, 2, 3, 5], [1, 2, 4], [0, 1, 2], [0, 1], [1, 2])]


def test_heights_are_those_of_torch() -> None:
    for window, height in product(WINDOWS, [5, 8, 11]):
        room = height + window.above + window.below
        if room < window.extent:
            continue
        image = functional.pad(torch.zeros(1, 1, height, 1), (0, 0, window.above, window.below))
        weight = torch.zeros(1, 1, window.kernel, 1)
        out = functional.conv2d(image, weight, stride=(window.stride, 1), dilation=(window.dilation, 1))
        assert window.out_height(height) == out.shape[2]


def test_heights_of_poolings_are_those_of_torch() -> None:
    for kernel, stride, padding, height in product([2, 3, 4], [1, 2, 3, 5], [0, 1], range(4, 14)):
        out = functional.max_pool2d(torch.zeros(1, 1, height, 9), kernel, stride, padding, ceil_mode=True)
        assert Window(kernel, stride, padding, padding, 1, ceil=True).out_height(height) == out.shape[2]


@pytest.mark.parametrize("bounds", [(0, 6, 12), (0, 1, 2, 12), (0, 5, 9, 10, 11)])
def test_every_needed_row_is_held_or_comes_from_its_owner(bounds: tuple[int, ...]) -> None:
    rows = len(bounds) - 1
    for window in WINDOWS:
        if window.out_height(bounds[-1]) < rows:
            continue
        out = window.out_bounds(bounds)
        assert out[0] == 0
        assert out[-1] == window.out_height(bounds[-1])
        assert all(low < high for low, high in pairwise(out))
        needed = window.needed(out)
        come = [set(range(*needed[row])) & set(range(bounds[row], bounds[row + 1])) for row in range(rows)]
        for sender, receiver, first, last in overlaps(bounds, needed):
            assert bounds[sender] <= first < last <= bounds[sender + 1]
            assert not come[receiver] & set(range(first, last)), "a row comes twice"
            come[receiver] |= set(range(first, last))
        for row in range(rows):
            touched = {
                place * window.stride - window.above + tap * window.dilation
                for place in range(out[row], out[row + 1])
                for tap in range(window.kernel)
            }
            assert touched & set(range(bounds[-1])) <= come[row]


def test_a_halo_is_half_a_window() -> None:
    bounds = (0, 10, 20, 30)
    for kernel in (1, 3, 5, 7, 11):
        window = Window(kernel, 1, kernel // 2, kernel // 2)
        moved = list(overlaps(bounds, window.needed(window.out_bounds(bounds))))
        assert [last - first for _, _, first, last in moved] == [kernel // 2] * 4 * (kernel > 1)


def test_fewer_output_rows_than_processes_are_refused() -> None:
    with pytest.raises(RowsError, match="its output has 2 rows for 3 processes"):
        Window(3, 4).out_bounds((0, 4, 8, 9))
