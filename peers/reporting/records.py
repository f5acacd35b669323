"""The records of a peer about its run: ``RUN/rank-R/metrics.jsonl`` step by step, ``summary.json`` at the end.

Every line has its ``time``, in seconds since 1970, so that the lines of all ranks and all lives fit on one axis. A line
is written to the file before the next step ends, so that even a killed peer leaves its history. Errors of writing never
stop training: when the disk is full, that is reported once, and the records end there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from peers.reporting.tensorboard import TensorBoard

__all__ = ["Records"]


class Records:
    """The files of one peer in the run directory; without a directory nothing is written."""

    def __init__(
        self,
        run_dir: str,
        rank: int,
        warn: Callable[[str], None],
        *,
        append: bool = False,
        tensorboard: bool = False,
    ) -> None:
        """Open the files.

        Args:
            run_dir: the run directory, empty for none.
            rank: this peer.
            warn: is called with a sentence when something cannot be written.
            append: go on in the files of a former life, rather than start anew.
            tensorboard: write the figures of each step for TensorBoard too.
        """
        # The wall clock is read once, so that times never decrease within a life.
        self._midnight = time.time() - time.monotonic()
        self._warn = warn
        self.directory = Path(run_dir) / f"rank-{rank}" if run_dir else None
        self._metrics: IO[str] | None = None
        self._events: IO[str] | None = None
        self._tensorboard: TensorBoard | None = None
        if self.directory is not None:
            with self._guard():
                self.directory.mkdir(parents=True, exist_ok=True)
                if not append:
                    self._keep_former(self.directory)
                (self.directory / "summary.json").unlink(missing_ok=True)  # of a former life; this one has not ended
                self._metrics = _opened(self.directory / "metrics.jsonl", append)
                self._events = _opened(self.directory / "events.jsonl", append)
                self._tensorboard = TensorBoard(self.directory / "tensorboard") if tensorboard else None

    def _keep_former(self, directory: Path) -> None:
        """Move the records of a former run out of the way, and say where they are."""
        former = [name for name in ("metrics.jsonl", "events.jsonl", "summary.json") if (directory / name).exists()]
        if not any((directory / name).stat().st_size for name in former):
            return
        number = 1
        while (place := directory / f"former-{number}").exists():
            number += 1
        place.mkdir()
        for name in former:
            (directory / name).rename(place / name)
        self._warn(
            f"{directory} has the records of another run already; they are kept in {place.name}. Give each run a "
            "run_dir of its own, or continue one with resume=True"
        )

    def step(self, ended: float, /, **values: Any) -> None:
        """Write the line of a step, and when the step ended."""
        if self._metrics is not None:
            with self._guard():
                self._metrics.write(_line({"time": ended, **values}, float) + "\n")
                if self._tensorboard is not None:
                    self._tensorboard.step(ended, values)

    def event(self, **values: Any) -> None:
        """Write the line of an event that does not happen at every step."""
        if self._events is not None:
            with self._guard():
                self._events.write(_line({"time": self.time(), **values}, str) + "\n")

    def summary(self, **values: Any) -> None:
        """Write the summary of the run, completely or not at all."""
        if self.directory is not None and self._metrics is not None:
            with self._guard():
                temporary = self.directory / "summary.json.tmp"
                temporary.write_text(_line(values, float, indent=2) + "\n", encoding="utf-8")
                temporary.replace(self.directory / "summary.json")

    def close(self) -> None:
        """Close the files."""
        for file in (self._metrics, self._events):
            if file is not None:
                with self._guard():
                    file.close()
        if self._tensorboard is not None:
            with self._guard():
                self._tensorboard.close()
        self._metrics = self._events = self._tensorboard = None

    def time(self) -> float:
        """Return the time as lines have it: seconds since 1970."""
        return round(self._midnight + time.monotonic(), 4)

    def _guard(self) -> _Guard:
        return _Guard(self._give_up)

    def _give_up(self, error: OSError) -> None:
        self._metrics = self._events = self._tensorboard = None
        self._warn(f"recording in {self.directory} stops: {error.strerror or error}")


def _line(values: Mapping[str, Any], default: Callable[[Any], Any], indent: int | None = None) -> str:
    """Return JSON, which has neither NaN nor infinity: they become null."""
    plain = {name: _finite(value) for name, value in values.items()}
    return json.dumps(plain, default=lambda value: _finite(default(value)), indent=indent)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _opened(path: Path, append: bool) -> IO[str]:
    """Open a file for lines; an incomplete last line, left by a life that was killed, is removed."""
    file = path.open("a+b" if append else "wb")
    end = file.tell()
    while end > 0:
        begin = max(0, end - 4096)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        end = begin + newline + 1 if newline >= 0 else begin
        if newline >= 0:
            break
    file.truncate(end)
    file.close()
    return path.open("a", buffering=1, encoding="utf-8")


class _Guard:
    """Passes an OSError to a function instead of raising it."""

    def __init__(self, handle: Callable[[OSError], None]) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, OSError):
            self._handle(error)
            return True
        return False
