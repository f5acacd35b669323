"""Walking block by block finds and makes the same, to the last bit, as walking over everything at once."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from gossip.values import blocks
from gossip.values.blocks import BFLOAT16

DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16]
SIZES = [1, 7, 4096, 70_001, 200_000]


def numbers(size: int, dtype: np.dtype, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_copy_is_sealed_as_a_whole(size: int, dtype: np.dtype) -> None:
    values = numbers(size, dtype)
    target = np.empty_like(values)
    seal = xxhash.xxh3_64_intdigest(values.view(np.uint8).data)
    assert blocks.copy(values, target) == blocks.inspect(values) == (seal, True)
    assert target.tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fraction", [0.5, 0.1, 1 / 3])
def test_blending_by_blocks_is_blending_at_once(size: int, dtype: np.dtype, fraction: float) -> None:
    own, values = numbers(size, dtype), numbers(size, dtype, 1)
    wide = own.astype(np.float32) if dtype.itemsize < 4 else own
    difference = values.astype(wide.dtype) - wide
    difference *= fraction
    expected = (wide + difference).astype(dtype)
    before = values.tobytes()
    blocks.blend(own, values, fraction)
    assert own.tobytes() == expected.tobytes()
    assert values.tobytes() == before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_blending_what_is_not_finite_makes_no_noise(dtype: np.dtype) -> None:
    own = np.array([np.inf, np.inf, np.nan, 1.0], dtype)
    blocks.blend(own, np.array([np.inf, 1.0, 1.0, 3.0], dtype), 0.5)
    assert not np.isfinite(own[:3].astype(np.float64)).any()
    assert float(own[3]) == 2.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("where", [0, 65_535, 65_536, 131_072, -1])
def test_one_bad_number_is_found_wherever_it_is(dtype: np.dtype, bad: str, where: int) -> None:
    values = numbers(200_000, dtype)
    values[where] = float(bad)
    assert not blocks.is_finite(values)
    assert not blocks.inspect(values).finite
    assert not blocks.copy(values, np.empty_like(values)).finite


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinities_do_not_cancel_and_the_largest_numbers_are_numbers(dtype: np.dtype) -> None:
    values = numbers(200_000, dtype)
    values[5], values[6] = np.inf, -np.inf
    assert not blocks.is_finite(values)
    largest = np.finfo(dtype).max if dtype != BFLOAT16 else np.array(0x7F7F, np.uint16).view(BFLOAT16)
    values[:] = largest
    assert blocks.is_finite(values), "their sum is infinite, they are not"
    values[-1] = np.nan
    assert not blocks.is_finite(values)
