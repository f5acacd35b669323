"""Ranks that meet in a store at MASTER_ADDR:MASTER_PORT, each a process: torch is imported once, then forked.

python store_script.py RANKS PORT ACTION...: says on a line for each action and rank what that rank has found, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import peers

#: Nothing here takes longer than this unless it hangs.
PATIENCE = 100.0


def group(rank: int, ranks: int) -> None:
    """Make the default process group, as ray.train and many scripts do."""
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=PATIENCE))


def total(rank: int) -> float:
    """Return the sum of all ranks, plus one each, by the process group."""
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value)
    return float(value)


def act(action: str, rank: int, ranks: int) -> Any:
    """Do what the action says, in the order in which it says it."""
    if action == "group, then join":
        group(rank, ranks)
    views = []
    for _ in range(2 if action == "join twice" else 1):
        with peers.join(start_timeout=PATIENCE) as peer:
            if action == "join, then group":
                group(rank, ranks)
            views.append([peer.rank, peer.world_size, list(peer.view)])
            if dist.is_initialized():
                views.append(total(rank))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return views


def main() -> None:
    ranks, port = int(sys.argv[1]), sys.argv[2]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    for action in sys.argv[3:]:
        children = [started(action, rank, ranks) for rank in range(ranks)]
        if sum(os.waitpid(child, 0)[1] for child in children):
            sys.exit(1)


def started(action: str, rank: int, ranks: int) -> int:
    """Return the process of a rank, which does what the action says."""
    child = os.fork()
    if child:
        return child
    os.environ["RANK"] = str(rank)
    code = 1
    try:
        sys.stdout.write(json.dumps([action, rank, act(action, rank, ranks)]) + "\n")
        sys.stdout.flush()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the test is to see it
        sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
