"""The options of `gossip launch` and `gossip join`. A new one is a field here, and the code that uses it.

An option with ``setup`` goes to every peer, as that field of `peers.setup.Setup`; the others are the launcher's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from launch.options.arguments import AVERAGING, COLLECTIVE, fault_reader, integer, port, positive, seconds
from launch.options.option_table import OptionTable, option
from peers.setup import Setup

__all__ = ["JoinOptions", "LaunchOptions", "SharedOptions"]

_WHO, _HOW = "peers", "gossip"
_PROGRAM, _RUN = "the program", "the run"
_FAULTS = "injected faults (each may be given several times)"


@dataclass(frozen=True)
class SharedOptions(OptionTable):
    """The options that both commands have."""

    script: str = option("", "train.py, a module with -m, or any program", positional=True)
    arguments: tuple[str, ...] = option((), "the script's own arguments", positional=True)
    module: bool = option(False, "SCRIPT is the name of a module", group=_PROGRAM, short="-m")
    device: str = option(
        Setup.device,
        "cpu, cuda or cuda:K (default: the local rank's GPU, else the CPU)",
        group=_PROGRAM,
        metavar="D",
        setup="device",
    )
    run_dir: str = option("", "metrics, logs and checkpoints (default: runs/DATE-TIME)", group=_RUN, metavar="DIR")
    checkpoint_every: int = option(
        Setup.checkpoint_every,
        "save every K steps (default: never)",
        group=_RUN,
        read=integer,
        metavar="K",
        setup="checkpoint_every",
        least=0,
    )
    restart: int = option(
        0, "restart a peer that dies, up to N times (default: 0)", group=_RUN, read=integer, metavar="N", least=0
    )
    start_timeout: float = option(
        Setup.start_timeout,
        "how long a peer waits for the others at the start (default: 60s)",
        group=_RUN,
        read=seconds,
        metavar="T",
        setup="start_timeout",
        above=0,
    )
    stop_timeout: float = option(
        10.0,
        "how long a peer may take to stop after Ctrl-C (default: 10s)",
        group=_RUN,
        read=seconds,
        metavar="T",
        setup="stop_within",
        least=0,
    )
    quiet: bool = option(False, "do not show the output of the peers", group=_RUN)


@dataclass(frozen=True)
class LaunchOptions(SharedOptions):
    """The options of a launch. The defaults suit any number of peers on one machine."""

    GROUPS: ClassVar[tuple[str, ...]] = (_WHO, _HOW, _PROGRAM, _RUN, _FAULTS)

    #: 0: one, or those of the hostfile.
    peers: int = option(
        0,
        "peers on this machine (default: 1 without a hostfile)",
        group=_WHO,
        short="-n",
        read=positive,
        metavar="N",
        least=0,
    )
    hostfile: str = option("", "lines 'host slots=N'; peers are started there over ssh", group=_WHO, metavar="FILE")
    include: str = option(
        "", "only these hosts of the hostfile, as in a,b or a:0,2 (slots)", group=_WHO, metavar="HOSTS"
    )
    exclude: str = option("", "all hosts of the hostfile but these", group=_WHO, metavar="HOSTS")
    grid: str = option(
        Setup.grid,
        "PrxPc: Pc replicas of Pr processes each, such as 2x4; or auto: the planner chooses (default: a replica for "
        "each process)",
        group=_WHO,
        metavar="PrxPc",
        setup="grid",
    )
    crews_across_hosts: bool = option(
        Setup.crews_across_hosts,
        "let a replica have processes on several hosts, without encryption between them",
        group=_WHO,
        setup="crews_across_hosts",
    )
    inner_timeout: float = option(
        Setup.inner_timeout,
        "how long the processes of a replica wait for each other (default: 60s)",
        group=_WHO,
        read=seconds,
        metavar="T",
        setup="inner_timeout",
        above=0,
    )
    insecure: bool = option(False, "no encryption between machines", group=_WHO)
    each_task: bool = option(
        False, "under srun, mpirun or torchrun: start a swarm in each of their tasks", group=_WHO, in_file=False
    )

    #: Empty: what suits the algorithm.
    topology: str = option(
        Setup.topology,
        "see 'gossip topologies' (default: one that suits the algorithm)",
        group=_HOW,
        metavar="NAME[:k=v]",
        setup="topology",
    )
    algorithm: str = option(
        Setup.algorithm,
        f"{', '.join((*AVERAGING, *COLLECTIVE))} (default: {Setup.algorithm}); or auto: by the link, the "
        "step time and the parameters",
        group=_HOW,
        metavar="NAME[:k=v]",
        setup="algorithm",
    )
    link: str = option(
        Setup.link,
        "for --algorithm auto and --grid auto: what a link carries, and its round trip, as in 50Mbit or 1Gbit,20ms; or "
        "loopback, lan, wan (default: by the hosts)",
        group=_HOW,
        metavar="RATE[,T]",
        setup="link",
    )
    step_time: float = option(
        Setup.step_time,
        "for --algorithm auto: how long a step computes, as in 300ms (default: 250ms)",
        group=_HOW,
        read=seconds,
        metavar="T",
        setup="step_time",
        least=0,
    )
    parameters: int = option(
        Setup.parameters,
        "for --algorithm auto: parameters of the model (default: ten million)",
        group=_HOW,
        read=positive,
        metavar="K",
        setup="parameters",
        least=0,
    )
    preset: str = option(
        Setup.preset,
        "loopback, lan or wan (default: by the addresses of the peers)",
        group=_HOW,
        metavar="NAME",
        setup="preset",
    )
    share: float = option(
        Setup.share,
        "shards pushed per step, as in 25%% (default: all)",
        group=_HOW,
        read=fault_reader("share"),
        metavar="P",
        setup="share",
    )
    compress: str = option(
        Setup.compress,
        "none, bf16, fp16, int8, int4, or auto: by the link; topk-pair in pairs; any codec with allreduce, choco",
        group=_HOW,
        metavar="NAME",
        setup="compress",
    )
    seed: int = option(
        Setup.seed,
        "seed of random topologies, data order and faults (default: 0)",
        group=_HOW,
        read=integer,
        metavar="S",
        setup="seed",
    )

    config: str = option("", "a TOML file with any of these options", group=_RUN, metavar="FILE", in_file=False)
    tensorboard: bool = option(
        Setup.tensorboard, "also write the metrics of each step for TensorBoard", group=_RUN, setup="tensorboard"
    )
    #: -1: none.
    metrics_port: int = option(
        Setup.metrics_port,
        "serve metrics for Prometheus on port P + local rank; 0 for any free port",
        group=_RUN,
        read=port,
        metavar="P",
        setup="metrics_port",
    )
    metrics_bind: str = option(
        Setup.metrics_bind,
        "the address that serves the metrics (default: 127.0.0.1)",
        group=_RUN,
        metavar="HOST",
        setup="metrics_bind",
    )
    resume: bool = option(Setup.resume, "continue from the checkpoints in --run-dir", group=_RUN, setup="resume")
    dry_run: bool = option(False, "check everything, print the plan, and start nothing", group=_RUN, in_file=False)

    straggler: tuple[str, ...] = option(
        Setup.stragglers,
        "2=4x, 2=4x@100-200, 2=+50ms, random=10%%:2x-5x",
        group=_FAULTS,
        metavar="S",
        setup="stragglers",
    )
    fault: tuple[str, ...] = option(
        Setup.faults,
        "kill:1@300, restart:1@400, pause:1@100+10s, cut:'0-3|4-7@200+30s', drop:5%%, delay:20ms-80ms, "
        "duplicate:1%%, corrupt:0.1%%",
        group=_FAULTS,
        metavar="F",
        setup="faults",
    )


@dataclass(frozen=True)
class JoinOptions(SharedOptions):
    """The options of a peer that joins a running swarm."""

    GROUPS: ClassVar[tuple[str, ...]] = (_PROGRAM, _RUN)

    run_dir: str = option(
        "", "metrics, logs and checkpoints (default: WHERE, or runs/DATE-TIME)", group=_RUN, metavar="DIR"
    )
    where: str = option("", "host:port of any peer, or the directory of the run", positional=True)
    key: str = option("", "the run's join.json (default: the one in the run's directory)", metavar="FILE")
    rank: int | None = option(
        None, "its rank (default: that of a peer that left, else a new one)", read=integer, metavar="R"
    )
    bind: str = option("", "where it listens (default: the address from which WHERE is reached)", metavar="HOST")
