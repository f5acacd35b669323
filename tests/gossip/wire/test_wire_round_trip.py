"""The codec says back what it was told, bit for bit, and copies no values on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hand_swarm import sealed

from gossip.values.layout import Layout
from gossip.wire.frames import VERSION, WireCodec
from gossip.wire.limits import HEADER_LIMIT, WEIGHT_LIMIT
from gossip.wire.messages import Ack, Address, Fence, Hello, Message, Parcel, Pass, Refusal

LARGEST = 2**53 - 1
HERE, THERE = Address(3, 1), Address(LARGEST, LARGEST)
DTYPES = ["f2", "f4", "f8"]


def layout(dtype: str = "f4", size: int = 7, shards: int = 3) -> Layout:
    return Layout.uniform(size, shards, np.dtype(dtype))


def same(a: Message, b: Message) -> bool:
    """Compare messages; the values of parcels bit for bit, since -0.0 is not 0.0 here."""
    if not (isinstance(a, Parcel) and isinstance(b, Parcel)):
        return a == b
    plain = {**vars(a), "values": None} == {**vars(b), "values": None}
    return plain and a.values.dtype == b.values.dtype and a.values.tobytes() == b.values.tobytes()


@pytest.mark.parametrize(
    "message",
    [
        Ack(HERE, THERE, 0),
        Ack(THERE, HERE, LARGEST),
        Refusal(HERE, THERE, 0),
        Refusal(THERE, HERE, LARGEST),
        Pass(HERE, THERE, 0, 0),
        Pass(THERE, HERE, LARGEST, 2),
        Hello(HERE, THERE),
        Hello(THERE, HERE),
        Fence(HERE, THERE),
        Fence(THERE, HERE),
    ],
    ids=repr,
)
def test_a_message_without_values_comes_back_as_it_was(message: Message) -> None:
    codec = WireCodec("run", layout())
    frames = codec.encode(message)
    assert len(frames) == 1
    assert codec.decode(frames) == message


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_parcel_of_any_type_and_shard_comes_back_bit_for_bit(dtype: str, shard: int) -> None:
    cut = layout(dtype)
    start, stop = cut.bounds[shard]
    values = np.linspace(-3, 3, 7).astype(dtype)[start:stop]
    message = Parcel(HERE, THERE, 5, 9, shard, 0.3, values, 0.5)
    assert same(WireCodec("run", cut).decode(WireCodec("run", cut).encode(message)), message)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_extremes_of_a_type_are_values_like_any_other(dtype: str) -> None:
    info = np.finfo(dtype)
    values = np.array([info.max, info.min, info.smallest_subnormal, -0.0, info.tiny, info.eps, 0.0], dtype=dtype)
    message = Parcel(HERE, THERE, LARGEST, LARGEST, 0, WEIGHT_LIMIT, values, 1 - 2**-53)
    codec = WireCodec("run", layout(dtype, shards=1))
    assert same(codec.decode(codec.encode(message)), message)


@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_values_whose_square_overflows_are_accepted(dtype: str) -> None:
    # The fast check for NaN is a dot product, which is infinite here though no value is.
    values = np.full(7, np.finfo(dtype).max, dtype=dtype)
    with np.errstate(over="ignore"):
        assert not np.isfinite(np.dot(values, values))
    codec = WireCodec("run", layout(dtype, shards=1))
    decoded = codec.decode(codec.encode(Parcel(HERE, THERE, 0, 0, 0, 1.0, values)))
    assert isinstance(decoded, Parcel)
    assert decoded.values.tobytes() == values.tobytes()


@pytest.mark.parametrize("weight", [5e-324, 2.0**-1022, 1e-9, 1 / 3, 1.0, 3.0, WEIGHT_LIMIT])
def test_a_weight_comes_back_to_the_last_bit(weight: float) -> None:
    codec = WireCodec("run", layout(shards=1))
    message = Parcel(HERE, THERE, 0, 0, 0, weight, np.zeros(7, np.float32))
    decoded = codec.decode(codec.encode(message))
    assert isinstance(decoded, Parcel)
    assert decoded.weight == weight


def test_encoding_does_not_copy_the_values() -> None:
    values = np.arange(7, dtype=np.float32)
    frames = WireCodec("run", layout(shards=1)).encode(Parcel(HERE, THERE, 0, 0, 0, 1.0, values))
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), values)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_decoding_does_not_copy_the_values(wrap: type) -> None:
    codec = WireCodec("run", layout(shards=1))
    header, body = codec.encode(Parcel(HERE, THERE, 0, 0, 0, 1.0, np.arange(7, dtype=np.float32)))
    arrived = wrap(bytes(body))
    decoded = codec.decode([wrap(bytes(header)), arrived])
    assert isinstance(decoded, Parcel)
    assert np.shares_memory(decoded.values, np.frombuffer(arrived, np.uint8))


def test_the_longest_honest_header_is_within_the_limit() -> None:
    cut = Layout.uniform(1, 1, np.dtype(np.float64))
    codec = WireCodec("r" * 64, cut)
    message = Parcel(THERE, THERE, LARGEST, LARGEST, 0, WEIGHT_LIMIT, np.zeros(1), 0.1)
    frames = codec.encode(message)
    assert len(frames[0]) <= HEADER_LIMIT
    assert same(codec.decode(frames), message)


def test_a_name_of_a_run_may_be_any_text() -> None:
    codec = WireCodec("läuft \N{RUNNER}\x00", layout())
    assert codec.decode(codec.encode(Hello(HERE, THERE))) == Hello(HERE, THERE)


def test_the_frames_are_those_that_the_docstring_draws() -> None:
    # Golden: another implementation reads these bytes, so they must not change without a new version.
    codec = WireCodec("run", layout(shards=1))
    common = [VERSION, "run"]
    addresses = [3, 1, LARGEST, LARGEST]
    values = np.arange(7, dtype=np.float32)
    expected: list[tuple[Message, list[object], bytes | None]] = [
        (
            Parcel(HERE, THERE, 4, 5, 0, 0.5, values, 0.25),
            [0, *addresses, 4, 5, 0, 0.5, 0.25, "float32", 28, ""],
            values.tobytes(),
        ),
        (
            Parcel(HERE, THERE, 4, 5, 0, 0.5, values, 0.25, None, np.arange(3, dtype=np.uint8), "int8:block=256"),
            [0, *addresses, 4, 5, 0, 0.5, 0.25, "float32", 3, "int8:block=256"],
            bytes([0, 1, 2]),
        ),
        (Ack(HERE, THERE, 4), [1, *addresses, 4], None),
        (Refusal(HERE, THERE, 4), [2, *addresses, 4], None),
        (Pass(HERE, THERE, 5, 0), [3, *addresses, 5, 0], None),
        (Hello(HERE, THERE), [4, *addresses], None),
        (Fence(HERE, THERE), [5, *addresses], None),
    ]
    for message, fields, body in expected:
        assert [bytes(frame) for frame in codec.encode(message)] == sealed(common + fields, body)
