"""A scenario for the simulator: the swarm, its network and its incidents."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossip.errors import SettingsError
from gossip.faults import Cut, Incident, Pause, Straggler
from gossip.faults.weather import Weather
from gossip.membership import MembershipSettings
from gossip.settings import ALGORITHM, Settings

__all__ = ["Scenario"]

#: Beyond these a run would take all memory, or more than a lifetime: whoever asks for that has mistyped a number.
MOST_PEERS, MOST_STEPS, MOST_VALUES = 100_000, 10**9, 1 << 27


@dataclass(frozen=True)
class Scenario:
    """One simulated run. Moments in steps count a peer's own steps if they concern one peer, else nominal steps."""

    peers: int
    steps: int
    #: In the form of the command line, NAME[:k=v,...].
    topology: str = "one-peer-exponential"
    algorithm: str = ALGORITHM
    seed: int = 0
    #: The number of values of each peer, and the number of shards that they form.
    size: int = 8
    shards: int = 1
    #: The seconds of a step, and the share by which they vary in both directions.
    step_seconds: float = 0.1
    jitter: float = 0.1
    #: The share of messages that is lost, duplicated, corrupted.
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    #: The least and the largest delay of a message, in seconds.
    delay: tuple[float, float] = (0.001, 0.002)
    #: Bytes per second of each directed link; None: no limit.
    bandwidth: float | None = None
    #: Seconds after which all peers know of a death, a join or a healed cut, if peers do not watch each other.
    detect: float = 0.5
    #: With these settings peers watch each other, and newcomers ask members to be admitted and for the state.
    watch: MembershipSettings | None = None
    #: Peers know each other's endpoints beforehand, and not each other's lives: each draws its life when it starts, and
    #: a restart is the same command again. The seconds are the most by which the clocks of two starts may differ. Needs
    #: ``watch``. None: somebody counts the lives, as a launcher does.
    fixed_hosts: float | None = None
    stragglers: tuple[Straggler, ...] = ()
    kills: tuple[Incident, ...] = ()
    restarts: tuple[Incident, ...] = ()
    joins: tuple[Incident, ...] = ()
    leaves: tuple[Incident, ...] = ()
    pauses: tuple[Pause, ...] = ()
    cuts: tuple[Cut, ...] = ()
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.peers < 1 or self.steps < 1:
            raise SettingsError(f"peers and steps must be 1 or more, not {self.peers} and {self.steps}")
        if self.peers > MOST_PEERS or self.steps > MOST_STEPS:
            raise SettingsError(
                f"peers must be at most {MOST_PEERS} and steps at most {MOST_STEPS}, not {self.peers} and {self.steps}"
            )
        if self.peers * self.size > MOST_VALUES:
            raise SettingsError(
                f"size must be at most {MOST_VALUES // self.peers} for {self.peers} peers, not {self.size}: "
                "one process holds all replicas"
            )
        if self.size < 1 or not 1 <= self.shards <= self.size:
            raise SettingsError(f"shards must be from 1 to size = {self.size}, not {self.shards}")
        if not self.step_seconds > 0 or not 0 <= self.jitter < 1:
            raise SettingsError(
                f"step_seconds must be above 0 and jitter from 0 to below 1, not {self.step_seconds} and {self.jitter}"
            )
        if self.fixed_hosts is not None and self.watch is None:
            raise SettingsError(f"fixed_hosts needs watch: with watch={self.watch} nobody notices a life of its own")
        _ = self.weather  # raises an error if it is not valid
        known = set(range(self.peers))
        for join in self.joins:
            if join.rank in known:
                raise SettingsError(f"joins: rank {join.rank} cannot join, because it is already in the swarm")
            known.add(join.rank)
        named = [("kill", i.rank) for i in self.kills] + [("pause", i.rank) for i in self.pauses]
        named += [("leave", i.rank) for i in self.leaves]
        named += [("straggler", r) for s in self.stragglers for r in s.ranks or ()]
        named += [("cut", r) for c in self.cuts for r in c.left | c.right]
        for what, rank in named:
            if rank not in known:
                raise SettingsError(
                    f"{what}: rank {rank} does not exist; ranks are 0 to {self.peers - 1} and those that join"
                )
        self._check_moments()
        if self.settings.share < 1 and self.shards == 1:
            raise SettingsError(
                f"a share of {self.settings.share:g} needs several shards, and shards is {self.shards}; use more shards"
            )

    @property
    def weather(self) -> Weather:
        """The treatment of messages by the network."""
        return Weather(self.seed, self.loss, self.duplicate, self.corrupt, self.delay, self.bandwidth)

    def _check_moments(self) -> None:
        """Refuse incidents that would never happen: a silent one would look like resilience."""
        kills = {kill.rank: kill for kill in self.kills}
        for restart in self.restarts:
            kill = kills.get(restart.rank)
            if kill is None:
                raise SettingsError(f"restarts: rank {restart.rank} is never killed, so it cannot be restarted")
            if kill.at.in_steps == restart.at.in_steps and restart.at.value <= kill.at.value:
                raise SettingsError(f"restarts: rank {restart.rank} is killed only after that, at {kill.at}")
        if len(kills) + len(self.restarts) < len(self.kills):
            ranks = sorted(kill.rank for kill in self.kills)
            raise SettingsError(f"kills: a rank is killed twice without a restart in between: {ranks}")
        named: list[tuple[str, Incident | Pause | Cut]] = [("kill", one) for one in self.kills]
        named += [("restart", one) for one in self.restarts] + [("join", one) for one in self.joins]
        named += [("pause", one) for one in self.pauses] + [("cut", one) for one in self.cuts]
        named += [("leave", one) for one in self.leaves]
        for what, one in named:
            if one.at.in_steps and one.at.value > self.steps:
                raise SettingsError(f"{what}: step {one.at.value:g} never comes; the run has {self.steps} steps")
