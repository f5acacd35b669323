"""What the sections of the study have in common: how much is run, the algorithms, and the networks."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.study.run import Run

__all__ = ["ALGORITHMS", "BASELINE", "FAST", "RATES", "SLOW", "Algorithm", "Budget", "Network"]

#: The algorithm that others are compared with.
BASELINE = "allreduce"
#: Learning rates, for a batch of 16.
RATES = (0.02, 0.06)


@dataclass(frozen=True)
class Budget:
    """How much is run."""

    samples: int
    seeds: int
    #: Fewer rows as well.
    quick: bool = False

    @property
    def said(self) -> str:
        """The arguments that ask for it."""
        return "--quick" if self.quick else f"--samples {self.samples} --seeds {self.seeds}"


FULL = Budget(48_000, 3)
QUICK = Budget(16_000, 1, quick=True)


@dataclass(frozen=True)
class Network:
    """What lies between the machines."""

    name: str
    megabits: float
    delay: tuple[float, float]


#: A model of 25,450 parameters takes 0.8 ms to send, and a step 100 ms.
FAST = Network("fast", 1000.0, (0.001, 0.001))
#: A model takes 163 ms to send: 1.6 steps.
SLOW = Network("slow", 5.0, (0.02, 0.02))


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as it is run here, with a topology that suits it."""

    name: str
    spec: str
    topology: str
    #: Whether a peer waits for others.
    waits: bool
    #: Whether the rates are divided by the number of peers, since every peer's moves count in full.
    divides: bool = False

    def run(self, peers: int, rate: float, seed: int, samples: int, network: Network = FAST) -> Run:
        """Return a run of it."""
        return Run(
            self.spec,
            self.topology,
            peers,
            rate / peers if self.divides else rate,
            seed,
            samples,
            megabits=network.megabits,
            delay=network.delay,
        )


#: In the order of the tables. Runs are short, so ssd warms up for 20 steps in the place of 100.
ALGORITHMS = {
    one.name: one
    for one in (
        Algorithm("allreduce", "allreduce", "one-peer-exponential", waits=True),
        Algorithm("parameter-server", "parameter-server", "one-peer-exponential", waits=False, divides=True),
        Algorithm("easgd", "easgd", "random-matching", waits=False),
        Algorithm("gossip-pull", "gossip-pull", "epidemic", waits=False),
        Algorithm("gossip-push", "gossip-push", "epidemic", waits=False),
        Algorithm("adpsgd", "adpsgd", "random-matching", waits=False),
        Algorithm("dpsgd", "dpsgd", "base", waits=True),
        Algorithm("sgp", "sgp", "one-peer-exponential", waits=True),
        Algorithm("osgp", "osgp", "one-peer-exponential", waits=True),
        Algorithm("ssd", "ssd:k=4,warmup=20", "one-peer-exponential", waits=True),
        Algorithm("slowmo", "slowmo:h=8", "one-peer-exponential", waits=True),
        Algorithm("noloco", "noloco:h=8", "random-matching", waits=True),
    )
}
