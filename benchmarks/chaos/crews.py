"""Replicas of several processes: a row dies, hangs or is cut off, and its crew is one failure domain."""

from __future__ import annotations

import signal
from dataclasses import replace

from benchmarks.chaos.harness import STEP, Swarm, is_running, lines, until
from benchmarks.chaos.joins import MBIT, PADDING
from benchmarks.chaos.network import network
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

#: Three replicas of two processes: when one is lost, two still gossip.
_GRID = ("--grid", "2x3")
_PROCESSES, _ROWS = 6, 2
#: Those of the first replica are ranks 0 and 1; the fault is theirs.
_OTHERS = (2, 3, 4, 5)
#: Seconds within which a crew that has lost a row has left, and the timeout for one that does not answer.
_LEAVES, _INNER = 1.0, 5.0


@row("crew-kill-row", "kill -9 one row of a replica of two")
def kill_row(stage: Stage) -> None:
    """Kill a row that leads nobody."""
    _killed(stage, 1)


@row("crew-kill-lead", "kill -9 the lead row of a replica of two")
def kill_lead(stage: Stage) -> None:
    """Kill the row at which its crew meets."""
    _killed(stage, 0)


@row("crew-kill-all", "kill -9 both rows of a replica at once, as when a host dies")
def kill_all(stage: Stage) -> None:
    """Kill a whole replica."""
    with stage.swarm(*_GRID, survivors=_OTHERS, peers=_PROCESSES) as swarm:
        swarm.reach(STEP)
        swarm.fault()
        swarm.kill(0, 1)
        swarm.finish(_OTHERS)
        dead = all(swarm.saw(rank, "died", 0) for rank in _OTHERS)
    stage.check("declared dead by all", dead)


@row("crew-stop-row", f"SIGSTOP one row, with --inner-timeout {_INNER:g}s")
def stop_row(stage: Stage) -> None:
    """Stop a row: its crew gives it up, and the launcher ends it."""
    with stage.swarm(*_GRID, "--inner-timeout", f"{_INNER:g}s", survivors=_OTHERS, peers=_PROCESSES) as swarm:
        swarm.reach(STEP)
        swarm.fault()
        swarm.signal(1, signal.SIGSTOP)
        swarm.until(lambda: not is_running(swarm.pid(0)) and not is_running(swarm.pid(1)), "the end of the crew")
        _check_left(stage, swarm, 0, _INNER + _LEAVES)


@row("crew-restart", "kill -9 one row, the replica started again by the launcher")
def restart_crew(stage: Stage) -> None:
    """Kill a row: both return, each gets its part from its own row, and they train to the end with the others."""
    with stage.swarm(*_GRID, "--restart", "1", survivors=_OTHERS, peers=_PROCESSES) as swarm:
        swarm.reach(STEP)
        swarm.fault()
        swarm.kill(1)
        lives = [0, 1]
        swarm.until(
            lambda: sorted(life["rank"] for life in swarm.lives() if life["incarnation"]) == lives, "both again"
        )
        swarm.until(lambda: swarm.ended(0) and swarm.ended(1), "the end of the second life")
    stage.check("it finished too", stage.outcome.accuracy > 0)


@row("crew-kill-donor", "kill -9 a row of a donor while a replica that returns gets the state", root=True)
def kill_donor(stage: Stage) -> None:
    """Let a replica return, whose state takes seconds, and kill a row of one that gives it: its mate says goodbye."""
    scale, directory = stage.session.scale, stage.session.new_directory(stage.name)
    with (
        network(directory, 3, 3, slots=_ROWS) as hosts,
        stage.swarm(
            *hosts.options,
            *_GRID,
            *("--restart", "1"),
            survivors=(4, 5),
            peers=_PROCESSES,
            scale=replace(scale, epochs=2 * scale.epochs),
            directory=directory / "run",
            environment=hosts.environment,
            arguments=["--padding", str(PADDING)],
        ) as swarm,
    ):
        swarm.reach(STEP)
        hosts.disturb("tbf", "rate", f"{MBIT}mbit", "burst", "64kb", "latency", "100ms", hosts=range(3))
        swarm.kill(1)
        again = (0, 1)
        swarm.until(lambda: all(_welcomes(swarm, rank) for rank in again), "the welcome of the replica that returns")
        swarm.fault()
        swarm.kill(2)
        early = not any(_steps_of_last_life(swarm, rank) for rank in again)
        swarm.until(lambda: all(_steps_of_last_life(swarm, rank) for rank in again), "its first steps")
        swarm.until(lambda: all(swarm.ended(rank) for rank in again), "its end")
        stage.check("killed while the state was in flight", early)


@row("crew-cut-row", "one row of a replica cut off from that row of the others for 5 s")
def cut_row(stage: Stage) -> None:
    """Cut one row's swarm: its part is not mixed meanwhile, and nothing else waits."""
    cut = f"cut:0.1|1.1,2.1@{STEP}+5s"
    with stage.swarm(*_GRID, "--fault", cut, survivors=range(6), peers=_PROCESSES) as swarm:
        swarm.reach(STEP)
        swarm.fault()
        swarm.until(lambda: len(swarm.events(1, "injected")) == 2, "the end of the cut")
    stage.check("the other row's swarm was whole", not any(swarm.saw(0, "suspected", other) for other in (1, 2)))


@row("crew-resume", "every process of three replicas killed; another grid is refused, and the same one resumed")
def resume(stage: Stage) -> None:
    """Kill all, and launch again with --resume: the checkpoints of one grid are not those of another."""
    directory = stage.session.new_directory("crew-resume") / "run"
    with Swarm(stage.session, directory, (*_GRID, "--checkpoint-every", "20"), peers=_PROCESSES) as swarm:
        swarm.reach(STEP)
        swarm.launcher.kill()
        swarm.kill(*range(_PROCESSES))
    with Swarm(stage.session, directory, ("--grid", "3x2", "--resume"), peers=_PROCESSES) as other:
        until(lambda: other.launcher.poll() is not None, "the end of the launcher")
        refused = "the checkpoint is of a grid 2xREPLICAS, and the grid of this run is 3xREPLICAS" in other.output()
    stage.check("another grid's checkpoint is refused", refused)
    for name in ("books.jsonl", "lives.jsonl", "summary.json"):  # the same lives begin again
        for path in directory.glob(f"rank-*/{name}"):
            path.unlink()
    with stage.swarm(*_GRID, "--resume", survivors=range(6), peers=_PROCESSES, directory=directory) as swarm:
        swarm.reach(STEP + 60)
        swarm.fault()
        resumed = [swarm.events(rank, "resume") for rank in range(_PROCESSES)]
    stage.check("all resumed", all(resumed))


def _welcomes(swarm: Swarm, rank: int) -> bool:
    """Whether the second life of a rank has been welcomed."""
    events = [event["event"] for event in swarm.events(rank)]
    return events.count("start") == 2 and "welcomed" in events[len(events) - events[::-1].index("start") :]


def _steps_of_last_life(swarm: Swarm, rank: int) -> bool:
    """Whether the second life of a rank has made a step."""
    lives = [life["time"] for life in swarm.lives() if life["rank"] == rank]
    rows = lines(swarm.directory(rank) / "metrics.jsonl")
    return len(lives) == 2 and bool(rows) and float(rows[-1]["time"]) > lives[-1]


def _killed(stage: Stage, rank: int) -> None:
    with stage.swarm(*_GRID, survivors=_OTHERS, peers=_PROCESSES) as swarm:
        swarm.reach(STEP)
        swarm.fault()
        swarm.kill(rank)
        swarm.finish(_OTHERS)
        _check_left(stage, swarm, 1 - rank, _LEAVES)


def _check_left(stage: Stage, swarm: Swarm, mate: int, seconds: float) -> None:
    """Hold it against a row to end with one sentence, in time, after a goodbye to its own swarm."""
    others = [rank for rank in _OTHERS if rank % _ROWS == mate % _ROWS]
    swarm.until(lambda: all(swarm.saw(rank, "left", 0) for rank in others), "the goodbye of the other row")
    heard = [
        event["time"]
        for rank in others
        for event in swarm.events(rank, "member")
        if event["what"] == "left" and event["rank"] == 0
    ]
    stalled = swarm.metronome.longest(swarm.fault_at)  # a machine that stands still is nobody's fault
    stage.show("crew left", max(heard) - swarm.fault_at, "<=", seconds + stalled, " s")
    said = (swarm.directory(mate) / "log.txt").read_text(errors="replace")
    stage.check("one sentence", "lost another row of its crew" in said and "Traceback" not in said)
