"""Large batches and mixed precision, on handwritten digits: each option in a few lines.

    gossip launch -n 4 examples/large_batch.py                             # SGD, the rate grows with the swarm
    gossip launch -n 4 examples/large_batch.py --optimizer lars --lr 0.1   # layer-wise rates
    gossip launch -n 4 examples/large_batch.py --optimizer lamb --lr 0.003
    gossip launch -n 4 examples/large_batch.py --precision amp             # float16 where it is safe, scaled gradients
    gossip launch -n 4 examples/large_batch.py --precision bf16            # bfloat16, kept and mixed in float32

n peers with batches of b train as on batches of n b, so the learning rate may be n times that of one, once the first
steps are over: `LinearScaling` asks the peer how many there are, and follows when they come or go.
"""

import argparse
import logging

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import peers
from peers.model.master import Master
from peers.optimizers import LAMB, LARS
from peers.optimizers.warmup import LinearScaling

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=30, help="how often the swarm goes through the data")
parser.add_argument("--batch-size", type=int, default=32, help="of each peer")
parser.add_argument("--optimizer", choices=["sgd", "lars", "lamb"], default="sgd")
parser.add_argument("--lr", type=float, default=0.02, help="of one peer alone")
parser.add_argument("--warmup-epochs", type=float, default=3, help="until the rate is that of all peers")
parser.add_argument("--precision", choices=["fp32", "amp", "bf16"], default="fp32")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(message)s")

OPTIMIZERS = {
    "sgd": lambda values: torch.optim.SGD(values, lr=args.lr, momentum=0.9, weight_decay=1e-4),
    "lars": lambda values: LARS(values, lr=args.lr, momentum=0.9, weight_decay=1e-4, trust=0.02),
    "lamb": lambda values: LAMB(values, lr=args.lr, weight_decay=1e-2),
}

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
train, test = order[:1437], order[1437:]

with peers.join() as peer:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(peer.device)
    # bf16: the model computes in half precision, and what is trained and mixed is a copy of single precision.
    master = Master(model.bfloat16()) if args.precision == "bf16" else None
    trained = master.single if master else model

    optimizer = OPTIMIZERS[args.optimizer](trained.parameters())
    # A peer sees about an n-th of the data in an epoch.
    warmup = args.warmup_epochs * len(train) / args.batch_size / len(peer.view)
    scheduler = LinearScaling(optimizer, peer, warmup=round(warmup), ramp=20)
    # amp: gradients of float16 would vanish, so the loss is scaled up, and steps that overflow are left out.
    scaler = torch.amp.GradScaler(peer.device.type, enabled=args.precision == "amp")
    peer.attach(trained, optimizer, also={"scheduler": scheduler, "scaler": scaler})

    for inputs, targets in peer.batches(TensorDataset(x[train], y[train]), args.batch_size, args.epochs):
        if master:
            master.scatter()
            inputs = inputs.bfloat16()
        with torch.autocast(peer.device.type, torch.float16, enabled=args.precision == "amp"):
            loss = F.cross_entropy(model(inputs).float(), targets)
        peer.log(loss=loss, lr=scheduler.get_last_lr()[0])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if master:
            master.gather()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()

    disagreement = peer.consensus()
    with torch.no_grad():
        right = (trained(x[test].to(peer.device)).argmax(1).cpu() == y[test]).float().mean()
    print(
        f"{peer.step} steps, rate x {scheduler.factor:.3g}: {100 * right:.1f}% (apart by {disagreement:.1e})",
        flush=True,
    )
