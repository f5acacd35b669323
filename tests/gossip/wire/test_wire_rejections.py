"""Every reason to throw a frame away is reached by a frame made for it, and nothing but `Rejected` comes out."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import msgpack
import numpy as np
import pytest
from hand_swarm import sealed, sealed_bytes

from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.frames import VERSION, WireCodec
from gossip.wire.limits import HEADER_LIMIT, WEIGHT_LIMIT
from gossip.wire.messages import Ack, Address, Parcel, Piece

LAYOUT = Layout.uniform(4, 2, np.dtype(np.float32))
CODEC = WireCodec("run", LAYOUT)
BODY = np.array([1.0, -2.0], np.float32).tobytes()
ACK = [VERSION, "run", 1, 7, 0, 1, 0, 5]
PARCEL = [VERSION, "run", 0, 7, 0, 1, 0, 5, 6, 1, 0.5, 0.0, "float32", 8, ""]
ORIGIN, SEQUENCE, TURN, SHARD, WEIGHT, ASK, DTYPE, LENGTH, CODEC_NAME = 3, 7, 8, 9, 10, 11, 12, 13, 14


def reason(frames: Sequence[bytes]) -> Reason:
    """Return why the frames are rejected; that they are not is an error of the test."""
    with pytest.raises(Rejected) as caught:
        CODEC.decode(frames)
    assert str(caught.value).startswith(f"{caught.value.reason.value}: ")
    return caught.value.reason


def changed(fields: list[object], index: int, value: object) -> list[object]:
    return [*fields[:index], value, *fields[index + 1 :]]


def test_the_frames_that_the_cases_start_from_are_good() -> None:
    assert CODEC.decode(sealed(ACK)) == Ack(Address(7, 0), Address(1, 0), 5)
    assert isinstance(CODEC.decode(sealed(PARCEL, BODY)), Parcel)


@pytest.mark.parametrize("frames", [[], [b"x" * 20] * 3, [b""] * 3], ids=["none", "three", "three empty"])
def test_a_message_has_one_or_two_frames(frames: list[bytes]) -> None:
    assert reason(frames) is Reason.MALFORMED


@pytest.mark.parametrize(
    "header",
    [
        b"\xc1",  # never used in msgpack
        b"\x93\x01\x02",  # an array of three, with two
        msgpack.packb(ACK) + b"\x00",  # bytes after the end
        b"\xa2\xff\xff",  # a string that is not UTF-8
        b"\x91" * 200 + b"\x01",  # nested as deep as the limit allows
        b"\xdd\xff\xff\xff\xff",  # an array of four billion
        b"\xdb\xff\xff\xff\xff",  # a string of four billion
        b"\xdf\xff\xff\xff\xff",  # a map of four billion
        b"\xc6\xff\xff\xff\xff",  # four billion bytes
        b"\xc9\xff\xff\xff\xff\x01",  # an extension of four billion bytes
    ],
)
def test_what_is_not_a_msgpack_array_is_malformed(header: bytes) -> None:
    expected = {Reason.VERSION, Reason.MALFORMED} if header.startswith(b"\x91") else {Reason.MALFORMED}
    assert reason(sealed_bytes(header)) in expected


@pytest.mark.parametrize(
    "header",
    [
        {"version": 1},
        {},
        [],
        7,
        None,
        "text",
        b"bytes",
        1.5,
        msgpack.ExtType(5, b"data"),
        msgpack.Timestamp(1, 2),
        [VERSION, "run", {1: 2}, 7, 0, 1, 0, 5],
        [VERSION, "run", {"kind": 1}, 7, 0, 1, 0, 5],
        [VERSION, "run", msgpack.ExtType(5, b"x"), 7, 0, 1, 0, 5],
        [VERSION, "run", 1, b"7", 0, 1, 0, 5],
        list(range(33)),
    ],
    ids=repr,
)
def test_a_header_of_another_shape_is_malformed(header: object) -> None:
    assert reason(sealed(header)) is Reason.MALFORMED


@pytest.mark.parametrize("good", [ACK, PARCEL, [VERSION, "run", 3, 7, 0, 1, 0, 5, 0], [VERSION, "run", 4, 7, 0, 1, 0]])
def test_one_field_too_few_or_too_many_is_malformed(good: list[object]) -> None:
    body = BODY if good is PARCEL else None
    assert reason(sealed(good[:-1], body)) is Reason.MALFORMED
    assert reason(sealed([*good, 0], body)) is Reason.MALFORMED
    assert reason(sealed(good[:1], body)) is Reason.MALFORMED


@pytest.mark.parametrize("kind", [6, -1, 255, 2**60, "0", None, 1.5, b""])
def test_a_kind_that_there_is_not_is_malformed(kind: object) -> None:
    assert reason(sealed(changed(ACK, 2, kind))) is Reason.MALFORMED


@pytest.mark.parametrize("value", [True, False, -1, 2**53, 2**64 - 1, -(2**63), 1.0, "1", None, [1], b""], ids=repr)
@pytest.mark.parametrize("index", [3, 4, 5, 6, SEQUENCE, TURN])
def test_a_count_is_a_whole_number_below_two_to_the_53(index: int, value: object) -> None:
    assert reason(sealed(changed(PARCEL, index, value), BODY)) is Reason.MALFORMED


def test_values_behind_a_message_without_any_are_malformed() -> None:
    assert reason(sealed(ACK, BODY)) is Reason.MALFORMED
    assert reason(sealed(ACK, b"")) is Reason.MALFORMED


@pytest.mark.parametrize("length", range(9))
def test_a_header_shorter_than_its_seal_is_truncated(length: int) -> None:
    assert reason([b"\x91" * length]) is (Reason.TRUNCATED if length <= 8 else Reason.MALFORMED)


@pytest.mark.parametrize("body", [None, b"", BODY[:-1], BODY[:4]])
def test_values_that_are_not_all_there_are_truncated(body: bytes | None) -> None:
    assert reason(sealed(PARCEL, body)) is Reason.TRUNCATED


@pytest.mark.parametrize("body", [BODY + b"\0", BODY * 2, BODY * 1000])
def test_more_values_than_announced_are_oversized(body: bytes) -> None:
    assert reason(sealed(PARCEL, body)) is Reason.OVERSIZED


def test_a_header_beyond_the_limit_is_oversized_and_not_even_looked_at() -> None:
    assert reason([b"\xc1" * (HEADER_LIMIT + 1)]) is Reason.OVERSIZED
    assert reason([b"\xc1" * HEADER_LIMIT]) is Reason.MALFORMED


def test_no_flipped_bit_of_a_header_or_its_seal_gets_through() -> None:
    for frames in (sealed(ACK), sealed(PARCEL, BODY)):
        for bit in range(8 * len(frames[0])):
            damaged = bytearray(frames[0])
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Rejected) as caught:
                CODEC.decode([bytes(damaged), *frames[1:]])
            assert caught.value.reason in {Reason.CHECKSUM, Reason.MALFORMED, Reason.VERSION}


def test_no_flipped_bit_of_the_values_gets_through() -> None:
    big = Layout.uniform(4096, 1, np.dtype(np.float32))
    codec = WireCodec("run", big)
    values = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    header, body = codec.encode(Parcel(Address(0, 0), Address(1, 0), 0, 0, 0, 0.5, values))
    for bit in [0, 7, 8 * len(body) - 1, *range(1, 8 * len(body), 1013)]:
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Rejected) as caught:
            codec.decode([header, damaged])
        assert caught.value.reason is Reason.CHECKSUM


def test_values_of_another_parcel_do_not_fit_the_seal() -> None:
    frames = sealed(PARCEL, BODY)
    assert reason([frames[0], BODY[::-1]]) is Reason.CHECKSUM
    assert reason([frames[0]]) is Reason.MALFORMED, "the seal of values that are missing is no part of a header"


@pytest.mark.parametrize("version", [0, 1, 255, -1, "1", None, [1], 1.5])
def test_another_version_is_told_from_damage(version: object) -> None:
    assert reason(sealed(changed(ACK, 0, version))) is Reason.VERSION


def test_another_version_may_seal_otherwise_and_have_other_fields() -> None:
    assert reason([msgpack.packb([VERSION + 1, "x", "y"]) + b"otherway"]) is Reason.VERSION


@pytest.mark.parametrize("run", ["other", "", "run ", "Run", 1, None, b"run", ["run"]])
def test_a_frame_of_another_run_is_rejected(run: object) -> None:
    expected = Reason.MALFORMED if run == b"run" else Reason.RUN  # no bytes in a header at all
    assert reason(sealed(changed(ACK, 1, run))) is expected


@pytest.mark.parametrize("shard", [2, 2**52, -1, True, 0.0, "0", None, [0]])
def test_a_shard_that_there_is_not_has_the_wrong_shape(shard: object) -> None:
    assert reason(sealed(changed(PARCEL, SHARD, shard), BODY)) is Reason.SHAPE
    assert reason(sealed([VERSION, "run", 3, 7, 0, 1, 0, 5, shard])) is Reason.SHAPE


@pytest.mark.parametrize("length", [0, 4, 12, 16, -8, 2**62, 8.0, True, "8", None])
def test_a_length_that_the_shard_does_not_have_has_the_wrong_shape(length: object) -> None:
    assert reason(sealed(changed(PARCEL, LENGTH, length), BODY)) is Reason.SHAPE


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", ">f4", "int32", "f4", "O", "", 0, None, ["float32"]]
)
def test_values_of_another_type_are_rejected(dtype: object) -> None:
    assert reason(sealed(changed(PARCEL, DTYPE, dtype), BODY)) is Reason.DTYPE


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 2])
def test_nan_and_infinity_never_get_through(dtype: str, bad: float, index: int) -> None:
    values = np.array([1.0, np.finfo(dtype).max, 1.0], dtype)
    values[index] = bad
    codec = WireCodec("run", Layout.uniform(3, 1, np.dtype(dtype)))
    with pytest.raises(Rejected) as caught:
        codec.decode(codec.encode(Parcel(Address(0, 0), Address(1, 0), 0, 0, 0, 0.5, values)))
    assert caught.value.reason is Reason.NOT_FINITE


@pytest.mark.parametrize(
    "weight", [0.0, -0.0, -1.0, float("nan"), float("inf"), -float("inf"), WEIGHT_LIMIT * 1.001, 1, True, "1", None]
)
def test_a_weight_is_a_positive_sane_float(weight: object) -> None:
    assert reason(sealed(changed(PARCEL, WEIGHT, weight), BODY)) is Reason.WEIGHT


@pytest.mark.parametrize("ask", [1.0, 1.5, -0.1, float("nan"), float("inf"), 0, True, "0", None])
def test_nobody_can_ask_for_all_of_our_mass_or_more(ask: object) -> None:
    assert reason(sealed(changed(PARCEL, ASK, ask), BODY)) is Reason.MALFORMED


@pytest.mark.parametrize("length", [3.0, True, "3", None, 2, 4])
def test_a_length_that_the_annex_does_not_have_has_the_wrong_shape(length: object) -> None:
    assert reason(sealed([VERSION, "run", 9, 7, 0, 1, 0, 2, 3, 0, "uint8", length], b"abc")) is Reason.SHAPE
    assert isinstance(CODEC.decode(sealed([VERSION, "run", 9, 7, 0, 1, 0, 2, 3, 0, "uint8", 3], b"abc")), Piece)


def test_the_sender_is_named_once_the_seal_is_checked() -> None:
    with pytest.raises(Rejected) as caught:
        CODEC.decode(sealed(changed(PARCEL, WEIGHT, -1.0), BODY))
    assert caught.value.origin == 7
    with pytest.raises(Rejected) as caught:
        CODEC.decode([sealed(PARCEL, BODY)[0], BODY[::-1]])
    assert caught.value.origin == 7, "the header is sealed by itself: only the values are damaged"
    frames = sealed(PARCEL, BODY)
    with pytest.raises(Rejected) as caught:
        CODEC.decode([frames[0][:-1] + bytes([frames[0][-1] ^ 1]), BODY])
    assert caught.value.reason is Reason.CHECKSUM
    assert caught.value.origin is None, "nothing in a damaged header can be believed"


def test_a_lie_about_a_length_allocates_nothing() -> None:
    huge = 2**40
    lies = [
        sealed(changed(PARCEL, LENGTH, huge), BODY),
        sealed(PARCEL, BODY[:4]),
        sealed_bytes(b"\xdd\xff\xff\xff\xff"),
        sealed_bytes(b"\xdb\xff\xff\xff\xff"),
        sealed_bytes(b"\xc6\xff\xff\xff\xff"),
        sealed_bytes(b"\x9e" + b"\xdd\x7f\xff\xff\xff" * 14),
        sealed_bytes(b"\xdf\x7f\xff\xff\xff\x01"),
    ]
    for lie in lies:  # once before, so that nothing is measured that happens the first time only
        reason(lie)
    tracemalloc.start()
    try:
        for lie in lies:
            reason(lie)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
