"""How peers of a test are killed, and wait for one that comes back: they would be through too soon."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Comeback", "end_process"]

#: Seconds after which it does not come any more.
_PATIENCE = 200.0
#: Seconds that a step takes at most while it asks the others for their state: they give it between two steps.
_STEP = 2.0


class Comeback:
    """What a peer does in a test in which one is killed and started again: if PAUSE_AT is set, and else nothing."""

    def __init__(self, directory: str, rank: int) -> None:
        """Begin a life of a peer.

        Args:
            directory: of the run, the same for all.
            rank: of this peer.
        """
        self._pause_at = int(os.environ.get("PAUSE_AT", "1000000"))
        self._began, self._started, self._back = (Path(directory) / name for name in (f"{rank}", "started", "back"))
        self._again = self._began.exists()
        if self._again:
            self._started.touch()

    def attached(self) -> None:
        """Note that this peer trains."""
        if "PAUSE_AT" in os.environ:
            (self._back if self._again else self._began).touch()

    def after_step(self, step: int) -> None:
        """From a certain step on, wait for the killed one."""
        if step >= self._pause_at and not self._back.exists():
            if not _wait_for(self._started, _PATIENCE):
                raise TimeoutError(f"{self._started} is not there after {_PATIENCE:g} s: nobody comes back")
            _wait_for(self._back, _STEP)


def end_process() -> None:
    """End this process by the signal KILL_BY, SIGKILL if there is none; or let its launcher be interrupted, once."""
    by = os.environ.get("KILL_BY", "9")
    if by != "launcher":
        os.kill(os.getpid(), int(by))
        return
    # A second interrupt would kill all peers at once.
    with suppress(FileExistsError):
        (Path(sys.argv[1]) / "interrupted").touch(exist_ok=False)
        os.kill(os.getppid(), signal.SIGINT)


def _wait_for(path: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
