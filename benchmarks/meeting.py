"""A place where the processes of this machine meet, whatever network namespace they are in: a file that all map."""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

__all__ = ["Meeting"]

_COUNT = struct.Struct("q")
#: Seconds between two looks: what a meeting may cost.
_LOOK = 0.001


class Meeting:
    """Lets some processes wait for each other again and again, without a message."""

    def __init__(self, directory: str, rank: int, n: int) -> None:
        """Open the file in a directory that all processes share."""
        place = Path(directory, "meeting")
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            file.truncate(n * _COUNT.size)  # new bytes are 0, and those of the others stay
        with place.open("r+b") as file:
            self._counts = mmap.mmap(file.fileno(), n * _COUNT.size)
        self._rank, self._n, self._met = rank, n, 0

    def wait(self) -> None:
        """Return once all processes are here. Their launcher bounds how long that may take."""
        self._met += 1
        _COUNT.pack_into(self._counts, self._rank * _COUNT.size, self._met)
        while any(_COUNT.unpack_from(self._counts, rank * _COUNT.size)[0] < self._met for rank in range(self._n)):
            time.sleep(_LOOK)
