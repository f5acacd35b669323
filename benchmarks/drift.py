"""How far replicas drift apart, and how much mass a step moves, where every move of every peer is noise.

    python -m benchmarks.drift [--quick] [--json]

Simulated: 8 peers, steps that take between 0.7 and 1.3 times as long as usual, messages that take 2 to 10% of a step,
400 steps, means of 5 seeds (``--quick``: 2). Nothing is learned: each move adds numbers of variance 1 to each value of
z, so that what is seen is the algorithm alone.

*apart* is the variance of the replicas around their mean, in the long run; what is lost in training against one that
averages exactly is due to it. *moved* is the weight that a peer holds when it moves, on average, with its standard
deviation: 1 is as far as the learning rate says. *noise* is the variance of all mass's movement per move, which is 1
where each move moves a weight of exactly 1.

The bar: adpsgd, which never waits, keeps replicas as close together as osgp, which waits for the turn before.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from benchmarks.bars import Bar, command, finish, table
from gossip import events
from gossip.core.core import Core
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm
from gossip.values.blocks import Values

__all__ = ["Drift", "NoisySwarm", "main"]

ROWS = (
    ("sgp", "one-peer-exponential"),
    ("osgp", "one-peer-exponential"),
    ("adpsgd", "one-peer-hypercube"),
    ("adpsgd", "random-matching"),
    ("easgd", "random-matching"),
    ("gossip-push", "one-peer-exponential"),
    ("gossip-pull", "one-peer-exponential"),
)
STEPS = 400
#: The part of the run that is looked at: replicas start together, and end when the first has finished.
_FROM, _TO = 0.1, 0.9


@dataclass(frozen=True)
class Drift:
    """What a run showed."""

    apart: float
    moved: float
    deviation: float
    noise: float


class NoisySwarm(Swarm):
    """Peers whose moves are noise."""

    trains = True

    def __init__(self, algorithm: str, topology: str, seed: int, steps: int = STEPS) -> None:
        super().__init__(
            Scenario(
                peers=8,
                steps=steps,
                topology=topology,
                algorithm=algorithm,
                size=256,
                seed=seed,
                jitter=0.3,
                delay=(0.002, 0.01),
            ),
            check_every_event=False,
        )
        self._random = np.random.default_rng(seed)
        self._weights: list[float] = []
        self._total: Values = np.zeros(self.scenario.size)

    def _finish(self, rank: int) -> None:
        self.feed(rank, events.Merge())
        mass = self.processes[rank].core.mass
        move = self._random.standard_normal(self.scenario.size)
        mass.values[:] += move
        self._weights.append(mass.weights[0])
        self._total += mass.weights[0] * move
        self.feed(rank, events.StepFinished())

    def _audit(self, core: Core) -> None:
        """Do nothing: what moves is not conserved."""

    def drift(self) -> Drift:
        """Run to the end."""
        length = self.scenario.steps * self.scenario.step_seconds
        variances, look = [], _FROM * length
        while self.advance():
            if look < self.now < _TO * length:
                z = np.stack([process.core.mass.values for process in self.processes.values()])
                variances.append(float(z.var(axis=0).mean()))
                look += self.scenario.step_seconds / 3
        moves = len(self._weights)
        return Drift(
            fmean(variances),
            fmean(self._weights),
            float(np.std(self._weights)),
            float((self._total**2).mean()) / moves,
        )


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bar holds."""
    seeds = range(2 if quick else 5)
    found = {row: [NoisySwarm(*row, seed).drift() for seed in seeds] for row in ROWS}
    rows = [
        [
            algorithm,
            topology,
            f"{fmean(one.apart for one in each):.2f}",
            f"{fmean(one.moved for one in each):.2f} ± {fmean(one.deviation for one in each):.2f}",
            f"{fmean(one.noise for one in each):.2f}",
        ]
        for (algorithm, topology), each in found.items()
    ]
    text = f"drift: 8 simulated peers, moves that are noise, {STEPS} steps, {len(seeds)} seeds\n"
    text += table(["algorithm", "topology", "apart", "moved", "noise"], rows)
    apart = {algorithm: fmean(one.apart for one in found[algorithm, topology]) for algorithm, topology in ROWS[:3]}
    bar = Bar("adpsgd: apart, over osgp's", apart["adpsgd"] / apart["osgp"], "<=", 1.0)
    figures = {" ".join(row): [vars(one) for one in each] for row, each in found.items()}
    return finish(text, {"drift": figures}, [bar], as_json=as_json)


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
