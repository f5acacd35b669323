"""The front page: short, and the loop on it runs."""

from __future__ import annotations

import torch
from document_pages import README, blocks
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

#: What a newcomer reads at one sitting.
LINES = 150
SAMPLES = 64


class Net(nn.Sequential):
    """The model that the reader brings."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3))


def test_the_front_page_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES


def test_the_loop_on_the_front_page_runs() -> None:
    (loop,) = [block.text for block in blocks(README) if block.language == "python"]
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(SAMPLES, 4), torch.randint(3, (SAMPLES,)))
    names = {"torch": torch, "F": functional, "Net": Net, "dataset": dataset}
    exec(compile(loop, str(README), "exec"), names)
    peer = names["peer"]
    assert isinstance(names["loss"], torch.Tensor)
    # Three epochs in batches of 32, and nobody to share them with.
    assert (peer.step, peer.samples) == (3 * SAMPLES // 32, 3 * SAMPLES)
