"""What every peer computes, as digests: the edges of all topologies, hashed.

Peers plan alone, so two versions, machines or Pythons that compute different edges cannot train together. The
digests in golden_edges.json are what all of them must get. When an edge is meant to change, write them anew with

    python tests/support/golden_edges.py --write

increase the wire version, and say in the change log that old and new peers do not mix. Without ``--write`` it
compares, and needs nothing that a peer does not need, so any Python that can run a peer can run it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from topology_cases import NAMES

import topologies

__all__ = ["FILE", "TEXTS", "compute", "differences", "digest"]

FILE = Path(__file__).with_name("golden_edges.json")
#: All names, and some with parameters that lead to other code.
TEXTS = [
    *NAMES,
    "base:k=4",
    "epidemic:s=3",
    "epidemic-regular:s=3",
    "hierarchical:between=random-matching",
    "kautz:d=3",
    "matcha:graph=star",
    "random-regular:d=3",
]
SIZES = (1, 2, 3, 8, 33, 64)
SEEDS = (0, 1)
STEPS = range(8)


def digest(text: str, n: int) -> str:
    """Return the hash of the edges of every rank, both ways, at some steps and seeds."""
    written = hashlib.sha256()
    for seed in SEEDS:
        try:
            schedule = topologies.parse(text, n, seed=seed)
        except topologies.TopologyError as error:
            return type(error).__name__
        for step in STEPS:
            for rank in range(n):
                edges = [(other, fraction.hex()) for other, fraction in schedule.out_edges(rank, step)]
                row = (seed, step, rank, edges, list(schedule.in_neighbours(rank, step)))
                written.update(repr(row).encode())
    return written.hexdigest()


def compute(text: str) -> dict[str, str]:
    """Return the digest of a topology for each size."""
    return {str(n): digest(text, n) for n in SIZES}


def differences() -> list[str]:
    """Return what differs from golden_edges.json, in words."""
    golden = json.loads(FILE.read_text())
    found = [f"{text}: not in {FILE.name}" for text in TEXTS if text not in golden]
    for text, sizes in golden.items():
        now = compute(text)
        found += [f"{text} of {n} peers computes other edges" for n in sizes if now.get(n) != sizes[n]]
    return found


def main() -> int:
    """Compare with golden_edges.json, or write it."""
    if "--write" in sys.argv[1:]:
        FILE.write_text(json.dumps({text: compute(text) for text in TEXTS}, indent=1) + "\n")
        return 0
    found = differences()
    sys.stdout.write("\n".join(found) + "\n" if found else "all digests are the same\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
