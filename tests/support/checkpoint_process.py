"""Processes that come to harm while they save. Run as: python checkpoint_process.py SCENARIO DIRECTORY

Each scenario forks children and prints one line of JSON. To import torch takes seconds, and to fork nothing, so that
one process can try every point at which a child may die.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from checkpoint_cases import snapshot_of, step_of

import peers.checkpoints.snapshot_files
from peers.checkpoints.checkpoint import CheckpointError, Checkpoints

#: What a save does to the disk, and what a removal does: before and after each the process may die.
POINTS = [
    *((os, name) for name in ("fsync", "rename", "mkdir", "unlink", "rmdir", "open")),
    *((Path, name) for name in ("write_bytes", "mkdir", "rename")),
    *((peers.checkpoints.snapshot_files, "save_file"), (shutil, "rmtree")),
]


def child(body: Callable[[], object]) -> tuple[int, str]:
    """Run a function in a fork; return how that ended (minus the signal, or the exit code) and what it returned."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            os.close(reader)
            os.write(writer, json.dumps(body()).encode())
            code = 0
        except BaseException:  # noqa: BLE001  (nothing of the parent's may run in a child)
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), result


def die_at(count: int) -> None:
    """Have this process killed the count-th time that it passes a point."""
    passed = 0

    def watch(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def pass_point() -> None:
            nonlocal passed
            passed += 1
            if passed == count:
                os.kill(os.getpid(), signal.SIGKILL)

        def watched(*args: Any, **kwargs: Any) -> Any:
            pass_point()
            result = function(*args, **kwargs)
            pass_point()
            return result

        setattr(owner, name, watched)

    for owner, name in POINTS:
        watch(owner, name)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def save(directory: Path, *steps: int, keep: int = 2, size: int = 50) -> dict[str, Any]:
    reports: list[str] = []
    with Checkpoints(directory, keep=keep, report=reports.append) as checkpoints:
        for step in steps:
            checkpoints.save(step, snapshot_of(step, size))
            checkpoints.wait()
        return {"saved": checkpoints.saved, "failed": checkpoints.failed, "reports": reports}


def look(directory: Path) -> dict[str, Any]:
    """Load as a restarted peer does, and save once more."""
    reports: list[str] = []
    with Checkpoints(directory, keep=2, report=reports.append) as checkpoints:
        hidden = [name for name in names(directory) if name.startswith(".step")]
        loaded = step_of(checkpoints.load())
        checkpoints.save(100, snapshot_of(100))
        after = step_of(checkpoints.load())
    return {"loaded": loaded, "reports": reports, "hidden": hidden, "after": after}


def killed_at_every_point(directory: Path) -> object:
    """Die at every point of a save that replaces another. Stop at the first count that is survived."""
    results = []
    for count in range(1, 1000):
        shutil.rmtree(directory, ignore_errors=True)
        save(directory, 1, 2)

        def body(count: int = count) -> object:
            die_at(count)
            return save(directory, 3)

        code, _ = child(body)
        if code == 0:
            break
        left = names(directory)
        results.append({"code": code, "left": left, **look(directory)})
    return results


def killed_at_any_time(directory: Path) -> object:
    """Die from outside while saving in a loop, after 1, 2, 3... saves: anywhere in the one that follows."""
    results = []
    for rounds in range(1, 16):
        shutil.rmtree(directory, ignore_errors=True)
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reader)
            with Checkpoints(directory, keep=2) as checkpoints:
                for step in range(1, 100):
                    checkpoints.save(step, snapshot_of(step, 100_000 * (rounds % 3) + 10))
                    checkpoints.wait()
                    os.write(writer, bytes([step]))
            signal.pause()  # it is killed, however late
        os.close(writer)
        acknowledged = 0
        for _ in range(rounds):
            acknowledged = os.read(reader, 1)[0]
        os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        while more := os.read(reader, 1):
            acknowledged = more[0]
        os.close(reader)
        results.append({"code": code, "acknowledged": acknowledged, **look(directory)})
    return results


def file_size_limit(directory: Path) -> object:
    """Save with room for small files only, as on a full disk; then with room again."""
    save(directory, 1)

    def body() -> object:
        found = []
        for limit in [0, 10, 300, 400, 1000, 100_000]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            found.append({"limit": limit, **save(directory, 2, size=200_000), "left": names(directory)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return [*found, save(directory, 3, size=200_000)]

    return [json.loads(child(body)[1]), look(directory)]


def foreign_directory(directory: Path) -> object:
    """Save where this user may only read: as nobody, or, for who is not root, in a directory without the permission."""
    save(directory, 1)
    directory.chmod(0o555)

    def body() -> object:
        if os.getuid() == 0:
            os.chdir(directory)  # what is above may be closed to nobody
            os.setgid(65534)
            os.setuid(65534)
        place = Path() if os.getuid() == 65534 else directory
        result = save(place, 2)
        return {**result, "loaded": step_of(Checkpoints(place, report=lambda _: None).load())}

    result = json.loads(child(body)[1])
    directory.chmod(0o755)
    return [result, names(directory)]


def two_writers(directory: Path) -> object:
    """Try a second writer beside the first; then again once the first is dead, though its own fork still lives."""
    ready, tell = os.pipe()
    hold, let_go = os.pipe()
    if (first := os.fork()) == 0:
        checkpoints = Checkpoints(directory)
        checkpoints.save(1, snapshot_of(1))
        checkpoints.wait()
        if os.fork() == 0:  # like a data loader's worker
            os.close(let_go)
            os.write(tell, b"x")
            os.read(hold, 1)
            os._exit(0)
        signal.pause()
    os.read(ready, 1)

    def body() -> object:
        try:
            return save(directory, 2)
        except CheckpointError as error:
            return str(error).replace(str(first), "FIRST")

    beside = json.loads(child(body)[1])
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    after = json.loads(child(body)[1])
    os.close(let_go)
    return [beside, after, look(directory)["loaded"]]


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
