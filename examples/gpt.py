"""A GPT as nanoGPT trains one: next characters of Python's own sources, AdamW, clipping, warm-up and cosine.

    python examples/gpt.py --steps 100                               # alone
    gossip launch -n 4 examples/gpt.py                               # four peers, 10 minutes on two cores
    gossip launch -n 4 --algorithm sgp examples/gpt.py --lr 0.008

All but the three marked lines is as in a script for one machine, the learning rate and its schedule included. The
text is the standard library that this Python came with; every tenth file is held out for validation.
"""

import argparse
import logging
import math
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--batch-size", type=int, default=12, help="of each peer")
parser.add_argument("--lr", type=float, default=0.004, help="after the warm-up")
parser.add_argument("--block", type=int, default=64, help="characters that the model sees at once")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(message)s")

FOREIGN = bytes(set(range(256)) - {10, *range(32, 127)})  # all but printable ASCII is left out
sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
texts = [torch.tensor(list(path.read_bytes().translate(None, FOREIGN))) for path in sources]
train = torch.cat([text for place, text in enumerate(texts, 1) if place % 10])
held_out = torch.cat(texts[9::10])


class Block(nn.Module):
    """Attention and two linear layers, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(args.width, bias=False) for _ in range(2))
        self.attention = nn.Linear(args.width, 3 * args.width, bias=False)
        self.attended = nn.Linear(args.width, args.width, bias=False)
        self.widen = nn.Linear(args.width, 4 * args.width, bias=False)
        self.narrow = nn.Linear(4 * args.width, args.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        parts = self.attention(self.norms[0](x)).unflatten(-1, (3, args.heads, -1))
        seen = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.attended(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norms[1](x))))


class GPT(nn.Module):
    """Predicts each next character from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(128, args.width)
        self.places = nn.Embedding(args.block, args.width)
        self.blocks = nn.Sequential(*(Block() for _ in range(args.layers)))
        self.norm = nn.LayerNorm(args.width, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def loss(self, text: Tensor) -> Tensor:
        """Return the mean loss of all but the first characters of some rows."""
        features = self.characters(text[:, :-1]) + self.places.weight
        logits = F.linear(self.norm(self.blocks(features)), self.characters.weight)
        return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def schedule(step: int) -> float:
    """Return the factor of the rate: a warm-up, then half a cosine down to a tenth."""
    share = step / args.steps
    return min(1.0, 20 * share + 1 / args.steps) * (0.55 + 0.45 * math.cos(math.pi * share))


with peers.join() as peer:  # 1: find the others
    torch.manual_seed(args.seed)
    model = GPT().to(peer.device)
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.99))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    peer.attach(model, optimizer, also={"scheduler": scheduler})  # 2: from here on, optimizer.step() also gossips

    rows, drawn = torch.arange(args.block + 1), torch.Generator().manual_seed(1000 * args.seed + peer.rank)
    for step in range(args.steps):
        starts = torch.randint(len(train) - args.block, (args.batch_size, 1), generator=drawn)
        loss = model.loss(train[starts + rows].to(peer.device))
        peer.log(loss=loss)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)

    peer.consensus()  # 3: mix without training until the replicas agree
    starts = torch.arange(256)[:, None] * ((len(held_out) - args.block) // 256)
    with torch.no_grad():
        print(f"validation loss {model.loss(held_out[starts + rows].to(peer.device)).item():.3f}", flush=True)
