"""Models over the rows of images: the cases of tests/support/row_cases.py, in 2, 3 and 4 processes over gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
from row_script import PATIENCE, run_rows

#: Only a hang takes this long: other processes may keep all cores busy.
pytestmark = pytest.mark.timeout(PATIENCE + 60)


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_split_model_is_the_plain_one(rows: int, tmp_path: Path) -> None:
    run_rows(rows, tmp_path / "store", "convolutions", "poolings", "models", "traffic", "left_alive")


@pytest.mark.parametrize("rows", [2, 3])
def test_what_would_be_wrong_is_refused_by_all(rows: int, tmp_path: Path) -> None:
    run_rows(
        rows, tmp_path / "store", "refusals", "disagreements", "examples_given", "kinds", "recomputed", "example_net"
    )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 3, 4])
def test_more_windows_of_the_same(rows: int, tmp_path: Path) -> None:
    run_rows(rows, tmp_path / "store", "more_windows")
