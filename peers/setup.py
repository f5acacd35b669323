"""The settings of a peer: its rank, its swarm, and how it trains.

Settings come from the arguments of `peers.join`, else from the program that started the process, else they are those of
a swarm of one. That program is, in this order: `gossip launch` (GOSSIP_CHANNEL names two file descriptors over which
settings and keys come, never the environment), `torchrun` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or
Slurm's `srun` (see `peers.slurm_step`). What these do not say may be set by environment, as GOSSIP_TOPOLOGY and so
on: see `peers.environment_settings`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from gossip.errors import SettingsError
from gossip.grids import Grid, run_of_row
from gossip.keys import KeyPair
from gossip.settings import ALGORITHM
from gossip.shares import check_share
from peers.host_lists import expanded
from peers.own_place import INDEX, rank_here
from peers.setting_kinds import fitting
from peers.slurm_step import SlurmStep

if TYPE_CHECKING:
    from gossip.choosing import Recommendation

__all__ = ["Setup", "check_environment", "from_environment"]

#: How a machine calls itself.
_HERE = ("127.0.0.1", "localhost", "[::1]", "::1")


@dataclass(frozen=True)
class Setup:
    """The settings of a peer. The defaults are those of a swarm of one."""

    #: The name of this peer, a number from 0 on; and the number of peers that the swarm starts with.
    rank: int = 0
    world_size: int = 1
    #: The number of this peer among those of its machine; chooses the GPU.
    local_rank: int = 0
    #: Raised at each restart of a peer. Above 0, the peer joins a running swarm.
    incarnation: int = 0
    #: A number drawn when the process starts, where nobody counts the lives of a rank; later processes draw higher
    #: ones. Without it a peer that is started again at once could not be told from the one that was killed.
    birth: int = 0
    #: The grid of the run, as in 2x4: the rows of a replica and the number of replicas; empty: a replica each.
    grid: str = ""
    #: Seconds after which a replica gives up a row of its own that does not answer.
    inner_timeout: float = 60.0
    #: Let a replica have rows on several machines, whose messages to each other are not encrypted.
    crews_across_hosts: bool = False
    #: The name of the run; peers of different runs ignore each other.
    run: str = "run"
    #: As on the command line, NAME[:k=v,...]; an empty topology: one that suits the algorithm; the algorithm auto: one
    #: that suits what the next three say, with a codec and a share unless those are named.
    topology: str = ""
    algorithm: str = ALGORITHM
    #: What the algorithm auto knows of the swarm: what a link carries and perhaps its round trip, as in 50Mbit,20ms;
    #: the seconds that a step computes; the parameters of the model. Empty and 0: not known.
    link: str = ""
    step_time: float = 0.0
    parameters: int = 0
    #: loopback, lan or wan; empty: loopback if all peers are on this machine, else lan.
    preset: str = ""
    #: The seed of random topologies, data order and injected faults.
    seed: int = 0
    #: cpu, cuda, cuda:1; auto: the GPU of the local rank if there is one, else the CPU.
    device: str = "auto"
    #: The share of the shards that is pushed in a step.
    share: float = 1.0
    #: The codec of parcels: none, bf16, fp16, int8, int4, or auto, by what the link carries.
    compress: str = "none"
    #: Where metrics, logs and checkpoints go; empty: nowhere.
    run_dir: str = ""
    #: Save a checkpoint every `checkpoint_every` steps, 0 for never, and keep the newest `checkpoint_keep` of them.
    checkpoint_every: int = 0
    checkpoint_keep: int = 2
    #: Also write the metrics of each step for TensorBoard, into the run directory.
    tensorboard: bool = False
    #: Serve metrics for Prometheus on this port plus the local rank, 0 for any free port, -1 for no metrics; and the
    #: address that serves them.
    metrics_port: int = -1
    metrics_bind: str = "127.0.0.1"
    #: Continue from the newest checkpoint in the run directory, if there is one.
    resume: bool = False
    #: host:port to listen on, port 0 for any free port; and the host name by which other peers reach this peer.
    bind: str = "127.0.0.1:0"
    advertise: str = ""
    #: host:port of every peer, by rank, if they are known beforehand; short as in train-[0-3].train:7000.
    hosts: tuple[str, ...] = ()
    #: The key pair of this peer; without one it talks to peers of this machine only, unless `insecure`.
    keys: KeyPair | None = None
    #: host:port of members of the running swarm that this peer joins.
    contacts: tuple[str, ...] = ()
    #: Their public keys, in the same order, and the key pair with which they admit new peers.
    contact_keys: tuple[str, ...] = ()
    invitation: KeyPair | None = None
    #: The public keys that permit joining, and watching.
    join_key: str = ""
    watch_key: str = ""
    #: The public keys of all peers, by rank, if they are known beforehand.
    public_keys: tuple[str, ...] = ()
    #: A file with a secret that all peers have, from which their keys follow; gossip keygen --shared makes one.
    secret_file: str = ""
    #: Talk to other machines without encryption.
    insecure: bool = False
    #: Injected stragglers and faults, for tests of resilience; see gossip.faults.
    stragglers: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    #: For a restarted peer: seconds since the run began, and the number of its injected kills that have happened.
    elapsed: float = 0.0
    killed: int = 0
    #: Seconds to wait for the other peers at the start.
    start_timeout: float = 60.0
    #: Seconds from a request to stop, SIGTERM or SIGINT, until this peer is killed. 0: nobody asks by SIGINT, which
    #: stays `KeyboardInterrupt`, and 30 seconds follow a SIGTERM, as with Slurm, Kubernetes and torchrun.
    stop_within: float = 0.0
    #: Further environment, such as that of torchrun.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.contacts and not self.incarnation:
            raise SettingsError(
                f"contacts are for a peer that joins a running swarm: its incarnation must be above {self.incarnation}"
            )
        if self.contact_keys and len(self.contact_keys) != len(self.contacts):
            raise SettingsError(
                f"contact_keys lists {len(self.contact_keys)} keys for {len(self.contacts)} contacts: list one for each"
            )
        if self.world_size < 1:
            raise SettingsError(f"world_size must be 1 or more, not {self.world_size}")
        if not 0 <= self.rank < self.world_size and self.incarnation == 0:
            raise SettingsError(
                f"rank {self.rank} is out of range: with {self.world_size} peers, ranks are 0 to {self.world_size - 1}"
            )
        if self.hosts and len(self.hosts) != self.world_size:
            raise SettingsError(
                f"hosts lists {len(self.hosts)} addresses for {self.world_size} peers: list one for each"
            )
        twice = [host for host in self.hosts if self.hosts.count(host) > 1]
        if twice:
            raise SettingsError(f"hosts lists {twice[0]} more than once: each peer needs an address of its own")
        check_share(self.share)
        if not 0 <= self.step_time < math.inf:
            raise SettingsError(f"step_time must be 0 (not known) or a number of seconds, not {self.step_time}")
        if self.parameters < 0:
            raise SettingsError(f"parameters must be 0 (not known) or the number of values, not {self.parameters}")
        if not 0 < self.start_timeout < math.inf:
            raise SettingsError(f"start_timeout must be a number of seconds above 0, not {self.start_timeout}")
        if not 0 < self.inner_timeout < math.inf:
            raise SettingsError(f"inner_timeout must be a number of seconds above 0, not {self.inner_timeout}")
        if self.grid and Grid.parse(self.grid).size != self.world_size and not self.incarnation:
            raise SettingsError(
                f"grid={self.grid} has {Grid.parse(self.grid).size} processes, but the run has {self.world_size}"
            )
        if not self.stop_within >= 0:
            raise SettingsError(f"stop_within must be 0 seconds or more, not {self.stop_within}")
        if self.checkpoint_every < 0 or self.checkpoint_keep < 1:
            raise SettingsError(
                f"checkpoint_every must be 0 (never) or more, and checkpoint_keep must be 1 or more, not "
                f"{self.checkpoint_every} and {self.checkpoint_keep}"
            )
        if (self.checkpoint_every or self.resume) and not self.run_dir:
            raise SettingsError(
                f"checkpoint_every={self.checkpoint_every} and resume={self.resume} need a directory for checkpoints: "
                "set run_dir"
            )
        if not -1 <= self.metrics_port + (self.local_rank if self.metrics_port > 0 else 0) <= 65535:
            raise SettingsError(
                f"metrics_port must be -1, or a port that is at most 65535 with the local rank added, not "
                f"{self.metrics_port}"
            )
        if self.tensorboard and not self.run_dir:
            raise SettingsError(f"tensorboard={self.tensorboard} needs a directory for its files: set run_dir")

    @property
    def life(self) -> int:
        """The incarnation in which this peer begins: a number that no former process of its rank has had."""
        return self.incarnation or self.birth

    @property
    def shape(self) -> Grid:
        """The grid; without one, each process has a replica."""
        return Grid.parse(self.grid) if self.grid else Grid(1, max(self.world_size, self.rank + 1))

    def of_row(self) -> Setup:
        """Return the settings of the swarm that this process gossips in: that of its row, with a rank per replica."""
        shape = self.shape
        if shape.rows == 1:
            return self
        replica, row = divmod(self.rank, shape.rows)
        run = run_of_row(self.run, shape.rows, row)
        return replace(self, rank=replica, world_size=shape.replicas, run=run, grid="", hosts=(), public_keys=())

    def changed(self, **arguments: Any) -> Setup:
        """Return the setup with the user's arguments; None keeps a setting as it is."""
        kinds = {one.name: str(one.type) for one in fields(self)}
        known = kinds.keys() - {"environment", "birth"}
        for name in arguments:
            if name not in known:
                raise SettingsError(
                    f"{name!r} is not an argument of peers.join; the arguments are: {', '.join(sorted(known))}"
                )
        given = {name: value for name, value in arguments.items() if value is not None}
        for name in ("hosts", "public_keys", "contacts", "contact_keys", "stragglers", "faults"):
            if isinstance(given.get(name), str):
                given[name] = (given[name],)
            elif isinstance(given.get(name), Sequence):
                given[name] = tuple(given[name])
        given = {name: fitting(name, value, kinds[name]) for name, value in given.items()}
        if "hosts" in given:
            # The brackets of an IPv6 address come first.
            given["hosts"] = tuple(
                name for one in given["hosts"] for name in ([one] if one.startswith("[") else expanded(one))
            )
            given.setdefault("world_size", len(given["hosts"]))
        return replace(self, **given)

    def settled(self) -> Setup:
        """Return the setup with what depends on the rest of it, once all of it is known."""
        from gossip import policies  # here, for it imports networkx, and the launcher reads this module at each start

        setup = self
        chosen = self.recommended()
        if chosen is not None:
            setup = replace(self, algorithm=chosen.algorithm, compress=chosen.compress, share=chosen.share)
            # Newcomers are told the link, so that they choose the same, wherever they are.
            setup = replace(setup, link=self.link or self._kind_of_link())
        return replace(setup, topology=self.topology or policies.parse(setup.algorithm).default_topology)

    def recommended(self) -> Recommendation | None:
        """Return what suits this swarm if the algorithm is to be chosen, otherwise None.

        It depends only on what all peers have alike, so all of them choose the same.
        """
        name, colon, _ = self.algorithm.partition(":")
        if name.strip() != "auto":
            return None
        if colon:
            raise SettingsError(
                f"algorithm={self.algorithm!r}: auto takes no parameters; say what is known by link, step_time and "
                "parameters"
            )
        from gossip.choosing import recommend, situation

        known = situation(
            self.world_size, self.link, self.step_time, self.parameters, self._slowest(), self._kind_of_link()
        )
        return recommend(known, self.compress, self.share)

    def _slowest(self) -> float:
        """Return how many times as long the slowest peer takes, as far as slow peers are injected for good."""
        from gossip.faults import parse_stragglers

        slow = [one for one in parse_stragglers(self.stragglers, self.world_size) if one.start is None]
        ranks = range(self.world_size)
        return max([1.0, *(one.factor(r, self.seed) for one in slow for r in ranks if one.slows(r, self.seed))])

    def _kind_of_link(self) -> str:
        """Return loopback, lan or wan, by what all peers of the swarm see alike."""
        if self.preset:
            return self.preset
        if self.hosts:
            return "loopback" if len({host.rpartition(":")[0] for host in self.hosts}) == 1 else "lan"
        if "MASTER_ADDR" in self.environment:
            return "loopback" if self.environment["MASTER_ADDR"] in _HERE else "lan"
        return "loopback" if self.bind.rpartition(":")[0] in _HERE else "lan"


def from_environment(environment: Mapping[str, str] = os.environ) -> Setup:
    """Return what torchrun or Slurm say, or the setup of a swarm of one."""
    rank, world_size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is None and world_size is not None and environment.get(INDEX):
        rank = str(rank_here(environment, ()))
    if rank is not None and world_size is not None:
        return Setup(
            rank=_number("RANK", rank),
            world_size=_number("WORLD_SIZE", world_size),
            local_rank=_number("LOCAL_RANK", environment.get("LOCAL_RANK") or "0"),
            environment=dict(environment),
        )
    step = SlurmStep.found(environment)
    if step is None:
        return Setup(environment=dict(environment))
    # Where the user says where to meet, that counts.
    meeting = {name: environment.get(name) or text for name, text in step.meeting.items()}
    return Setup(step.rank, step.tasks, step.local_rank, environment={**environment, **meeting})


def check_environment(environment: Mapping[str, str]) -> str:
    """Refuse half of what torchrun sets; return a warning if Slurm has half of what `srun` sets, or nothing.

    Otherwise each process would train alone, without a word.
    """
    rank, size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is None and environment.get(INDEX):
        alone = f"this process trains alone, though it is number {environment[INDEX]} of an Indexed Job"
        return "" if size else f"{alone}: set GOSSIP_HOSTS, or GOSSIP_WORLD_SIZE=1 if it is meant to"
    if rank is None and size is not None and _number("WORLD_SIZE", size) > 1:
        raise SettingsError(
            f"WORLD_SIZE={size} is in the environment, and RANK is not: set RANK to the number of this process, from 0 "
            f"to {int(size) - 1}, or unset WORLD_SIZE to train alone"
        )
    if rank is not None and size is None:
        raise SettingsError(
            f"RANK={rank} is in the environment, and WORLD_SIZE is not: set WORLD_SIZE to the number of peers, or "
            "unset RANK to train alone"
        )
    tasks = environment.get("SLURM_NTASKS", "1")
    if rank is None and SlurmStep.found(environment) is None and _number("SLURM_NTASKS", tasks) > 1:
        return f"this process trains alone, though Slurm has allocated {tasks} tasks: start the script with srun"
    return ""


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise SettingsError(f"{name}={text!r} in the environment must be a whole number of 0 or more")
    return int(text)
