"""All rows: importing this declares them, in the order in which they are shown."""

from __future__ import annotations

from benchmarks.chaos import deaths, links, stops
from benchmarks.chaos.rows import ROWS

__all__ = ["ROWS", "deaths", "links", "stops"]
