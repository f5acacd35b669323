"""One process of the loopback's measurement: ``python -m peers.planner.loopback COUNT STORE RANK``.

The first prints the latency of a message and the bytes per second, by which an all-reduce takes
2 (latency ceil(lg n) + (n - 1) / n bytes / rate).
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

__all__ = ["main"]

_REPEATS = 5
#: Values of the message whose time is all latency, and of the one whose time is nearly all rate.
_SMALL, _LARGE = 1, 1 << 20


def main(count: int, store: str, rank: int) -> None:
    """Take part in the measurement."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    try:
        small, large = _seconds(_SMALL), _seconds(_LARGE)
        if rank == 0:
            latency = small / (2 * (count - 1).bit_length())
            moved = 2 * (count - 1) / count * 4 * _LARGE
            sys.stdout.write(f"{latency} {moved / max(large - small, 1e-9)}\n")
            sys.stdout.flush()
        dist.barrier()
    finally:
        dist.destroy_process_group()  # gloo may abort the interpreter's exit otherwise


def _seconds(values: int) -> float:
    data = torch.zeros(values)
    best = float("inf")
    for _ in range(1 + _REPEATS):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data)
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
