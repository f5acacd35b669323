"""A trainer and what an engine in its process costs it, as `benchmarks.engine` runs it.

    python -m benchmarks.engine_trainer ROLE RANK MIB

The trainer's work is a Python loop around small matrix products, about as a training step is one around kernels: it
needs the GIL all the time and a core most of it. Its role is ``none`` (no engine), ``idle`` (an engine to which nobody
sends) or ``busy`` (one into which 100 MB/s of parcels come, merged at the step boundaries). Rank 1 is the other peer,
which sends or does not. It speaks in lines of JSON; see `benchmarks.processes`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.engine_gossip import Gossip
from benchmarks.engine_values import empty
from benchmarks.engine_worker import hear, say
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.values.layout import Layout
from topologies.schedule import Plan, Schedule

__all__ = ["RATE"]

#: Bytes a second that come in.
RATE = 100e6
#: Iterations between step boundaries: with these a step takes some 30 ms.
_ITERATIONS = 50


def one_way(n: int) -> Schedule:
    """Return the schedule in which 1 sends to 0 and 0 to nobody."""
    return Schedule(
        "one-way",
        n,
        Plan(1, lambda rank, _: ((0, 0.5),) if rank == 1 else (), lambda rank, _: (1,) if rank == 0 else ()),
    )


def train(seconds: float, boundary: Callable[[], None]) -> tuple[float, float]:
    """Work for so long; return seconds per step, and the part of it that was computing."""
    left, right = np.full((96, 96), 0.01, np.float32), np.full((96, 96), 0.02, np.float32)
    steps, computing = 0, 0.0
    began = now = time.perf_counter()
    while now - began < seconds:
        total = 0.0
        for _ in range(_ITERATIONS):
            out = left
            for _ in range(4):
                out = np.tanh(out @ right)
            for value in out[0].tolist():
                total += value
        computing += time.perf_counter() - now
        boundary()
        steps += 1
        now = time.perf_counter()
    return (now - began) / steps, computing / steps


def push(seconds: float, engine: Gossip, nbytes: int) -> float:
    """Push a parcel whenever one is due; return the bytes a second that were sent and answered."""
    before, parcels = engine.sent(), 0
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        time.sleep(max(0.0, began + parcels * nbytes / RATE - now))
        engine.boundary()
        parcels += 1
    engine.settle()
    return (engine.sent() - before) / (time.perf_counter() - began)


def run(role: str, rank: int, mib: int) -> None:
    """Work, or send, whenever told, until stdin ends."""
    engine = None if role == "none" else Gossip(rank, 2, encrypted=False)
    values = empty(mib)
    say({"address": engine.address if engine else None})
    request = hear()
    if request is None:
        return
    core = None
    if engine is not None:
        # Mass goes one way only, and never runs out: without a floor there is always half of it left to give.
        settings = Settings(share=1 / Layout.cut(values.size).shards, weight_floor=0.0)
        core = engine.start(request["addresses"], values, Policy(), settings, one_way)
    say({"joined": True})
    try:
        while (request := hear()) is not None:
            if rank == 0:
                boundary = engine.boundary if engine and role == "busy" else lambda: None
                whole, computing = train(request["seconds"], boundary)
                say({"step": whole, "computing": computing, "weight": sum(core.mass.weights) if core else None})
            elif engine is not None and core is not None and role == "busy":
                say({"rate": push(request["seconds"], engine, core.mass.layout.nbytes(0))})
            else:
                say({"rate": 0.0})
    finally:
        if engine is not None:
            engine.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
