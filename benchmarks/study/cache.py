"""Runs that are done are lines of a file, so that a study that was interrupted goes on where it was."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.study.run import Outcome, Run
from benchmarks.study.swarm import carry_out

__all__ = ["Cache", "Results"]

Results = dict[Run, Outcome]


class Cache:
    """The outcomes of runs, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Outcome] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                found = json.loads(line)
                self._known[found["run"]] = Outcome.from_json(found["outcome"])
            except (ValueError, KeyError, TypeError):
                continue  # the last line of a run that was interrupted, or another version's

    def results(self, runs: Iterable[Run]) -> Results:
        """Return what is known of some runs."""
        return {run: self._known[run.key] for run in runs if run.key in self._known}

    def fill(self, runs: Iterable[Run], jobs: int, title: str) -> None:
        """Carry out the runs that are not known yet, and say how far that is."""
        wanted = list(dict.fromkeys(runs))
        lacking = [run for run in wanted if run.key not in self._known]
        began = time.monotonic()
        for done, (run, outcome) in enumerate(_carried_out(lacking, jobs), 1):
            self._add(run, outcome)
            left = (time.monotonic() - began) / done * (len(lacking) - done)
            score = f"{outcome.accuracy:.2f} %, loss {outcome.validation_loss:.3f}"
            verdict = "diverged" if outcome.diverged else score
            print(
                f"{title}: {len(wanted) - len(lacking) + done}/{len(wanted)}, {left / 60:.0f} min to go: "
                f"{run.algorithm} n={run.peers} rate={run.rate:g} seed={run.seed}: {verdict}",
                file=sys.stderr,
                flush=True,
            )

    def _add(self, run: Run, outcome: Outcome) -> None:
        self._known[run.key] = outcome
        with self._path.open("a") as file:
            file.write(json.dumps({"run": run.key, "outcome": outcome.to_json()}) + "\n")


def _both(run: Run) -> tuple[Run, Outcome]:
    return run, carry_out(run)


def _carried_out(runs: list[Run], jobs: int) -> Iterator[tuple[Run, Outcome]]:
    if jobs == 1 or len(runs) < 2:
        yield from map(_both, runs)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes to come: torch reads it when it starts
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(runs))) as pool:
        yield from pool.imap_unordered(_both, runs)
