"""Run the study, or some sections of it, and write docs/results/study.md.

    python -m benchmarks.study [scale|carried|time|faults|adamw|compression|updates|topologies|all ...]
        [--quick] [--jobs 2]

Every method has the best of the same rates, chosen by seeds that are not reported. Runs that are done are kept in a
file, so it can be interrupted at any time. With --quick a few minutes' worth is run and printed, and the document is
left alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.study import adamw, carried, compression, faults, graphs, scale, timing, updates
from benchmarks.study.cache import Cache, Results
from benchmarks.study.document import insert
from benchmarks.study.plan import FULL, QUICK
from benchmarks.study.rates import Rates, trials
from benchmarks.study.section import Report

SECTIONS = {
    one.name: one
    for one in (
        scale.SECTION,
        carried.SECTION,
        timing.SECTION,
        faults.SECTION,
        adamw.SECTION,
        compression.SECTION,
        updates.SECTION,
        graphs.SECTION,
    )
}
_DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "study.md"


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}, or all (the default)")
    parser.add_argument("--quick", action="store_true", help="fewer samples, seeds and rows; printed, not written")
    parser.add_argument("--samples", type=int, help=f"that all peers of a run see together (default: {FULL.samples})")
    parser.add_argument("--seeds", type=int, help=f"how many are reported (default: {FULL.count})")
    parser.add_argument("--peers", type=int, nargs="+", help="in scale and carried (default: 8 16 32)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--document", type=Path, default=_DOCUMENT, help="where the tables go")
    parser.add_argument("--no-runs", action="store_true", help="make the tables of what has been run already")
    default = Path(tempfile.gettempdir()) / "gossip-study.jsonl"
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    asked = parser.parse_args(arguments)
    names = list(SECTIONS) if asked.sections in ([], ["all"]) else asked.sections
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]}: {', '.join(SECTIONS)} or all")
    if asked.quick and (asked.samples or asked.seeds or asked.peers):
        parser.error("--quick has its own samples, seeds and numbers of peers")
    if min(asked.jobs, asked.samples or 1, asked.seeds or 1) < 1:
        parser.error("--jobs, --samples and --seeds are at least 1")
    if min(asked.peers or FULL.sizes) < 2:
        parser.error("--peers are at least 2")
    sizes = tuple(asked.peers or FULL.sizes)
    budget = replace(FULL, samples=asked.samples or FULL.samples, count=asked.seeds or FULL.count, sizes=sizes)
    if asked.quick:
        budget = QUICK
    cache = Cache(asked.cache)
    made: Results = {}
    for name in names:
        section = SECTIONS[name]
        tried = [run for template in section.templates(budget) for run in trials(template, budget)]
        try:
            cache.fill([] if asked.no_runs else tried, asked.jobs, f"{name}, rates")
            rates = Rates(budget, cache.results(tried))
            runs = section.runs(rates)
            cache.fill([] if asked.no_runs else runs, asked.jobs, name)
        except KeyboardInterrupt:
            raise SystemExit(f"interrupted; what is done is in {asked.cache}, and is not done again") from None
        figures = None if asked.quick else asked.document.parent / "study"
        found = cache.results(runs)
        made |= found | cache.results(tried)
        text = section.render(Report(name, rates, found, figures))
        if asked.quick:
            print(f"## {name}\n\n{text}\n")
        else:
            asked.document.write_text(insert(asked.document.read_text(), name, text))
    minutes = sum(one.cpu_seconds for one in made.values()) / 60
    print(f"made of {len(made)} runs, which took {minutes:.0f} CPU minutes in all", file=sys.stderr)


if __name__ == "__main__":
    main()
