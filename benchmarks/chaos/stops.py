"""Processes that stand still, hang or are slow, and live."""

from __future__ import annotations

import signal
import time

from benchmarks.chaos.harness import STEP
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

OTHERS = (0, 2, 3)


@row("stop-1s", "SIGSTOP for 1 s")
def stop_short(stage: Stage) -> None:
    """Stop one for so short a time that nobody should suspect it for good."""
    _stopped(stage, 1.0)
    stage.check("not declared dead", not stage.outcome.extra.get("deaths"))


@row("stop-10s", "SIGSTOP for 10 s")
def stop_long(stage: Stage) -> None:
    """Stop one for about as long as it takes to be declared dead: it may be, or not, and comes back either way."""
    _stopped(stage, 10.0)


@row("stop-forever", "SIGSTOP for ever")
def stop_forever(stage: Stage) -> None:
    """Stop one, and never let it go on."""
    with stage.swarm(survivors=OTHERS) as swarm:
        swarm.reach()
        swarm.fault()
        swarm.signal(1, signal.SIGSTOP)


@row(
    "trainer-hangs",
    "the user's code hangs; the gossip thread lives",
    exempt=("apart",),
    why="it answers, so it may still come, and the others mix for as long as the example lets them",
)
def trainer_hangs(stage: Stage) -> None:
    """Let the training loop of one hang: it answers, so it is a member, and no step comes from it any more."""
    with stage.swarm(survivors=OTHERS, arguments=["--sabotage", f"trainer-hangs:1@{STEP}"]) as swarm:
        swarm.reach(STEP)
        swarm.fault()


@row("gossip-hangs", "the gossip thread hangs; sockets and trainer live")
def gossip_hangs(stage: Stage) -> None:
    """Let the gossip thread of one hang, as in a write to a disk that never answers: ZeroMQ's threads live on."""
    with stage.swarm(survivors=OTHERS, arguments=["--sabotage", f"gossip-hangs:1@{STEP}"]) as swarm:
        swarm.reach(STEP)
        swarm.fault()


@row("slow-10x", "one peer 10x slower for the whole run")
def slow(stage: Stage) -> None:
    """Slow one down; the others go at their own pace."""
    with stage.swarm("--straggler", "1=10x", survivors=OTHERS) as swarm:
        swarm.reach(STEP, OTHERS)
        swarm.fault()
        swarm.until(lambda: swarm.ended(1), "the end of the slow one")


def _stopped(stage: Stage, seconds: float) -> None:
    with stage.swarm(survivors=OTHERS) as swarm:
        swarm.reach()
        swarm.fault()
        swarm.signal(1, signal.SIGSTOP)
        time.sleep(seconds)
        swarm.signal(1, signal.SIGCONT)
        swarm.until(lambda: swarm.ended(1), "the end of the one that was stopped")
        swarm.finish(OTHERS)
        deaths = sum(swarm.saw(rank, "died", 1) for rank in OTHERS)
        lives = len(swarm.events(1, "reincarnated"))
    stage.show("deaths", deaths)
    stage.show("new lives", lives)
