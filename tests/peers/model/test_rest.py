"""Blocks of unmixed tensors: every dtype, order in memory and size, read and written where they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossip.errors import SettingsError
from gossip.wire.limits import ANNEX_BYTES
from peers.model.rest import RestBlocks, digest


def tensors(seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    return {
        "flags": made(3) > 0,
        "long": torch.randint(9, (2,), generator=draw),
        "scalar": torch.tensor(seed),
        "nothing": torch.zeros(0, 4),
        "double": made(5).double(),
        "half": made(4, 4).half(),
        "brain": made(7).bfloat16(),
        "eight": made(9).to(torch.float8_e4m3fn),
        "int8": torch.randint(-128, 127, (100_001,), dtype=torch.int8, generator=draw),
        "large": made(3, 700, 200),
        "turned": made(700, 500).t(),
        "last": made(2, 8, 40, 60).to(memory_format=torch.channels_last),
        "every": made(4, 500)[:, ::2],
        "boxed": made(1, 600, 700).transpose(1, 2),
    }


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_what_one_reads_the_other_writes_bit_for_bit() -> None:
    one, other = tensors(1), tensors(2)
    source, target = RestBlocks(one), RestBlocks(other)
    assert source.sizes == target.sizes
    assert max(source.sizes) <= ANNEX_BYTES
    for block in range(len(source.sizes)):
        target.write(block, source.read(block))
    for name, tensor in other.items():
        assert bits(tensor) == bits(one[name]), name


def test_the_order_in_memory_does_not_matter() -> None:
    one = tensors(1)
    other = {name: tensor.contiguous() for name, tensor in one.items()}
    for block in range(len(RestBlocks(one).sizes)):
        assert np.array_equal(RestBlocks(one).read(block), RestBlocks(other).read(block))
        assert digest(one["turned"]) == digest(other["turned"])


def test_a_large_tensor_begins_a_block_and_small_ones_share_one() -> None:
    rest = RestBlocks(
        {"a": torch.zeros(10), "b": torch.zeros(10), "large": torch.zeros(ANNEX_BYTES // 4 + 1), "c": torch.zeros(3)}
    )
    assert rest.sizes == [40 + 40, ANNEX_BYTES, 8 + 12]


def test_what_cannot_be_written_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="mask is expanded"):
        RestBlocks({"mask": torch.ones(1).expand(4)})
    RestBlocks({"row": torch.ones(4).expand(1, 4)})
