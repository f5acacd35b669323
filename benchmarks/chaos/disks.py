"""Disks that are full, read-only or damaged, and swarms that come back from what is on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.chaos.harness import Swarm
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

ALL = range(4)
EVERY = 20
#: The step at which a swarm that is to resume is ended: several checkpoints are there.
END = 105


@row("disk-full", "the disk of one peer's checkpoints is full", root=True)
def disk_full(stage: Stage) -> None:
    """Give one peer's checkpoints a disk that takes one of them and not two."""
    with _on_a_disk(stage, "size=192k") as swarm:
        warned = any("checkpoint" in event["text"] for event in swarm.events(1, "warning"))
    stage.check("it is said", warned)


@row("disk-read-only", "the disk of one peer's checkpoints becomes read-only", root=True)
def disk_read_only(stage: Stage) -> None:
    """Let the disk of one peer's checkpoints be mounted anew, read-only, in the middle of the run."""
    # On top of itself, for the lock that the peer holds is open for writing below.
    with _on_a_disk(stage, "size=64m", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"') as swarm:
        warned = any("checkpoint" in event["text"] for event in swarm.events(1, "warning"))
    stage.check("it is said", warned)


@row("resume-all", "every peer killed, and resumed from checkpoints")
def resume_all(stage: Stage) -> None:
    """Kill all, and launch again with --resume."""
    _resumed(stage, lambda _newest: None)


@row("checkpoint-truncated", "every peer killed, the newest checkpoint of one cut in half, all resumed")
def truncated(stage: Stage) -> None:
    """Cut every file of the newest checkpoint in half."""

    def cut(newest: Path) -> None:
        for path in newest.iterdir():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    _resumed(stage, cut, damaged=True)


@row("checkpoint-flipped", "every peer killed, a bit of the newest checkpoint of one flipped, all resumed")
def flipped(stage: Stage) -> None:
    """Flip a bit in the middle of the largest file of the newest checkpoint."""

    def flip(newest: Path) -> None:
        largest = max(newest.iterdir(), key=lambda path: path.stat().st_size)
        data = bytearray(largest.read_bytes())
        data[len(data) // 2] ^= 8
        largest.write_bytes(data)

    _resumed(stage, flip, damaged=True)


def _resumed(stage: Stage, damage: Callable[[Path], None], *, damaged: bool = False) -> None:
    run_dir = stage.session.new_directory(stage.name) / "run"
    options = ["--checkpoint-every", str(EVERY)]
    with Swarm(stage.session, run_dir, options) as first:
        first.reach(END)
        first.kill(*ALL)
        first.launcher.wait(20.0)
        reached = [first.step(rank) for rank in ALL]
    for rank in ALL:
        for name in ("books", "lives"):
            (first.directory(rank) / f"{name}.jsonl").rename(first.directory(rank) / f"{name}-before.jsonl")
    kept = sorted((first.directory(1) / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    damage(kept[-1])
    with stage.swarm(*options, "--resume", survivors=ALL, directory=run_dir) as swarm:
        swarm.reach(END + EVERY)
        swarm.fault()
        swarm.finish(ALL)
        resumed = [int(swarm.events(rank, "resume")[-1]["step"]) for rank in ALL if swarm.events(rank, "resume")]
        warned = any("damaged" in event["text"] for event in swarm.events(1, "warning"))
    stage.show("resumed", len(resumed), ">=", len(ALL))
    again = max(step - back for step, back in zip(reached, resumed, strict=False))
    # One that was being written at the end may not count, and a damaged one is passed over for the one before it.
    stage.show("steps done again", again, "<=", 2 * EVERY + (EVERY if damaged else 0))
    if damaged:
        stage.check("it is said", warned)


@contextmanager
def _on_a_disk(stage: Stage, how: str, then: str = "") -> Iterator[Swarm]:
    """Let rank 1 have its checkpoints on a disk of its own, to which something is done at the fault."""
    directory = stage.session.new_directory(stage.name)
    disk = directory / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"'
    with stage.swarm(
        "--checkpoint-every",
        str(EVERY),
        survivors=ALL,
        directory=directory / "run",
        prefix=["unshare", "-m", "sh", "-c", mount, how, str(disk)],
        arguments=["--checkpoints", json.dumps({1: str(disk)})],
    ) as swarm:
        swarm.reach()
        swarm.fault()
        if then:
            enter = ["nsenter", f"--mount=/proc/{swarm.launcher.pid}/ns/mnt"]
            subprocess.run([*enter, "sh", "-c", then, str(disk)], check=True)
        swarm.finish(ALL)
        yield swarm
