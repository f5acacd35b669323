"""Connections of processes that are not peers, and bytes that are damaged in flight."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.chaos.harness import Swarm
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

ALL = range(4)
GARBAGE, DRIPPING = 10_000, 100
#: How a peer that speaks ZMTP begins.
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32)
_READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"


@row("corrupt", "a bit flipped in 10% of messages")
def corrupt(stage: Stage) -> None:
    """Damage messages on every link, all the time."""
    with stage.swarm("--fault", "corrupt:10%", survivors=ALL) as swarm:
        swarm.reach()
        swarm.fault()


@row("drip", f"{DRIPPING} connections that send a byte a second")
def drip(stage: Stage) -> None:
    """Begin as ZMTP does, a byte a second, and never come to an end."""
    with stage.swarm(survivors=ALL) as swarm:
        swarm.reach()
        swarm.fault()
        over = threading.Event()
        thread = threading.Thread(target=_drip, args=(swarm, over))
        thread.start()
        try:
            swarm.finish(ALL)
        finally:
            over.set()
            thread.join()


@row("garbage", f"{GARBAGE} connections with garbage")
def garbage(stage: Stage) -> None:
    """Connect and send noise, a page request, half a greeting, or a greeting and a frame of 2^63 bytes."""
    with stage.swarm(survivors=ALL) as swarm:
        swarm.reach()
        swarm.fault()
        draws = random.Random(0)
        ports = [int(swarm.endpoint(rank).rpartition(":")[2]) for rank in ALL]
        made = 0
        while made < GARBAGE and not swarm.ended(0):
            # One that is cut off while it speaks does not count, and is made again.
            with suppress(OSError), socket.create_connection(("127.0.0.1", ports[made % 4]), 1.0) as one:
                one.sendall(_KINDS[made // 4 % len(_KINDS)](draws))
                made += 1
        took = time.time() - swarm.fault_at
    stage.show("connections", made, ">=", GARBAGE)
    stage.show("seconds for them", took)


_KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    lambda draws: draws.randbytes(draws.randrange(1, 2000)),
    lambda _draws: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    lambda draws: _GREETING[: draws.randrange(1, 64)],
    lambda draws: _GREETING + _READY + b"\x02" + bytes([127, *draws.randbytes(7)]) + draws.randbytes(500),
)


def _drip(swarm: Swarm, over: threading.Event) -> None:
    ports = [int(swarm.endpoint(rank).rpartition(":")[2]) for rank in ALL]
    open_ones: list[socket.socket] = []
    for number in range(DRIPPING):
        with suppress(OSError):
            open_ones.append(socket.create_connection(("127.0.0.1", ports[number % 4]), 1.0))
    for byte in _GREETING + _READY:
        for one in open_ones:
            with suppress(OSError):  # it was closed for being slow, and that is fine
                one.send(bytes([byte]))
        if over.wait(1.0):
            break
    for one in open_ones:
        one.close()
