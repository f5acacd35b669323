"""More of the same: a suite runs a few of many seeds, and `make slow` the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["some"]


def some(values: Sequence[Any], few: int) -> list[Any]:
    """Return the values of a parameter, all but the first few of them marked as slow."""
    rest = [one if isinstance(one, tuple) else (one,) for one in values[few:]]
    return [*values[:few], *(pytest.param(*one, marks=pytest.mark.slow) for one in rest)]
