"""What is simulated: the swarm, its network, and what befalls it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossip.errors import SettingsError
from gossip.faults import Cut, Incident, Pause, Straggler
from gossip.faults.weather import Weather
from gossip.membership import MembershipSettings
from gossip.settings import Settings

__all__ = ["Scenario"]


@dataclass(frozen=True)
class Scenario:
    """One simulated run. Moments in steps count the peer's own steps for what befalls one peer, else nominal ones."""

    peers: int
    steps: int
    #: As on the command line, NAME[:k=v,...].
    topology: str = "one-peer-exponential"
    algorithm: str = "sgp"
    seed: int = 0
    #: Numbers that each peer holds, and the shards that they form.
    size: int = 8
    shards: int = 1
    #: Seconds that a step takes, and the share by which it varies either way.
    step_seconds: float = 0.1
    jitter: float = 0.1
    #: The share of messages that is lost, doubled, damaged.
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    #: The least and the most seconds that a message takes.
    delay: tuple[float, float] = (0.001, 0.002)
    #: Bytes per second of each directed link; None: no limit.
    bandwidth: float | None = None
    #: Seconds after which everybody knows of a death, a join or a heal, where nobody watches.
    detect: float = 0.5
    #: With this the peers find out themselves who is there, and newcomers ask them to be let in and for the state.
    watch: MembershipSettings | None = None
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
            raise SettingsError(f"a run has at least one peer and one step, not {self.peers} and {self.steps}")
        if self.size < 1 or not 1 <= self.shards <= self.size:
            raise SettingsError(f"{self.size} numbers can form 1 to {self.size} shards, not {self.shards}")
        if not self.step_seconds > 0 or not 0 <= self.jitter < 1:
            raise SettingsError("a step takes more than 0 seconds and varies by less than all of it")
        _ = self.weather  # says what is wrong with it
        known = set(range(self.peers))
        for join in self.joins:
            if join.rank in known:
                raise SettingsError(f"rank {join.rank} cannot join: it is, or will be, there already")
            known.add(join.rank)
        named = [("kill", i.rank) for i in self.kills] + [("pause", i.rank) for i in self.pauses]
        named += [("leave", i.rank) for i in self.leaves]
        named += [("straggler", r) for s in self.stragglers for r in s.ranks or ()]
        named += [("cut", r) for c in self.cuts for r in c.left | c.right]
        for what, rank in named:
            if rank not in known:
                raise SettingsError(f"{what}: there is no rank {rank}; ranks are 0 to {self.peers - 1} and joiners")
        self._check_moments()
        if self.settings.share < 1 and self.shards == 1:
            raise SettingsError("a share of one shard is all of it: cut the numbers into more shards")

    @property
    def weather(self) -> Weather:
        """What the network does to messages."""
        return Weather(self.seed, self.loss, self.duplicate, self.corrupt, self.delay, self.bandwidth)

    def _check_moments(self) -> None:
        """Refuse what would never happen: silence would look like resilience."""
        kills = {kill.rank: kill for kill in self.kills}
        for restart in self.restarts:
            kill = kills.get(restart.rank)
            if kill is None:
                raise SettingsError(f"restart: rank {restart.rank} is never killed, so it cannot come back")
            if kill.at.in_steps == restart.at.in_steps and restart.at.value <= kill.at.value:
                raise SettingsError(f"restart: rank {restart.rank} is killed only after that")
        if len(kills) + len(self.restarts) < len(self.kills):
            raise SettingsError("kill: a rank is killed twice and not restarted in between")
        named: list[tuple[str, Incident | Pause | Cut]] = [("kill", one) for one in self.kills]
        named += [("restart", one) for one in self.restarts] + [("join", one) for one in self.joins]
        named += [("pause", one) for one in self.pauses] + [("cut", one) for one in self.cuts]
        named += [("leave", one) for one in self.leaves]
        for what, one in named:
            if one.at.in_steps and one.at.value > self.steps:
                raise SettingsError(f"{what}: step {one.at.value:g} never comes; the run has {self.steps} steps")
