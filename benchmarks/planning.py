"""What planning costs a peer: one rank's edges at one step, in a swarm of 100,000.

    python -m benchmarks.planning

Bars: below 100 microseconds of CPU time for the topologies whose edges are a formula; and to plan base for 10,000
peers takes under a second.
"""

from __future__ import annotations

import time

import topologies

__all__ = ["main"]

PEERS = 100_000
FORMULAS = ("ring", "one-peer-exponential", "exponential", "equidyn", "epidemic", "random-matching", "base")
MICROSECONDS = 100.0
SECONDS = 1.0


def lookup(name: str) -> float:
    """Return the microseconds of CPU time that one `out_edges` takes, a new step each time."""
    schedule = topologies.get(name, PEERS)
    count = 2_000
    began = time.process_time()
    for step in range(count):
        schedule.out_edges(step * 37 % PEERS, step)
    return (time.process_time() - began) / count * 1e6


def base() -> float:
    """Return the seconds of CPU time to plan base for 10,000 peers and look up a whole period of one rank."""
    began = time.process_time()
    schedule = topologies.get("base", 10_000)
    for step in range(schedule.period or 0):
        schedule.out_edges(4_321, step)
    return time.process_time() - began


def main() -> bool:
    """Print the figures and return whether all bars hold."""
    good = True
    print(f"out_edges of one rank and step, {PEERS} peers (bar: {MICROSECONDS:.0f} us of CPU time)")
    for name in FORMULAS:
        taken = lookup(name)
        good &= taken < MICROSECONDS
        print(f"  {name:22} {taken:7.1f} us")
    taken = base()
    good &= taken < SECONDS
    print(f"planning base for 10,000 peers: {taken * 1e3:.2f} ms of CPU time (bar: {SECONDS:.0f} s)")
    return good


if __name__ == "__main__":
    raise SystemExit(not main())
