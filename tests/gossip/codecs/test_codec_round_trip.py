"""How far decoded values may be from what was encoded, by an independent bound for each codec."""

from __future__ import annotations

import numpy as np
import pytest
from codec_cases import ALL, DENSE, DTYPES, HALVES, SIZES, VECTORS, largest, normal, round_trip, wide

from gossip.codecs import Codec, Unencodable, parse
from gossip.values.blocks import BFLOAT16

#: Relative and absolute error of rounding to each kind.
PRECISION = {np.dtype(np.float16): (2.0**-11, 2.0**-25), BFLOAT16: (2.0**-8, 1e-38)}


def by_block(values: np.ndarray, block: int, reduce: np.ufunc) -> np.ndarray:
    """Return the sum or the largest of the sizes in each value's block."""
    starts = np.arange(0, values.size, block)
    return np.repeat(reduce.reduceat(np.abs(values), starts), np.diff(starts, append=values.size))


def bound(codec: Codec, values: np.ndarray) -> np.ndarray | float:
    """Return how far each value may be off."""
    if codec.name in ("bf16", "fp16"):
        relative, absolute = PRECISION[BFLOAT16 if codec.name == "bf16" else np.dtype(np.float16)]
        return relative * np.abs(values) + absolute
    steps = by_block(values, codec.block, np.maximum) / codec.levels  # type: ignore[attr-defined]
    if codec.name == "int2":
        steps *= 2  # -3, -1, 1, 3
    return steps * (1 + 1e-5 if codec.stochastic else 0.5 + 1e-4) + 2e-38 * codec.levels  # type: ignore[attr-defined]


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", [t for t in DENSE if t.split(":")[0] not in ("none", "sign") and "clip" not in t])
def test_rounding_is_within_its_bound(text: str, dtype: np.dtype, vector: str) -> None:
    codec = parse(text)
    for size in SIZES:
        values = VECTORS[vector](size, size).astype(dtype)
        decoded = wide(round_trip(codec, values, 3))
        values = wide(values)
        allowed = bound(codec, values)
        if dtype in PRECISION:  # the receiver's own numbers are coarse
            allowed = allowed + np.abs(decoded) * PRECISION[dtype][0] + PRECISION[dtype][1]
        off = np.abs(decoded - values)
        assert (off <= allowed).all(), (size, float((off - allowed).max()))
        if text not in HALVES:
            assert (decoded[values == 0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", ["none", "topk:share=100%"])
def test_what_is_not_rounded_is_the_same_to_the_bit(text: str, dtype: np.dtype) -> None:
    for size in SIZES:
        values = normal(size, 1).astype(dtype)
        assert round_trip(text, values).tobytes() == values.tobytes()


@pytest.mark.parametrize(("text", "dtype"), [("bf16", BFLOAT16), ("fp16", np.dtype(np.float16))])
def test_half_precision_of_itself_is_itself(text: str, dtype: np.dtype) -> None:
    values = normal(5000, 1).astype(dtype)
    assert round_trip(text, values).tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("block", [8, 256])
def test_signs_have_the_mean_size_of_their_block(block: int, vector: str, dtype: np.dtype) -> None:
    for size in SIZES:
        values = VECTORS[vector](size, size).astype(dtype)
        decoded, values = wide(round_trip(f"sign:block={block}", values)), wide(values)
        expected = (
            np.where(np.signbit(values), -1, 1)
            * by_block(values, block, np.add)
            / by_block(np.ones(size), block, np.add)
        )
        assert np.abs(decoded - expected).max() <= np.abs(expected).max() * (2.0**-8 if dtype == BFLOAT16 else 1e-3)
        if dtype == np.float32:
            np.testing.assert_allclose(decoded, expected, rtol=1e-5)


def test_clipping_shortens_the_scale_to_so_many_deviations() -> None:
    values = np.full(256, 0.01, np.float32)
    values[7] = 1.0
    decoded = round_trip("terngrad:clip=2.5", values, 1)
    rms = float(np.sqrt((wide(values) ** 2).mean()))
    assert decoded[7] == pytest.approx(2.5 * rms, rel=1e-5)
    assert round_trip("terngrad", values, 1)[7] == 1.0


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_and_zeros(text: str, dtype: np.dtype) -> None:
    assert round_trip(text, np.empty(0, dtype)).size == 0
    for size in SIZES[:-1]:
        assert not round_trip(text, np.zeros(size, dtype)).any()


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_numbers_stay_numbers_and_the_smallest_do_no_harm(text: str, dtype: np.dtype) -> None:
    top = largest(dtype)
    mixed = np.tile(np.array([top, -top, top / 2, 1.0, 0.0]), 200).astype(dtype)
    for values in (np.full(1000, top, np.float64).astype(dtype), mixed, -mixed):
        decoded = round_trip(text, values, 1)  # asserts that all are finite
        if text in ("int8", "bf16", "qsgd:levels=127") and dtype != np.float64:
            assert np.abs(wide(decoded) - wide(values)).max() <= top / 100
    for size in (1e-45, 1e-42, 1e-40, 1e-39, 1.2e-38, 2e-38, 1e-36):
        tiny = np.array([size, -size / 3, 0.0] * 30).astype(dtype)
        assert np.abs(wide(round_trip(text, tiny, 1))).max() <= 1.01 * size + 1e-40


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_number_of_levels_makes_the_largest_number_infinite(dtype: np.dtype) -> None:
    for levels in range(1, 128):
        round_trip(f"qsgd:levels={levels}", np.full(9, largest(dtype)).astype(dtype))  # asserts that all are finite


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_finite_is_not_sent(text: str, dtype: np.dtype) -> None:
    values = normal(66_001, 2).astype(dtype)
    for where in (0, 65_536, -1):
        for bad in (np.nan, np.inf, -np.inf):
            spoiled = values.copy()
            spoiled[where] = bad
            with pytest.raises(Unencodable, match="NaN or infinity"):
                parse(text).encode(spoiled)


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 2), np.float32), np.zeros(4, np.int32), np.zeros(4, np.complex64), np.float32(1), np.zeros(2, "O")],
    ids=repr,
)
def test_what_is_no_vector_of_numbers_is_not_sent(values: np.ndarray) -> None:
    with pytest.raises(Unencodable, match="a flat vector of floating-point numbers"):
        parse("int8").encode(values)


@pytest.mark.parametrize("text", ALL)
def test_a_vector_with_gaps_in_memory(text: str) -> None:
    values = normal(2000, 3).astype(np.float32)
    codec = parse(text)
    assert codec.encode(values[::2], keys=(1,)).tobytes() == codec.encode(values[::2].copy(), keys=(1,)).tobytes()
