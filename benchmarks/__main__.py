"""Run the benchmarks that have a bar; fail if one does not hold."""

from __future__ import annotations

from benchmarks import engine, planning, simulator

if __name__ == "__main__":
    good = [planning.main(), simulator.main(), engine.main()]
    raise SystemExit(not all(good))
