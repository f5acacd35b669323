"""What most would write with bare sockets, as `benchmarks.engine_worker` runs it.

A ring: each process sends its values to the next over one TCP connection, in a thread, receives those of the previous
into a buffer that it allocated once, and then averages in place. No checksum, no answer, no check for NaN; a lost peer
hangs it. ``sockets`` averages the whole vectors, ``sockets-blocks`` block by block, as somebody careful would.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np

from benchmarks.engine_values import Floats, check

__all__ = ["Sockets"]

_PATIENCE = 60.0
#: Averaging by blocks of 1 MiB is two passes over memory in cache rather than over memory.
_BLOCK = 1 << 18


class Sockets:
    """A process of n."""

    def __init__(self, rank: int, n: int, *, blocks: bool) -> None:
        self._rank = rank
        self._n = n
        self._blocks = blocks
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_PATIENCE)
        self._sent = 0
        self._orders: queue.Queue[memoryview | None] = queue.Queue()
        self._done: queue.Queue[OSError | None] = queue.Queue()
        self._sender = threading.Thread(target=self._send, daemon=True)

    @property
    def address(self) -> Any:
        """What the others have to know."""
        return self._listener.getsockname()[1]

    def join(self, addresses: Sequence[Any], values: Floats) -> None:
        """Connect to the next, and let the previous connect."""
        self._values = values
        self._buffer = np.zeros_like(values)
        self._next = socket.create_connection(("127.0.0.1", addresses[(self._rank + 1) % self._n]), _PATIENCE)
        self._previous, _ = self._listener.accept()
        self._previous.settimeout(_PATIENCE)
        self._sender.start()

    def step(self) -> None:
        """Send, receive, average."""
        self._orders.put(self._values.data.cast("B"))
        view = self._buffer.data.cast("B")
        received = 0
        while received < len(view):
            count = self._previous.recv_into(view[received:])
            if not count:
                raise ConnectionError("the previous process has ended")
            received += count
        error = self._done.get(timeout=_PATIENCE)  # until then the values are being sent
        if error is not None:
            raise error
        size = self._values.size
        block = _BLOCK if self._blocks else size
        for start in range(0, size, block):
            mine = self._values[start : start + block]
            mine += self._buffer[start : start + block]
            mine *= 0.5

    def sent(self) -> int:
        """Return the bytes sent so far."""
        return self._sent

    def wire(self) -> int:
        """Return the same: all of it goes through sockets."""
        return self._sent

    def others(self) -> int:
        """Return 0: no memory of others is mapped."""
        return 0

    def check(self, values: Floats, steps: int) -> None:
        """Raise unless the values are the result of ``steps`` steps on a ring: means with binomial weights."""
        mean = sum(comb(steps, hop) * ((self._rank - hop) % self._n) for hop in range(steps + 1)) / 2**steps
        check(values, mean)

    def close(self) -> None:
        """End the sender and the connections."""
        self._orders.put(None)
        if self._sender.ident is not None:
            self._sender.join(_PATIENCE)
            self._next.close()
            self._previous.close()
        self._listener.close()

    def _send(self) -> None:
        while (values := self._orders.get()) is not None:
            try:
                self._next.sendall(values)
                self._sent += len(values)
                self._done.put(None)
            except OSError as error:
                self._done.put(error)
