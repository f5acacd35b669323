"""Processes that die."""

from __future__ import annotations

from benchmarks.chaos.harness import STEP
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []


@row("undisturbed", "nothing happens: what the others are compared with")
def undisturbed(stage: Stage) -> None:
    """Let a swarm train."""
    with stage.swarm(survivors=range(4)) as swarm:
        swarm.reach()
        swarm.fault()


@row("kill-one", "kill -9 one of 4")
def kill_one(stage: Stage) -> None:
    """Kill one; the others find out, and nobody waits for it."""
    _killed(stage, 1)


@row("kill-first", "kill -9 the first peer")
def kill_first(stage: Stage) -> None:
    """Kill rank 0, of which nothing depends."""
    _killed(stage, 0)


@row("kill-two", "kill -9 two of 4 at once")
def kill_two(stage: Stage) -> None:
    """Kill two."""
    _killed(stage, 1, 2)


@row("kill-launcher", "kill -9 the launcher")
def kill_launcher(stage: Stage) -> None:
    """Kill who started them: the peers train to the end."""
    with stage.swarm(survivors=range(4)) as swarm:
        swarm.reach()
        swarm.fault()
        swarm.launcher.kill()
        swarm.launcher.wait()


@row("restart", "kill -9 one of 4, started again by the launcher")
def restart(stage: Stage) -> None:
    """Kill one that is started again: it gets the model from the others, and trains to the end with them."""
    with stage.swarm("--restart", "1", survivors=(0, 2, 3)) as swarm:
        swarm.reach()
        swarm.fault()
        swarm.kill(1)
        swarm.until(lambda: len([life for life in swarm.lives() if life["rank"] == 1]) == 2, "a second life")
        swarm.until(lambda: swarm.ended(1), "the end of the second life")
    stage.check("it finished too", stage.outcome.accuracy > 0)


def _killed(stage: Stage, *ranks: int) -> None:
    survivors = [rank for rank in range(4) if rank not in ranks]
    with stage.swarm(survivors=survivors) as swarm:
        swarm.reach(STEP)
        swarm.fault()
        swarm.kill(*ranks)
        swarm.finish(survivors)
        dead = all(swarm.saw(rank, "died", other) for rank in survivors for other in ranks)
    stage.check("declared dead by all", dead)
