"""A peer with workers, which gets SIGTERM together with all its processes from the one who started it.

python worker_script.py RUN_DIRECTORY
"""

from __future__ import annotations

import multiprocessing
import sys
import time

import torch

import peers


def idle() -> None:
    """Wait to be terminated."""
    while True:
        time.sleep(60)


def main(run_dir: str) -> None:
    """Train, and wait for a line in the second step, which takes 16 batches."""
    with peers.join({}, run_dir=run_dir, checkpoint_every=100) as peer:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        child = multiprocessing.get_context("fork").Process(target=idle)
        child.start()
        child.terminate()
        child.join()
        print("terminated:", child.exitcode, flush=True)
        options = {"num_workers": 2, "prefetch_factor": 1, "multiprocessing_context": "fork"}
        for number, x in enumerate(peer.batches(torch.ones(256, 2), 2, 1, **options)):
            model(x).sum().backward()
            if number == 17:
                print("waits", flush=True)
                sys.stdin.readline()
            if number % 16 == 15:  # the step that is under way needs batches that no worker has loaded yet
                optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
