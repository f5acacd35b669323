"""What the sections of the study have in common: how much is run, the methods, and the networks."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.study.run import Run

__all__ = ["BASELINE", "FAST", "METHODS", "PEERS", "SCHEDULE", "SLOW", "Budget", "Method", "Network", "Trials"]

#: The method that others are compared with.
BASELINE = "allreduce"
#: How many peers there are where nothing else is said.
PEERS = 16
#: Every run ends where its rate has fallen to nothing.
SCHEDULE = "cosine to 0"


@dataclass(frozen=True)
class Trials:
    """What a rate is chosen by: the same for every method."""

    rates: tuple[float, ...]
    #: None of those that are reported.
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Budget:
    """How much is run."""

    samples: int
    #: How many are reported.
    count: int
    #: By optimizer.
    trials: dict[str, Trials]
    #: Numbers of peers, where methods are compared by them.
    sizes: tuple[int, ...] = (8, PEERS, 32)
    #: Fewer rows as well.
    quick: bool = False

    @property
    def seeds(self) -> range:
        """The seeds that are reported. Nothing was chosen by them."""
        return range(200, 200 + self.count)

    @property
    def said(self) -> str:
        """The arguments that ask for it."""
        if self.quick:
            return "--quick"
        peers = "" if self.sizes == Budget.sizes else f" --peers {' '.join(map(str, self.sizes))}"
        return f"--samples {self.samples} --seeds {self.count}{peers}"


#: Seeds that rates are chosen by begin at 300. The best rate of one seed may be one at which a transformer fails.
FULL = Budget(96_000, 3, {"sgd": Trials((0.025, 0.06, 0.15), (300, 301)), "adamw": Trials((0.003, 0.006), (300, 301))})
#: One rate is not chosen.
QUICK = Budget(12_800, 1, {"sgd": Trials((0.06,), (300,)), "adamw": Trials((0.006,), (300,))}, (PEERS,), quick=True)


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
class Method:
    """An algorithm as it is run here, with a topology that suits it."""

    name: str
    spec: str
    topology: str = "one-peer-exponential"
    compress: str = "none"
    #: Whether the rates are divided by the number of peers, since every peer's moves count in full.
    divides: bool = False
    #: The method whose best rate it takes: itself without a codec. Empty: it has trials of its own.
    like: str = ""

    def run(self, peers: int, budget: Budget, network: Network = FAST) -> Run:
        """Return a run of it without a seed. Its rate is what rates that are tried are multiplied by."""
        return Run(
            self.spec,
            self.topology,
            peers,
            1 / peers if self.divides else 1.0,
            seed=-1,
            samples=budget.samples,
            batch=32,
            schedule=SCHEDULE,
            megabits=network.megabits,
            delay=network.delay,
            compress=self.compress,
        )


#: In the order of the tables. By itself allreduce would choose for a vector of 100 kB on a local network; this one
#: stands for a large one. Runs are short, so ssd warms up for 20 steps in the place of 100.
METHODS = {
    one.name: one
    for one in (
        Method("allreduce", "allreduce:plan=halving"),
        Method("parameter-server", "parameter-server", divides=True),
        Method("gossip-push", "gossip-push", "epidemic"),
        Method("adpsgd", "adpsgd", "random-matching"),
        Method("sgp", "sgp"),
        Method("osgp", "osgp"),
        Method("osgp, int8", "osgp", compress="int8", like="osgp"),
        Method("sgp, two rounds, mixed, int8", "sgp:rounds=2,momentum=mixed", compress="int8"),
        Method("ssd", "ssd:k=4,warmup=20"),
        Method("slowmo", "slowmo:h=8"),
        Method("noloco", "noloco:h=8", "random-matching"),
        Method("outer, int2", "outer:h=8", compress="int2"),
    )
}
