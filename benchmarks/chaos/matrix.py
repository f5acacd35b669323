"""All rows: importing this declares them, in the order in which they are shown."""

from __future__ import annotations

from benchmarks.chaos import deaths, joins, stops, links, connections, intruders, disks, clocks, crews  # isort: skip
from benchmarks.chaos.rows import ROWS

__all__ = ["ROWS", "clocks", "connections", "crews", "deaths", "disks", "intruders", "joins", "links", "stops"]
