"""A character transformer whose layers are computed by the processes of a crew together: tensor parallelism.

    python examples/tensor.py                                          # alone: a crew of one
    gossip launch -n 4 --grid 2x2 examples/tensor.py                   # two replicas of two processes each
    gossip launch -n 4 --grid 4x1 examples/tensor.py --fsdp 2          # tensor parallel by two, FSDP by two

Each process has some of the attention heads and some of the hidden features. All of a crew see the same batch. With
``--fsdp`` the crew is a mesh of two dimensions: FSDP shares out what tensor parallelism leaves whole, and the batch.
The marked lines differ from the loop of a whole replica.
"""

import argparse
import logging

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=3, help="how often the swarm goes through the data")
parser.add_argument("--lines", type=int, default=4096, help="number of lines to train with")
parser.add_argument("--batch-size", type=int, default=16, help="of each process; a replica takes those of its rows")
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--length", type=int, default=32, help="characters that the model sees at once")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--fsdp", type=int, default=1, metavar="N", help="also share each part by FSDP, among N processes")

ALPHABET = "0123456789+=;"
HEAD = 16  # features of an attention head


class Block(nn.Module):
    """Attention and two linear layers, each added to what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.attended = (nn.Linear(width, width) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        seen = self.first(x)
        parts = [one(seen).unflatten(-1, (-1, HEAD)).transpose(1, 2) for one in (self.query, self.key, self.value)]
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.attended(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class Transformer(nn.Module):
    """Predicts each next character from those before it."""

    def __init__(self, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, text: Tensor) -> Tensor:
        """Return the logarithms of the probabilities of what follows each character."""
        x = self.characters(text) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x).log_softmax(-1)


def sums(count: int, length: int, seed: int) -> Tensor:
    """Return lines of additions such as ``17+25=42;``, each one character longer than the model sees."""
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(20, (count, length // 6 + 1, 2), generator=draw).tolist()
    lines = ["".join(f"{a}+{b}={a + b};" for a, b in line)[: length + 1] for line in pairs]
    return torch.tensor([[ALPHABET.index(letter) for letter in line] for line in lines])


#: How each layer of a block is cut: by its outputs, then by its inputs, so that a block exchanges twice in a pass.
CUT = {
    **{name: ColwiseParallel() for name in ("query", "key", "value", "widen")},
    **{name: RowwiseParallel() for name in ("attended", "narrow")},
}


def main() -> None:
    """Train."""
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)  # the same at all rows of a crew
    with peers.join() as peer:
        model = Transformer(args.length, args.width, args.layers).to(peer.device)
        # 1: the crew as a mesh; peer.crew.mesh is the same with one dimension
        shape, names = (args.fsdp, peer.crew.rows // args.fsdp), ("data", "tensor")
        mesh = init_device_mesh(peer.device.type, shape, mesh_dim_names=names) if args.fsdp > 1 else None
        parallelize_module(
            model,
            peer.crew.mesh if mesh is None else mesh["tensor"],
            {f"blocks.{block}.{layer}": way for block in range(args.layers) for layer, way in CUT.items()},
        )
        if mesh is not None:
            fully_shard(model, mesh=mesh["data"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        peer.attach(model, optimizer)
        lines = TensorDataset(sums(args.lines, args.length, seed=0))
        part = 0 if mesh is None else mesh.get_local_rank("data")
        # 2: all processes get the whole batch of the replica; with FSDP, each takes its part of it
        for (text,) in peer.batches(lines, args.batch_size * peer.crew.rows, args.epochs, split="none"):
            text = text[part :: args.fsdp]
            loss = F.nll_loss(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            peer.log(loss=loss)
        peer.consensus()
        held_out = sums(256, args.length, seed=1).to(peer.device)
        with torch.no_grad():  # all rows compute together, so all call the model
            loss = F.nll_loss(model(held_out[:, :-1]).flatten(0, 1), held_out[:, 1:].flatten())
        print(f"replica {peer.replica}, row {peer.row}: validation loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
