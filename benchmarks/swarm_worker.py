"""A process that trains together with others, in one task after the other.

    python -m benchmarks.swarm_worker RANK N [NETWORK_NAMESPACE]

It speaks in lines of JSON; see `benchmarks.processes`. The first answer is that it is ready, then there is one for each
task. A task says the ``job``, the ``method`` and where the others are; see `benchmarks.swarm_jobs`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from benchmarks.engine_worker import hear, say

_CLONE_NEWNET = 0x40000000


def enter(namespace: str) -> None:
    """Move this process into a network namespace: before it has threads or sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", namespace).open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


def main(rank: int, n: int, namespace: str = "") -> None:
    """Do tasks until stdin ends."""
    if namespace:
        enter(namespace)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hosts without a name are none
    import torch

    from benchmarks.swarm_jobs import JOBS

    torch.set_num_threads(1)
    say({"ready": True})
    while (task := hear()) is not None:
        say(JOBS[task["job"]](rank, n, task))


if __name__ == "__main__":
    answers = os.dup(1)  # what else is printed, by libraries, is no answer
    os.dup2(2, 1)
    sys.stdout = os.fdopen(answers, "w")
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
