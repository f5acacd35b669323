"""How fast the simulator is: 1,000 peers, 200 steps, 10% loss, mass checked after every event.

    python -m benchmarks.simulator [--peers 10000 --steps 20]

Bar: a minute of CPU time for 1,000 x 200 on one core.
"""

from __future__ import annotations

import resource
import time

from benchmarks.bars import parser_of
from gossip.simulation import Scenario, simulate

__all__ = ["main"]

SECONDS = 60.0


def main(peers: int = 1_000, steps: int = 200) -> bool:
    """Print the figures and return whether the bar holds."""
    began = time.process_time()
    result = simulate(Scenario(peers=peers, steps=steps, loss=0.1, algorithm="sgp"), check_every_event=False)
    taken = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"simulator: {peers} peers x {steps} steps, {result.events} events, mass error {result.mass_error:.1e}")
    bar = SECONDS * max(1.0, peers * steps / 200_000)
    verdict = "ok" if taken < bar else "FAILED"
    print(f"  {taken:.1f} s of CPU time (bar: {bar:.0f} s): {verdict}")
    print(f"  {taken / result.events * 1e6:.0f} us an event, peak memory {memory:.0f} MiB")
    return taken < bar


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--peers", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    raise SystemExit(not main(args.peers, args.steps))
