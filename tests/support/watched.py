"""Swarms in which nobody is told anything: small, fast, and run until they have calmed down."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from gossip.faults import parse_cut, parse_incident, parse_pause
from gossip.membership import MembershipSettings
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm
from topologies.draws import below

#: A fifth of the usual times, so that a detection takes two or three virtual seconds and not a dozen.
FAST = MembershipSettings(
    interval=0.3,
    timeout_floor=0.05,
    timeout_ceiling=0.09,
    spread_interval=0.1,
    sync_interval=3.0,
    revisit_interval=1.0,
)
STEP = 0.25
#: Longer than any detection: to the others it was dead. And the cut lasts as long.
FALSE_DEATH = 9.0
#: Virtual seconds in which a swarm of a few comes to rest, whatever happened to it: several revisits and syncs.
CALM = 60.0
#: Several times what any of these runs needs: something goes round in circles.
LIVELOCK = 40_000
KINDS = ("join", "leave", "death", "false-death", "cut", "restart")


@dataclass
class Troubles:
    """What befalls a swarm of so many peers, in seconds."""

    peers: int
    joins: list[str] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    pauses: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    #: When the last of them is over.
    over: float = 0.0

    def add(self, kind: str, rank: int, at: float) -> None:
        """Let something befall a rank; joins take the next free rank, and cuts put the rank on the smaller side."""
        end = at
        if kind == "join":
            self.joins.append(f"{self.peers + len(self.joins)}@{at:.4f}s")
        elif kind == "leave":
            self.leaves.append(f"{rank}@{at:.4f}s")
        elif kind == "death":
            self.kills.append(f"{rank}@{at:.4f}s")
        elif kind == "false-death":
            self.pauses.append(f"{rank}@{at:.4f}s+{FALSE_DEATH}s")
            end += FALSE_DEATH
        elif kind == "cut":
            small = {rank, (rank + 1) % self.peers} if self.peers > 3 else {rank}
            sides = [small, set(range(self.peers)) - small]
            left, right = (",".join(map(str, sorted(side))) for side in sides)
            self.cuts.append(f"{left}|{right}@{at:.4f}s+{FALSE_DEATH}s")
            end += FALSE_DEATH
        else:
            assert kind == "restart", kind
            self.kills.append(f"{rank}@{at:.4f}s")
            self.restarts.append(f"{rank}@{at + 0.7:.4f}s")
            end += 0.7
        self.over = max(self.over, end)

    def scenario(self, seed: int, **fields: object) -> Scenario:
        """Return the run: some algorithm, shards and weather, by the seed, unless the test wants others."""

        def pick(bound: int, *keys: int) -> int:
            return below(bound, 17, seed, *keys)

        algorithm = ("sgp", "osgp", "adpsgd", "dpsgd")[pick(4, 0)]
        rough = pick(2, 1)
        known: dict[str, object] = {
            "peers": self.peers,
            "steps": 2000,  # more than it takes: the run ends when the swarm is calm
            "topology": "base" if algorithm == "dpsgd" else "one-peer-exponential",
            "algorithm": algorithm,
            "seed": seed,
            "size": 2,
            "shards": 1 + pick(2, 2),
            "step_seconds": STEP,
            "loss": 0.1 * rough,
            "duplicate": 0.1 * rough,
            # Up to a sixth of a step, so that letters overtake each other.
            "delay": (0.001, 0.04) if rough else (0.001, 0.002),
            "watch": FAST,
            "joins": tuple(map(parse_incident, self.joins)),
            "leaves": tuple(map(parse_incident, self.leaves)),
            "kills": tuple(map(parse_incident, self.kills)),
            "restarts": tuple(map(parse_incident, self.restarts)),
            "pauses": tuple(map(parse_pause, self.pauses)),
            "cuts": tuple(map(parse_cut, self.cuts)),
        }
        return Scenario(**{**known, **fields})  # type: ignore[arg-type]


def calm(swarm: Swarm) -> bool:
    """Whether all that live agree, nobody is on its way in or out, and nothing is held twice."""
    living = [process for process in swarm.processes.values() if process.alive]
    if any(process.adopts or process.leaves for process in living):
        return False
    return swarm.agreed() and swarm.accounts.contested == 0


def until_calm(swarm: Swarm, over: float) -> float:
    """Run until all troubles are over and the swarm has been calm for a while; return since when it has been.

    The mass of the whole swarm is checked after every event on the way. Runs that ended by the rules of the simulator
    would mostly show a swarm at rest, at several times the price.
    """
    since = None
    happened = count()
    for look in count(1):
        while swarm.now < look * 0.5:
            assert next(happened) < LIVELOCK, describe(swarm)
            if not swarm.advance():
                assert calm(swarm), describe(swarm)
                return swarm.now
        if swarm.now < over:
            continue
        if not calm(swarm):
            since = None
        elif since is None:
            since = swarm.now
        elif swarm.now >= since + 1.5:  # several intervals: who does not really agree would have said so
            return since
        assert swarm.now < over + CALM, describe(swarm)
    raise AssertionError("never")


def describe(swarm: Swarm) -> str:
    """Say who holds whom for a member, and the seed that repeats it."""
    lines = [f"seed {swarm.scenario.seed}, t = {swarm.now:.2f}: never calm; {swarm.scenario}"]
    for rank, process in swarm.processes.items():
        state = "alive" if process.alive else "gone"
        flags = f"{' adopts' if process.adopts else ''}{' leaves' if process.leaves else ''}"
        lines.append(f"  {rank} {process.core.me} {state}{flags}: {dict(process.core.view.members)}")
    lines.append(f"  contested {swarm.accounts.contested}; {swarm._incidents.log}")
    return "\n".join(lines)
