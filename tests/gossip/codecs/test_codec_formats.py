"""The formats byte by byte, made by hand, and the sparse codecs against references that look at one value at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from codec_cases import SIZES, VECTORS, round_trip, wide

from gossip.codecs import parse

ROW = [1.0, -2.0, 0.0, 0.5, -0.5, 2.0, 0.25, -1.0, 4.0, -4.0, 3.0]


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def nibbles(*codes: int) -> bytes:
    codes = (*codes, -8) if len(codes) % 2 else codes
    return bytes((low + 8) | (high + 8) << 4 for low, high in zip(codes[::2], codes[1::2], strict=True))


def quarters(*codes: int) -> bytes:
    fours = np.array([code + 2 for code in codes] + [0] * (-len(codes) % 4)).reshape(-1, 4)
    return bytes((fours << [0, 2, 4, 6]).sum(axis=1).tolist())


GOLDEN = {
    "none": floats(*ROW),
    "bf16": b"".join(floats(value)[2:] for value in ROW),
    "fp16": struct.pack("<11e", *ROW),
    # Two blocks of 8. As a float32, 2/7 is a little more than that, so that 1 is a little less than 3.5 steps.
    "int8:block=8": floats(2 / 127, 4 / 127) + struct.pack("11b", 64, -127, 0, 32, -32, 127, 16, -64, 127, -127, 95),
    "int4:block=8": floats(2 / 7, 4 / 7) + nibbles(3, -7, 0, 2, -2, 7, 1, -3, 7, -7, 5),
    # 1 is nearer to 2/3 than to 2, 0 counts as positive, and 3 is nearer to 4 than to 4/3.
    "int2:block=8": floats(2 / 3, 4 / 3) + quarters(0, -2, 0, 0, -1, 1, 0, -1, 1, -2, 1),
    "sign:block=8": floats(7.25 / 8, 11 / 3) + bytes([0b10010010, 0b010]),
    # 27% of 11 values is 3 of them, 45% is 5.
    "topk:share=27%": struct.pack("<I3H", 3, 8, 9, 10) + floats(4, -4, 3),
    "topk:share=45%,values=int8": struct.pack("<I5H", 5, 1, 5, 8, 9, 10)
    + floats(4 / 127)
    + struct.pack("5b", -64, 64, 127, -127, 95),
    # Twice the value reaches the largest of its block: 2 in the first, 4 in the second.
    "adacomp:block=8": struct.pack("<I", 7) + floats(3) + struct.pack("<7H", 0, 1, 5, 7, 8, 9, 10) + bytes([0b0101010]),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_payload_is_these_bytes(text: str) -> None:
    assert parse(text).encode(np.array(ROW, np.float32)).tobytes() == GOLDEN[text]


@pytest.mark.parametrize(
    "text", ["terngrad:block=8", "qsgd:block=8", "qsgd:block=8,levels=127", "qsgd:block=8,levels=1"]
)
def test_what_needs_no_rounding_is_not_rounded(text: str) -> None:
    values = np.array([7.0, 0.0, -7.0, 7.0, 0.0, 0.0, -7.0, 7.0, -7.0], np.float32)
    payload = parse(text).encode(values, keys=(4,)).tobytes()
    bits = {"terngrad:block=8": 2, "qsgd:block=8": 4, "qsgd:block=8,levels=127": 8, "qsgd:block=8,levels=1": 2}[text]
    most = {2: 1, 4: 7, 8: 127}[bits]
    signs = [1, 0, -1, 1, 0, 0, -1, 1, -1]
    if bits == 8:
        codes = struct.pack("9b", *(most * sign for sign in signs))
    elif bits == 4:
        codes = nibbles(*(most * sign for sign in signs))
    else:
        codes = bytes([0b11_01_10_11, 0b11_01_10_10, 0b01])
    assert payload == floats(7 / most, 7 / most) + codes


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
def test_the_largest_are_sent_and_ties_from_the_front(share: float, vector: str) -> None:
    codec = parse(f"topk:share={share}")
    for size in SIZES:
        values = VECTORS[vector](size, size).astype(np.float32)
        values = np.round(values, 1)  # so that there are many ties
        k = min(size, max(1, round(share * size)))
        order = np.lexsort((np.arange(size), -np.abs(values)))[:k]
        expected = np.zeros_like(values)
        expected[order] = values[order]
        payload = codec.encode(values)
        assert (codec.decode(payload, size, np.float32) == expected).all()
        pages = -(-size // 65_536)
        places = payload[4 * pages : 4 * pages + 2 * k].view("<u2")
        assert places.tolist() == [place % 65_536 for place in sorted(order.tolist())]


def test_a_sample_that_misleads_does_not_change_what_is_sent() -> None:
    values = np.arange(1, 20_001, dtype=np.float32)
    values[::64] += 1e6  # all that is large is where samples are taken
    sent = round_trip("topk:share=5%", values)
    assert np.count_nonzero(sent) == 1000
    assert set(np.flatnonzero(sent)) == set(np.argsort(-values)[:1000])


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("block", [48, 512])
def test_adacomp_against_its_rule(block: int, vector: str) -> None:
    size, seed = 66_000, 1
    latest = VECTORS[vector](size, seed).astype(np.float32)
    values = VECTORS[vector](size, seed + 10).astype(np.float32) + latest
    expected = np.zeros(size)
    for page in range(0, size, 65_536):
        chosen, tops = [], []
        for start in range(page, min(page + 65_536, size), block):
            stop = min(start + block, page + 65_536, size)
            top = float(np.abs(values[start:stop]).max())
            if top:
                tops.append(top)
                ahead = np.abs(values[start:stop] + latest[start:stop])
                chosen += [start + i for i in range(stop - start) if ahead[i] >= top and values[start + i]]
        for place in chosen:
            expected[place] = np.copysign(np.mean(tops), values[place])
    codec = parse(f"adacomp:block={block}")
    decoded = codec.decode(codec.encode(values, latest=latest), size, np.float32)
    np.testing.assert_allclose(wide(decoded), expected, rtol=1e-6)
    assert 0 < np.count_nonzero(decoded) < size
