"""Two ways to average in pairs, under the same weather: halves against differences.

    python -m benchmarks.pairwise

- *halves*: push half of (x, w), the partner answers with half of its own. This is `adpsgd`, through the real core.
- *differences*: send a snapshot of z; the partner moves half-way towards it and sends back the equal and opposite
  move, which carries no weight. One exchange per peer in flight. Modelled here in a few lines, with the same step
  times, partners, delays and losses; the move is resent until it arrives, so that the sum is conserved as well.

Printed: seconds of virtual time until the disagreement is below 1e-3 and 1e-6 for good, the bias of the mean, and
messages per peer and step. Of the messages of halves about every second is an acknowledgement without a payload; the
model of differences has none.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

import topologies
from gossip.faults import parse_straggler
from gossip.simulation import Scenario, simulate
from gossip.simulation.swarm import Swarm
from gossip.values.blocks import Values
from topologies.draws import draw

BASE = Scenario(peers=16, steps=300, topology="random-matching", algorithm="adpsgd")
SLOW = (parse_straggler("2=10x"),)
WEATHER = {
    "calm": BASE,
    "10% lost": replace(BASE, loss=0.1),
    "1 to 4 steps late": replace(BASE, delay=(0.1, 0.4)),
    "one 10x slower": replace(BASE, stragglers=SLOW),
    "all at once": replace(BASE, loss=0.1, delay=(0.1, 0.4), stragglers=SLOW),
}
Curve = list[tuple[float, float]]


def differences(scenario: Scenario) -> tuple[Curve, float, float]:
    """Run the model of the second way; return its curve, bias and messages per peer and step."""
    swarm = Swarm(scenario)  # for its start values and step times
    z = np.stack([process.core.mass.values for process in swarm.processes.values()])
    mean, spread = z.mean(axis=0), float(np.sqrt(((z - z.mean(axis=0)) ** 2).mean()))
    schedule = topologies.parse(scenario.topology, scenario.peers, seed=scenario.seed)
    inbox: list[list[tuple[str, int, Values]]] = [[] for _ in range(scenario.peers)]
    steps, busy = [0] * scenario.peers, [False] * scenario.peers
    messages = order = 0
    heap: list[tuple[float, int, int, tuple[str, int, Values]]] = []
    low, high = scenario.delay

    def uniform(*keys: int) -> float:
        return (draw(scenario.seed, *keys) >> 11) / (1 << 53)

    def send(now: float, to: int, item: tuple[str, int, Values]) -> None:
        nonlocal messages, order
        while True:  # a move is resent, half a second later, until it is through; a snapshot is not worth it
            messages += 1
            order += 1
            lost = uniform(order, 1) < scenario.loss
            if not lost:
                heapq.heappush(heap, (now + low + (high - low) * uniform(order, 2), order, to, item))
            if not lost or item[0] == "snapshot":
                if lost:
                    heapq.heappush(heap, (now + 0.5, order, item[1], ("timeout", to, item[2])))
                return
            now += 0.5

    for rank in range(scenario.peers):
        heapq.heappush(heap, (swarm.step_time(rank, 0), -rank, rank, ("step", rank, z[rank])))
    curve: Curve = []
    while heap:
        now, _, rank, item = heapq.heappop(heap)
        if item[0] == "timeout":
            busy[rank] = False
        elif item[0] != "step":
            inbox[rank].append(item)
        else:
            for kind, other, values in inbox[rank]:
                if kind == "snapshot":
                    move = (values - z[rank]) / 2
                    z[rank] += move
                    send(now, other, ("move", rank, -move))
                else:
                    z[rank] += values
                    busy[rank] = False
            inbox[rank].clear()
            for other, _ in schedule.out_edges(rank, steps[rank]):
                if not busy[rank]:
                    busy[rank] = True
                    send(now, other, ("snapshot", rank, z[rank].copy()))
            steps[rank] += 1
            if rank != 2 or scenario.stragglers == ():
                curve.append((now, float(np.sqrt(((z - z.mean(axis=0)) ** 2).mean())) / spread))
            if min(s for r, s in enumerate(steps) if r != 2) < scenario.steps:
                order += 1
                heapq.heappush(heap, (now + swarm.step_time(rank, steps[rank]), order, rank, ("step", rank, z[rank])))
    bias = float(np.sqrt(((z.mean(axis=0) - mean) ** 2).mean())) / spread
    return curve, bias, messages / sum(steps)


def reached(curve: Curve, level: float) -> str:
    """Return when the disagreement was above the level for the last time."""
    above = [at for at, value in curve if not value < level]
    return "never" if not above or above[-1] >= curve[-1][0] else f"{above[-1]:.1f} s"


def main() -> None:
    """Print the table."""
    print(f"{'weather':20} {'rule':12} {'1e-3 after':>11} {'1e-6 after':>11} {'bias':>9} {'messages':>9}")
    for name, scenario in WEATHER.items():
        result = simulate(scenario, check_every_event=False)
        done = result.steps_per_peer["median"] * scenario.peers
        rows = {
            "halves": (result.curve, result.bias, result.messages / done),
            "differences": differences(scenario),
        }
        for rule, (curve, bias, messages) in rows.items():
            levels = [reached(curve, level) for level in (1e-3, 1e-6)]
            print(f"{name:20} {rule:12} {levels[0]:>11} {levels[1]:>11} {bias:9.1e} {messages:9.2f}")


if __name__ == "__main__":
    main()
