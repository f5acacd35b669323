"""Volumes: what one process sends in a step, as bytes and as messages that follow one another.

The collectives are counted as the paper counts them. Each takes ceil(lg n) messages, one after the other, and moves
(n - 1) / n of the whole through each process; an all-reduce takes twice both.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING", "Volume", "all_gather", "all_reduce", "model_parallel", "reduce_scatter"]


@dataclass(frozen=True)
class Volume:
    """What each process sends: bytes, and the messages that it waits for one after the other."""

    messages: float = 0.0
    size: float = 0.0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.messages + other.messages, self.size + other.size)

    def __mul__(self, factor: float) -> Volume:
        return Volume(self.messages * factor, self.size * factor)


NOTHING = Volume()


def all_gather(n: int, size: float) -> Volume:
    """Return the volume of gathering ``size`` bytes, of which each of ``n`` processes has 1/n, everywhere."""
    return Volume((n - 1).bit_length(), (n - 1) / n * size) if size else NOTHING


def all_reduce(n: int, size: float) -> Volume:
    """Return the volume of summing ``size`` bytes over ``n`` processes."""
    return all_gather(n, size) * 2


def reduce_scatter(n: int, size: float, backend: str = "gloo") -> Volume:
    """Return the volume of summing ``size`` bytes and keeping 1/n of the sum. On gloo it costs an all-reduce."""
    return all_reduce(n, size) if backend == "gloo" else all_gather(n, size)


def model_parallel(n: int, inputs: float, outputs: float, *, first: bool) -> Volume:
    """Return the volume of a layer whose weights are cut by columns, as in the paper.

    The outputs are gathered, and the gradients of the inputs are summed. The first layer needs no gradients of inputs.
    """
    return all_gather(n, outputs) + (NOTHING if first else all_reduce(n, inputs))
