"""Handwritten digits by four peers on Ray, on a laptop as on a cluster.

    python examples/ray_swarm.py                       # on a Ray that this program starts on this machine
    RAY_ADDRESS=10.0.0.5:6379 python examples/ray_swarm.py
    python examples/ray_swarm.py --kill 30 --step-seconds 0.05    # a peer is killed at its 30th step, and comes back

The function `train` is the training loop of any script; `Swarm` takes it to the peers.
"""

import argparse

from peers.integrations.ray import Swarm


def train(config):
    """Train as one peer, and return how good the agreed model is."""
    import time

    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import TensorDataset

    import peers

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]

    with peers.join() as peer:  # the settings, and where the others are, come from the swarm
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(peer.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
        peer.attach(model, optimizer)
        for inputs, targets in peer.batches(TensorDataset(x[train], y[train]), 16, config["epochs"]):
            loss = F.cross_entropy(model(inputs), targets)
            peer.log(loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(config["step_seconds"])
        peer.consensus()

    with torch.no_grad():
        right = (model(x[test].to(peer.device)).argmax(1).cpu() == y[test]).float().mean().item()
    return {"steps": peer.step, "accuracy": right}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10, help="how often the swarm goes through the data")
    parser.add_argument("--cpus", type=float, default=0.5, help="that each peer takes; four fit on two cores")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make a step longer, as a large model would")
    parser.add_argument("--kill", type=int, help="the step at which rank 1 is killed")
    args = parser.parse_args()

    swarm = Swarm(
        train,
        num_peers=args.peers,
        config={"lr": 0.05, "epochs": args.epochs, "step_seconds": args.step_seconds},
        restarts=1,
        cpus=args.cpus,
        faults=[f"kill:1@{args.kill}"] if args.kill else [],
    )
    result = swarm.fit()
    for peer in result.peers:
        end = peer.value if peer.finished else str(peer.error).splitlines()[0]
        print(f"rank {peer.rank}: {end}; started again {peer.restarts} times")
