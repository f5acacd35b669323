"""Peers that join, and what can go wrong meanwhile."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from benchmarks.chaos.links import on_hosts
from benchmarks.chaos.network import network
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

ALL = range(4)
#: MiB that a newcomer gets beside the model, and Mbit/s that each donor's link carries: it takes seconds.
PADDING, MBIT = 32, 60


@row("kill-joiner", "kill -9 a joiner as soon as it is let in")
def kill_joiner(stage: Stage) -> None:
    """Let one more peer join, and kill it before its first step."""
    with stage.swarm(survivors=ALL) as swarm:
        swarm.reach()
        swarm.fault()
        swarm.join("--rank", "4")
        swarm.until(lambda: bool(swarm.lives()) and swarm.lives()[-1]["rank"] == 4, "the newcomer's process", 30.0)
        swarm.until(lambda: bool(swarm.events(4, "welcomed")), "its welcome", 30.0)
        swarm.kill(4)
        stage.check("killed before its first step", swarm.step(4) < 5)


@row("kill-donor", "kill -9 a donor while a newcomer gets the state", root=True)
def kill_donor(stage: Stage) -> None:
    """Let one more peer join, whose state takes seconds, and kill one of those who give it."""
    survivors = (1, 2, 3)
    scale = stage.session.scale
    directory = stage.session.new_directory(stage.name)
    with (
        network(directory, 5) as hosts,
        stage.swarm(
            *hosts.options,
            survivors=survivors,
            # The state takes a third of the usual time, and the newcomer is to train for a while.
            scale=replace(scale, epochs=2 * scale.epochs),
            directory=directory / "run",
            environment=hosts.environment,
            arguments=["--padding", str(PADDING)],
        ) as swarm,
    ):
        swarm.reach()
        hosts.disturb("tbf", "rate", f"{MBIT}mbit", "burst", "64kb", "latency", "100ms")
        swarm.prefix = hosts.ways[4]
        swarm.join("--rank", "4")
        swarm.until(lambda: bool(swarm.events(4, "welcomed")), "the newcomer's welcome", 30.0)
        time.sleep(0.3)
        swarm.fault()
        swarm.kill(0)
        before = swarm.step(4)
        swarm.until(lambda: swarm.ended(4), "the end of the newcomer")
        stage.check("killed while the state was in flight", before == 0)
        stage.show("steps of the newcomer", swarm.step(4), ">=", 1)


@row("moved", "kill -9 one, which comes back at other ports", root=True)
def moved(stage: Stage) -> None:
    """Kill one, and let it join again from the same host, at a port that nobody knows of.

    `gossip join` refuses a rank that is not known to be dead yet, so it is called again until it does not, as
    whatever keeps processes running would.
    """
    scale = stage.session.scale
    with on_hosts(stage, survivors=(0, 2, 3), scale=replace(scale, epochs=2 * scale.epochs)) as (hosts, swarm):
        before = swarm.endpoint(1)
        swarm.kill(1)
        again = swarm.run_dir.parent / "again"
        swarm.places.append(again)
        swarm.prefix = hosts.ways[1]
        life = again / "rank-1" / "lives.jsonl"

        def is_back() -> bool:
            if not swarm.others or (swarm.others[-1].poll() is not None and not life.exists()):
                swarm.join("--rank", "1", "--run-dir", str(again))
            return life.exists()

        swarm.until(is_back, "the second life", 40.0)
        swarm.until((again / "rank-1" / "summary.json").exists, "its end")
        stage.check("at another port", json.loads(life.read_text().splitlines()[0])["endpoint"] != before)
        stage.show("tries", len(swarm.others))


@row("dns", "names of hosts do not resolve for 10 s, while one peer is killed and started again", root=True)
def dns(stage: Stage) -> None:
    """Empty the hosts' /etc/hosts, kill a peer, and bring the names back: only then can it come back."""
    directory = stage.session.new_directory(stage.name)
    names = [f"host{number}.chaos.test" for number in ALL]
    with network(directory, called=names) as hosts:
        file = directory / "etc-hosts"
        text = "127.0.0.1 localhost\n"
        known = text + "".join(f"{hosts.address(number)} {name}\n" for number, name in enumerate(names))
        file.write_text(known)
        enter = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(file)]
        hosts.ways = [[*way, *enter] for way in hosts.ways]
        with stage.swarm(
            *hosts.options,
            "--restart",
            "1",
            survivors=(0, 2, 3),
            directory=directory / "run",
            environment=hosts.environment,
        ) as swarm:
            swarm.reach()
            swarm.fault()
            file.write_text(text)
            swarm.kill(1)
            time.sleep(10.0)
            file.write_text(known)
            swarm.until(lambda: swarm.ended(1), "the end of the one that came back")
            stage.check("it came back", len([life for life in swarm.lives() if life["rank"] == 1]) == 2)
