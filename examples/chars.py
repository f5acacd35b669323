"""A small character transformer that learns to write arithmetic, on text that it makes itself.

    gossip launch -n 4 examples/chars.py
    gossip launch -n 4 --algorithm adpsgd --topology random-matching examples/chars.py --steps 300

Each peer draws its own endless stream of lines such as ``17+25=42;``, so there is no data set to share out: the loop is
a plain one, over a number of steps. Watch the loss fall and the last line become true.
"""

import argparse
import logging

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--length", type=int, default=48, help="characters that the model sees at once")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--largest", type=int, default=20, help="numbers to add are below this")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(message)s")

ALPHABET = "0123456789+=;"


class Transformer(nn.Module):
    """Predicts each next character from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), args.width)
        self.places = nn.Embedding(args.length, args.width)
        layer = nn.TransformerEncoderLayer(
            args.width, 4, 4 * args.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.head = nn.Linear(args.width, len(ALPHABET))

    def forward(self, text: Tensor) -> Tensor:
        """Return the logits of what follows each character."""
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        features = self.characters(text) + self.places(torch.arange(length, device=text.device))
        return self.head(self.layers(features, mask=mask, is_causal=True))


def lines(count: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` rows of additions, each one character longer than the model sees."""
    rows = []
    for _ in range(count):
        text = ""
        while len(text) <= args.length:
            a, b = torch.randint(args.largest, (2,), generator=generator).tolist()
            text += f"{a}+{b}={a + b};"
        rows.append([ALPHABET.index(character) for character in text[: args.length + 1]])
    return torch.tensor(rows)


def written(prompt: str, count: int) -> str:
    """Return the prompt and the characters that the model thinks most likely after it."""
    for _ in range(count):
        text = torch.tensor([[ALPHABET.index(character) for character in prompt[-args.length :]]], device=peer.device)
        prompt += ALPHABET[int(model(text)[0, -1].argmax())]
    return prompt


with peers.join() as peer:
    model = Transformer().to(peer.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    peer.attach(model, optimizer)

    stream = torch.Generator().manual_seed(1000 + peer.rank)
    for step in range(args.steps):
        text = lines(args.batch_size, stream).to(peer.device)
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        peer.log(loss=loss)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)

    peer.consensus()
    model.eval()
    with torch.no_grad():
        print(f"it writes: {written('3+4=', 20)}", flush=True)
