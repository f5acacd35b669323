"""A training of a few steps, whose peers say what they were told and wait at a gate until a test lets them go on.

Arguments: a directory for what they write, the number of steps, and optionally a rank that is to come back: until it
has joined in two lives, everybody trains on. A peer waits if there is a pipe ``gate-RANK``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import count
from pathlib import Path

import torch

import peers

directory, steps, *returns = Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:])
#: Seconds for the one that is to come back: it has to be found dead, to import everything again, and to be let in.
PATIENCE = 120.0


def is_back(rank: int) -> bool:
    path = directory / f"joined-{rank}"
    return path.exists() and path.read_text().count("\n") > 1


with peers.join() as peer:
    setup = peer._setup
    told = {
        "pid": os.getpid(),
        "local_rank": setup.local_rank,
        "incarnation": setup.incarnation,
        "secret": setup.keys.secret.decode() if setup.keys else "",
        "endpoint": str(peer._transport.endpoint),
        "cards": [str(card.endpoint) for card in peer._cards.values()],
        "directory": str(Path.cwd()),
    }
    with (directory / f"joined-{peer.rank}").open("a") as file:
        file.write(json.dumps(told) + "\n")
    print(f"joined {peer.rank}", flush=True)
    gate = directory / f"gate-{peer.rank}"
    if gate.exists() and setup.incarnation == 0:
        gate.read_bytes()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    peer.attach(model, optimizer)
    generator = torch.Generator().manual_seed(peer.rank)
    deadline = time.monotonic() + PATIENCE
    for step in count():
        if step >= steps and (all(map(is_back, returns)) or time.monotonic() > deadline):
            break
        if step >= steps:
            time.sleep(0.01)  # the cores are for the one that starts again
        x = torch.randn(8, 4, generator=generator)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    peer.consensus()
    values = torch.nn.utils.parameters_to_vector(model.parameters()).tolist()
    (directory / f"result-{peer.rank}").write_text(json.dumps(values))
