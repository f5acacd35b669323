"""Codecs and vectors that the tests of codecs have in common."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gossip.codecs import Codec, parse
from gossip.values.blocks import BFLOAT16

DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16]
ROUNDING = ["bf16", "fp16", "int8", "int8:block=8", "int4", "int4:block=72", "qsgd", "qsgd:levels=127", "qsgd:levels=1"]
#: These have no 0 among the multiples of a scale.
HALVES = ["int2", "int2:block=8"]
DENSE = ["none", *ROUNDING, *HALVES, "terngrad", "terngrad:clip=2.5", "sign", "sign:block=8"]
SPARSE = ["topk", "topk:share=10%,values=int8", "topk:share=0.5,values=int4", "topk:share=30%,values=bf16", "adacomp"]
SPARSE += ["adacomp:block=48", "topk:share=100%"]
ALL = DENSE + SPARSE
#: Around a byte, a block, and a stretch or a page.
SIZES = [1, 7, 8, 257, 5000, 65_537]


def largest(dtype: np.dtype) -> float:
    return float(np.array(0x7F7F, np.uint16).view(BFLOAT16)) if dtype == BFLOAT16 else float(np.finfo(dtype).max)


def normal(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def heavy(size: int, seed: int) -> np.ndarray:
    """Many sizes at once, within what float16 can tell from 0 and from infinity."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(size) * 10.0 ** rng.uniform(-4, 3.5, size)


def patchy(size: int, seed: int) -> np.ndarray:
    """Blocks of zeros, zeros of either sign, and few others."""
    values = normal(size, seed)
    values[values < 1] *= 0.0
    values[: size // 3] = 0.0
    return values


VECTORS: dict[str, Callable[[int, int], np.ndarray]] = {"normal": normal, "heavy": heavy, "patchy": patchy}


def wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def round_trip(codec: Codec | str, values: np.ndarray, *keys: int) -> np.ndarray:
    """Encode and decode; hold the codec to what holds for all of them."""
    if isinstance(codec, str):
        codec = parse(codec)
    before = values.tobytes()
    payload = codec.encode(values, keys=keys)
    size = codec.size(values.size, values.dtype)
    assert payload.dtype == np.uint8
    assert payload.size == size if codec.exact_size else payload.size <= size
    decoded = codec.decode(payload.tobytes(), values.size, values.dtype)
    assert decoded.shape == values.shape
    assert decoded.dtype == values.dtype
    assert np.isfinite(wide(decoded)).all()
    assert values.tobytes() == before, "the values are not the codec's to change"
    return decoded
