"""Which topology mixes best when peers are not in lockstep: the evidence for the default.

    python -m benchmarks.defaults

Disagreement left after 100 steps, for each algorithm and topology with at most one push per peer and step.
"""

from __future__ import annotations

from gossip.simulation import Scenario, simulate

TOPOLOGIES = ("one-peer-exponential", "equidyn", "random-matching", "epidemic", "base")


def main() -> None:
    """Print the table, in Markdown."""
    print(f"| n | algorithm | {' | '.join(TOPOLOGIES)} |")
    print(f"|---|---|{'---|' * len(TOPOLOGIES)}")
    for n in (16, 18, 33):
        for algorithm in ("sgp", "osgp", "adpsgd"):
            cells = []
            for topology in TOPOLOGIES:
                scenario = Scenario(peers=n, steps=100, topology=topology, algorithm=algorithm, delay=(0.005, 0.02))
                cells.append(f"{simulate(scenario, check_every_event=False).disagreement:.0e}")
            print(f"| {n} | {algorithm} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
