"""A training of a few steps, whose peers say what they were told and wait at a gate until a test lets them go on.

Arguments: a directory for what they write, and the number of steps. A peer waits if there is a pipe ``gate-RANK``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

import peers

directory, steps = Path(sys.argv[1]), int(sys.argv[2])

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
    for _ in range(steps):
        x = torch.randn(8, 4, generator=generator)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    peer.consensus()
    values = torch.nn.utils.parameters_to_vector(model.parameters()).tolist()
    (directory / f"result-{peer.rank}").write_text(json.dumps(values))
