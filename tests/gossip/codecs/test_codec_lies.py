"""Whatever bytes arrive, they are rejected or decode to as many finite values as were asked for."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from codec_cases import ALL, DTYPES, largest, normal, wide

from gossip.codecs import parse
from gossip.errors import Reason, Rejected, SettingsError

NAN, INF = float("nan"), float("inf")


def outcome(text: str, payload: bytes, count: int, dtype: np.dtype) -> Reason | None:
    """Return why it was rejected, or None if it decoded to what may reach the parameters."""
    try:
        values = parse(text).decode(payload, count, dtype)
    except Rejected as error:
        return error.reason
    assert values.shape == (count,)
    assert values.dtype == dtype
    assert np.isfinite(wide(values)).all()
    return None


@pytest.mark.parametrize("text", ALL)
def test_every_truncation_and_every_extension_is_rejected(text: str) -> None:
    for count in (1, 9, 100):
        payload = parse(text).encode(normal(count, 1).astype(np.float32), keys=(1,)).tobytes()
        assert outcome(text, payload, count, DTYPES[0]) is None
        for length in range(len(payload)):
            assert outcome(text, payload[:length], count, DTYPES[0]) is not None, length
        for more in range(1, 9):
            assert outcome(text, payload + bytes(more), count, DTYPES[0]) is Reason.OVERSIZED


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("other", [0, 1, 99, 101, 70_000])
def test_a_payload_of_another_count_is_rejected(text: str, other: int) -> None:
    payload = parse(text).encode(normal(300, 1).astype(np.float32), keys=(1,)).tobytes()
    assert outcome(text, payload, other, DTYPES[0]) is not None


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("text", ALL)
def test_random_bytes(text: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        count = int(rng.integers(1, 40))
        dtype = DTYPES[rng.integers(4)]
        size = parse(text).size(count, dtype)
        outcome(text, rng.bytes(size), count, dtype)
        outcome(text, rng.bytes(int(rng.integers(0, 2 * size))), count, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", ALL)
def test_every_byte_damaged(text: str, dtype: np.dtype) -> None:
    payload = parse(text).encode(normal(21, 1).astype(dtype), keys=(1,)).tobytes()
    for place in range(len(payload)):
        for value in (0x00, 0x7F, 0x80, 0xFF, payload[place] ^ 1):
            outcome(text, payload[:place] + bytes([value]) + payload[place + 1 :], 21, dtype)


@pytest.mark.parametrize(
    "text", ["int8", "int4", "int2", "sign", "terngrad", "qsgd", "topk:share=100%,values=int8", "adacomp"]
)
@pytest.mark.parametrize(
    ("scale", "reason"),
    [(NAN, Reason.NOT_FINITE), (INF, Reason.NOT_FINITE), (-INF, Reason.NOT_FINITE), (-1.0, Reason.MALFORMED)],
)
def test_a_scale_that_is_none(text: str, scale: float, reason: Reason) -> None:
    payload = bytearray(parse(text).encode(np.ones(20, np.float32)).tobytes())
    where = {"topk": 4 + 2 * 20, "adacomp": 4}.get(text.split(":")[0], 0)
    payload[where : where + 4] = struct.pack("<f", scale)
    assert outcome(text, bytes(payload), 20, DTYPES[0]) is reason


@pytest.mark.parametrize(
    ("text", "levels"), [("int8", 127), ("int4", 7), ("int2", 3), ("sign", 1), ("terngrad", 1), ("adacomp", 1)]
)
def test_a_scale_whose_multiple_is_too_large_for_the_kind_of_number(text: str, levels: int) -> None:
    payload = bytearray(parse(text).encode(np.ones(20, np.float32)).tobytes())
    where = 4 if text == "adacomp" else 0
    payload[where : where + 4] = struct.pack("<f", 65_504 / levels * 1.01)
    assert outcome(text, bytes(payload), 20, np.dtype(np.float16)) is Reason.MALFORMED
    assert outcome(text, bytes(payload), 20, np.dtype(np.float32)) is None
    if levels > 1:
        payload[:4] = struct.pack("<f", 3.4e38 / levels * 1.01)
        assert outcome(text, bytes(payload), 20, np.dtype(np.float32)) is Reason.MALFORMED


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_scale_that_is_believed_makes_no_infinity(dtype: np.dtype) -> None:
    for levels in range(2, 128):
        text = f"qsgd:levels={levels}"
        codes = parse(text).encode(np.ones(9, np.float32)).tobytes()[4:]
        most = np.float32(min(largest(dtype), largest(DTYPES[0])) / levels)
        below, above = np.nextafter(most, np.float32([0, np.inf]))
        assert outcome(text, struct.pack("<f", below) + codes, 9, dtype) is None
        outcome(text, struct.pack("<f", most) + codes, 9, dtype)
        assert outcome(text, struct.pack("<f", above) + codes, 9, dtype) is not None


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        ("int8", 4, 0x80),  # -128
        ("int4", 4, 0x80),  # -8 and 0
        ("int4", 4, 0x08),
        ("qsgd:levels=5", 4, 0x8E),  # 6
        ("terngrad", 4, 0b10_10_10_00),  # -2
        ("int4", -1, 0x88),  # of 9 values: one behind the last
        ("int2", -1, 0b1010),
        ("terngrad", -1, 0b1010),
        ("sign", -1, 0b11),
    ],
)
def test_codes_that_nobody_writes(text: str, place: int, value: int) -> None:
    payload = bytearray(parse(text).encode(np.ones(9, np.float32), keys=(1,)).tobytes())
    payload[place] = value
    assert outcome(text, bytes(payload), 9, DTYPES[0]) is Reason.MALFORMED


@pytest.mark.parametrize(
    ("counts", "places", "reason"),
    [
        ((2, 1), (5, 5, 0), Reason.MALFORMED),
        ((2, 1), (6, 5, 0), Reason.MALFORMED),
        ((2, 1), (5, 6, 4463), None),
        ((2, 1), (5, 6, 4464), Reason.SHAPE),
        ((1, 1), (5, 6, 7), Reason.SHAPE),
        ((2, 2), (5, 6, 7), Reason.SHAPE),
        ((0xFFFFFFFF, 4), (5, 6, 7), Reason.SHAPE),
        ((0, 3), (1, 2, 3), None),
        ((0, 3), (3, 2, 1), Reason.MALFORMED),
    ],
)
def test_places_that_cannot_be(counts: tuple[int, ...], places: tuple[int, ...], reason: Reason | None) -> None:
    payload = struct.pack("<2I3H3f", *counts, *places, 1.0, 2.0, 3.0)
    assert outcome("topk:share=0.00004", payload, 70_000, DTYPES[0]) is reason
    reason = Reason.TRUNCATED if counts == (2, 2) else Reason.OVERSIZED if counts == (1, 1) else reason
    payload = struct.pack("<2I2f3HB", *counts, 1.0, 2.0, *places, 0b101)
    assert outcome("adacomp", payload, 70_000, DTYPES[0]) is reason


def test_signs_behind_the_last_of_adacomp() -> None:
    payload = struct.pack("<If2HB", 2, 1.0, 3, 4, 0b100)
    assert outcome("adacomp", payload, 10, DTYPES[0]) is Reason.MALFORMED


@pytest.mark.parametrize("text", ["none", "bf16", "fp16", "topk:share=100%"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_numbers_that_are_none(text: str, bad: float) -> None:
    payload = bytearray(parse(text).encode(np.ones(20, np.float32)).tobytes())
    payload[-4:] = {
        "bf16": struct.pack("<f", bad)[2:] * 2,
        "fp16": struct.pack("<2e", bad, bad),
    }.get(text, struct.pack("<f", bad))
    assert outcome(text, bytes(payload), 20, DTYPES[0]) is Reason.NOT_FINITE


def test_a_bfloat16_that_is_no_float16() -> None:
    assert outcome("bf16", struct.pack("<f", 1e5)[2:], 1, np.dtype(np.float16)) is Reason.NOT_FINITE


@pytest.mark.parametrize("text", ALL)
def test_a_lie_costs_no_memory(text: str) -> None:
    lies = [b"\xff" * 40, b"\xff" * 3, struct.pack("<I", 0xFFFFFFF0) * 10]
    parse(text).encode(np.ones(10, np.float32))  # whatever is imported or cached on first use
    tracemalloc.start()
    try:
        for lie in lies:
            outcome(text, lie, 10, DTYPES[0])
            outcome(text, lie, 10**9, DTYPES[0])
        assert tracemalloc.get_traced_memory()[1] < 1 << 17
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ALL)
def test_payloads_may_lie_anywhere_in_memory(text: str) -> None:
    values = normal(1000, 1).astype(np.float32)
    payload = parse(text).encode(values, keys=(1,)).tobytes()
    expected = parse(text).decode(payload, 1000, np.float32).tobytes()
    for shift in (1, 2, 3):
        buffer = bytearray(shift) + payload
        for view in (memoryview(buffer)[shift:], memoryview(buffer).toreadonly()[shift:], bytes(buffer)[shift:]):
            assert parse(text).decode(view, 1000, np.float32).tobytes() == expected


@pytest.mark.parametrize("text", ALL)
def test_kinds_of_numbers_that_no_shard_has(text: str) -> None:
    with pytest.raises(SettingsError, match="not int32"):
        parse(text).decode(b"", 0, np.int32)
