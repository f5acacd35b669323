"""A GPT on one page, as nanoGPT has it: pre-norm, causal, without dropout and biases, embeddings tied to the output."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["GPT"]


class Block(nn.Module):
    """Attention and then two linear layers, each around which the input flows as well."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm = nn.LayerNorm(width, bias=False)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.second_norm = nn.LayerNorm(width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        batch, length, width = x.shape
        mixed = self.attention(self.first_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(seen.transpose(1, 2).reshape(batch, length, width))
        more: Tensor = self.narrow(functional.gelu(self.widen(self.second_norm(x))))
        return x + more


class GPT(nn.Module):
    """Predicts each next token from those before it."""

    def __init__(self, vocabulary: int, block: int, layers: int, width: int, heads: int) -> None:
        """Make the model; what is random in it comes from torch's generator.

        Args:
            vocabulary: how many tokens there are.
            block: tokens that it sees at once.
            layers: blocks of attention.
            width: features of a token.
            heads: of the attention.
        """
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.empty(block, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # What is added to the features is smaller, the more layers add to them.
                adds = name.endswith(("attended.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if adds else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of what follows each token."""
        features = self.tokens(tokens) + self.places[: tokens.shape[1]]
        return functional.linear(self.norm(self.blocks(features)), self.tokens.weight)
