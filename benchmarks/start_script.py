"""What `benchmarks.start` launches: a peer that trains one small step. Its metrics tell when."""

from __future__ import annotations

import torch

import peers

if __name__ == "__main__":
    with peers.join() as peer:
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        model(torch.ones(1, 64)).sum().backward()
        optimizer.step()
