"""Random scenarios, by the seed: every kind of fault, alone and together."""

from __future__ import annotations

from gossip.faults import parse_cut, parse_incident, parse_pause, parse_straggler
from gossip.settings import Settings
from gossip.simulation import Scenario
from topologies.draws import below

TOPOLOGIES = ["one-peer-exponential", "base", "exponential", "epidemic:s=2", "random-matching", "ring", "de-bruijn"]
ALGORITHMS = ["sgp", "osgp", "osgp:tau=3", "adpsgd", "dpsgd", "osgp:warmup=30", "adpsgd:warmup=30"]


def storm(seed: int) -> Scenario:
    """Return a small swarm to which a good deal happens, different for every seed."""

    def pick(bound: int, *keys: int) -> int:
        return below(bound, 99, seed, *keys)

    n = 4 + pick(14, 0)
    half = n // 2
    algorithm = ALGORITHMS[pick(len(ALGORITHMS), 1)]
    topology = "base" if algorithm == "dpsgd" else TOPOLOGIES[pick(len(TOPOLOGIES), 2)]
    shards = 1 + pick(4, 3)
    kills = [parse_incident(f"{1 + pick(half, 4)}@{10 + pick(40, 5)}")] if pick(2, 6) else []
    restarts = [parse_incident(f"{kill.rank}@{60 + pick(20, 7)}") for kill in kills if pick(2, 8)]
    joins = [parse_incident(f"{n + i}@{5 + pick(60, 9, i)}") for i in range(pick(3, 10))]
    cuts = [parse_cut(f"0-{half}|{half + 1}-{n - 1}@{10 + pick(30, 11)}+{2 + pick(30, 12)}")] if pick(2, 13) else []
    pauses = [parse_pause(f"0@{15 + pick(30, 14)}+{100 + pick(2000, 15)}ms")] if pick(2, 16) else []
    stragglers = [parse_straggler(f"{pick(n, 17)}={2 + pick(9, 18)}x")] if pick(2, 19) else []
    return Scenario(
        peers=n,
        steps=80,
        topology=topology,
        algorithm=algorithm,
        seed=seed,
        size=6,
        shards=shards,
        loss=(0.0, 0.01, 0.1, 0.3)[pick(4, 20)],
        duplicate=(0.0, 0.05, 0.3)[pick(3, 21)],
        corrupt=(0.0, 0.02)[pick(2, 22)],
        delay=((0.001, 0.002), (0.005, 0.05), (0.1, 0.4))[pick(3, 23)],
        bandwidth=(None, 20_000.0)[pick(2, 24)],
        stragglers=tuple(stragglers),
        kills=tuple(kills),
        restarts=tuple(restarts),
        joins=tuple(joins),
        pauses=tuple(pauses),
        cuts=tuple(cuts),
        settings=Settings(share=(1.0, 0.5, 0.25)[pick(3, 25)] if shards > 1 else 1.0),
    )
