"""Those who do not belong: without the right key, of another run or version, or with messages that are no use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from benchmarks.chaos.harness import Swarm
from benchmarks.chaos.links import on_hosts
from benchmarks.chaos.nursery import ROOT
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

ALL = range(4)
#: Forged messages of a row.
COUNT = 200
#: A sequence that an honest sender may be at, and is not yet.
_AHEAD = 40
#: Seconds that an intruder who is let in has: to be connected, to send, and for the last of it to leave.
_PATIENCE = 30.0


@row("nan", "parcels of NaN in a peer's name")
def nan(stage: Stage) -> None:
    """Send rank 0 parcels of NaN."""
    _forged(stage, "not-finite", value="nan")


@row("infinite", "parcels of infinity in a peer's name")
def infinite(stage: Stage) -> None:
    """Send rank 0 parcels of infinity."""
    _forged(stage, "not-finite", value="inf")


@row("weight-1e300", "parcels with a weight of 1e300 in a peer's name")
def heavy(stage: Stage) -> None:
    """Send rank 0 parcels of a weight that would drown all others."""
    _forged(stage, "weight", weight=1e300)


@row("other-run", "parcels of another run")
def other_run(stage: Stage) -> None:
    """Send rank 0 parcels of a run of another name."""
    _forged(stage, "run", run="another")


@row("other-version", "parcels of another version of the protocol")
def other_version(stage: Stage) -> None:
    """Send rank 0 parcels as another version would."""
    _forged(stage, "version", version=999)


@row("diverged", "a peer whose training diverges: its model is NaN")
def diverged(stage: Stage) -> None:
    """Fill one peer's model with NaN: the others never get any of it."""
    with stage.swarm(survivors=(0, 2, 3), arguments=["--sabotage", "diverge:1@60"]) as swarm:
        swarm.reach()
        swarm.fault()


@row("wrong-key", "an intruder with a key that nobody knows", root=True)
def wrong_key(stage: Stage) -> None:
    """Connect with an unknown key, and send parcels if admitted."""
    _keyed(stage, "wrong")


@row("no-key", "an intruder without a key", root=True)
def no_key(stage: Stage) -> None:
    """Knock without encryption."""
    _keyed(stage, "none")


@row("watch-key", "an intruder whose key is good for looking only", root=True)
def watch_key(stage: Stage) -> None:
    """Send parcels with the key that anybody gets who may look."""
    _keyed(stage, "watch")


@row("revoked-key", "an intruder with an invitation, whose key is revoked meanwhile", root=True)
def revoked_key(stage: Stage) -> None:
    """Send with the key of the invitation, which rank 0 revokes at a later step: from then on nothing gets in."""
    with on_hosts(stage, n=5, arguments=["--sabotage", "revoke:0@150"]) as (hosts, swarm):
        endpoint = swarm.endpoint(0)
        join = json.loads((swarm.run_dir / "join.json").read_text())
        order = {"what": "parcels", "origin": (1, 0), "destination": (0, 0), "first": _AHEAD, "count": COUNT}
        order |= {"endpoint": endpoint, "run": "another", "server_key": join["members"][endpoint]}
        taken = send(swarm, {**order, "keys": join["keys"], "pause": 0.05, "seconds": 12.0}, hosts.ways[4])
        swarm.finish(ALL)
        heard = json.loads((swarm.directory(0) / "summary.json").read_text())["rejected"].get("run", 0)
    stage.show("messages sent", taken, ">=", COUNT / 2)
    stage.show("heard before", heard, ">=", 1)
    stage.show("heard of those sent", heard / max(1, taken), "<=", 0.8)


@row(
    "huge",
    "a peer whose values are finite and huge (1e30)",
    exempt=("apart", "loss"),
    why="who takes part and lies about its parameters is believed",
)
def huge(stage: Stage) -> None:
    """Multiply one peer's model: a member that lies about its parameters is believed."""
    with stage.swarm(survivors=ALL, arguments=["--sabotage", "huge:1@60"]) as swarm:
        swarm.reach()
        swarm.fault()


@row("replay", "a recording of old traffic, played again three times")
def replay(stage: Stage) -> None:
    """Send rank 0 again all that it received in its first seconds."""
    with stage.swarm(survivors=ALL, arguments=["--sabotage", "record:0@0"]) as swarm:
        swarm.reach()
        swarm.fault()
        recording = str(swarm.directory(0) / "recording")
        order = {"what": "recorded", "recording": recording, "endpoint": swarm.endpoint(0), "times": 3}
        taken = send(swarm, {**order, "pause": 0.001, "seconds": 10.0})
    stage.show("messages sent", taken, ">=", 3 * 50)


class Intruder:
    """A process that waits to be told what to send. On a busy machine it takes a while to get ready."""

    def __init__(self, way: Sequence[str] = ()) -> None:
        command = [*way, sys.executable, "-m", "benchmarks.chaos.intruder"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def __enter__(self) -> Intruder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, swarm: Swarm, order: dict[str, Any]) -> int:
        """Have it do something, once; return how many messages went out."""
        told = {"run": swarm.run_dir.name, "size": int((swarm.directory(0) / "size").read_text()), **order}
        said, _ = self._process.communicate(json.dumps(told) + "\n", timeout=4 * _PATIENCE)
        return int(said)


def send(swarm: Swarm, order: dict[str, Any], way: Sequence[str] = ()) -> int:
    """Have an intruder do something; return how many messages went out."""
    with Intruder(way) as intruder:
        return intruder.send(swarm, order)


def _forged(stage: Stage, reason: str, **forged: Any) -> None:
    # Ready beforehand, and quick: the swarm must still be there for the last of them.
    with Intruder() as intruder, stage.swarm(survivors=ALL) as swarm:
        swarm.reach()
        swarm.fault()
        order = {"what": "parcels", "origin": (1, 0), "destination": (0, 0), "first": _AHEAD, "count": COUNT}
        order |= {"endpoint": swarm.endpoint(0), "pause": 0.002, "patience": _PATIENCE, "seconds": _PATIENCE}
        taken = intruder.send(swarm, {**order, **forged})
        swarm.finish(ALL)
        rejected = json.loads((swarm.directory(0) / "summary.json").read_text())["rejected"]
    stage.show("messages sent", taken, ">=", COUNT)
    # The last few may not have left when the intruder closes.
    stage.show(f"rejected ({reason})", rejected.get(reason, 0), ">=", 0.9 * taken)


def _keyed(stage: Stage, kind: str) -> None:
    with on_hosts(stage, n=5) as (hosts, swarm):
        endpoint = swarm.endpoint(0)
        watch = json.loads((swarm.run_dir / "watch.json").read_text())
        order = {"what": "parcels", "origin": (1, 0), "destination": (0, 0), "first": _AHEAD, "count": COUNT}
        order |= {"endpoint": endpoint, "value": 1e6, "weight": 2.0}
        if kind != "none":
            order["server_key"] = watch["members"][endpoint]
        if kind == "watch":
            order["keys"] = watch["keys"]
        taken = send(swarm, order, hosts.ways[4])
        swarm.finish(ALL)
    stage.show("messages that ZeroMQ took", taken)
