"""Networks between hosts that fail, and messages that get lost, doubled, late, or out of order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.chaos.harness import Scale, Swarm
from benchmarks.chaos.network import Network, network
from benchmarks.chaos.rows import Stage, row

__all__ = ["on_hosts"]

ALL = range(4)


@contextmanager
def on_hosts(
    stage: Stage,
    *options: str,
    survivors: tuple[int, ...] = tuple(ALL),
    n: int = 4,
    scale: Scale | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[tuple[Network, Swarm]]:
    """Launch a swarm with a peer on each of four hosts, and come to where the fault is."""
    directory = stage.session.new_directory(stage.name)
    with (
        network(directory, n) as hosts,
        stage.swarm(
            *hosts.options,
            *options,
            survivors=survivors,
            directory=directory / "run",
            environment=hosts.environment,
            scale=scale,
            arguments=arguments,
        ) as swarm,
    ):
        swarm.reach()
        swarm.fault()
        yield hosts, swarm


@row("link-cut", "one host's link down for 10 s, and up again", root=True)
def link_cut(stage: Stage) -> None:
    """Take one host's interface down, and up again."""
    with on_hosts(stage) as (hosts, swarm):
        hosts.unplug(1)
        time.sleep(10.0)
        hosts.plug_in(1)
        swarm.finish(ALL)
        _tell_deaths(stage, swarm)


@row("split-10s", "half the hosts cut from the other half for 10 s", root=True)
def split_short(stage: Stage) -> None:
    """Put half of the hosts on another switch for about as long as a verdict takes."""
    _split(stage, 10.0, None)


@row("split-30s", "half the hosts cut from the other half for 30 s: both sides bury the other", root=True)
def split_long(stage: Stage) -> None:
    """Put half of the hosts on another switch until each side has declared the other dead."""
    scale = stage.session.scale
    _split(stage, 30.0, replace(scale, epochs=2 * scale.epochs + 16))


@row("lost", "10% of messages lost")
def lost(stage: Stage) -> None:
    """Lose messages on every link, all the time."""
    _weather(stage, "drop:10%")


@row("doubled", "10% of messages doubled")
def doubled(stage: Stage) -> None:
    """Deliver some twice."""
    _weather(stage, "duplicate:10%")


@row("reordered", "messages delayed by 0 to 100 ms, each by its own: they overtake each other")
def reordered(stage: Stage) -> None:
    """Delay every message by up to three steps."""
    _weather(stage, "delay:0ms-100ms")


@row("storm", "10% lost, 10% doubled, delayed by 0 to 30 ms, all at once")
def storm(stage: Stage) -> None:
    """All of it."""
    _weather(stage, "drop:10%", "duplicate:10%", "delay:0ms-30ms")


@row("flapping", "one host's link down for 0.4 s of every second, ten times", root=True)
def flapping(stage: Stage) -> None:
    """Take one host's interface down and up repeatedly: packets in flight are lost below TCP."""
    with on_hosts(stage) as (hosts, swarm):
        for _ in range(10):
            hosts.unplug(1)
            time.sleep(0.4)
            hosts.plug_in(1)
            time.sleep(0.6)
        swarm.finish(ALL)
        _tell_deaths(stage, swarm)


def _split(stage: Stage, seconds: float, scale: Scale | None) -> None:
    with on_hosts(stage, scale=scale) as (hosts, swarm):
        hosts.split((2, 3))
        time.sleep(seconds)
        hosts.heal((2, 3))
        swarm.finish(ALL)
        _tell_deaths(stage, swarm)


def _weather(stage: Stage, *faults: str) -> None:
    options = [word for fault in faults for word in ("--fault", fault)]
    with stage.swarm(*options, survivors=ALL) as swarm:
        swarm.reach()
        swarm.fault()
        swarm.finish(ALL)
        _tell_deaths(stage, swarm)


def _tell_deaths(stage: Stage, swarm: Swarm) -> None:
    deaths = sum(swarm.saw(rank, "died", other) for rank in ALL for other in ALL)
    lives = sum(len(swarm.events(rank, "reincarnated")) for rank in ALL)
    stage.show("deaths", deaths)
    stage.show("new lives", lives)
