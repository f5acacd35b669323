"""Whatever bytes arrive, decoding returns a message that encodes to the same bytes, or raises `Rejected`."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import numpy as np
import pytest
from hand_swarm import sealed, sealed_bytes
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_cases import CASES, IN_PAIRS

from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.frames import VERSION, WireCodec
from gossip.wire.kinds import BY_CLASS, KINDS
from gossip.wire.messages import Address, Message, Parcel

CODEC = IN_PAIRS
ONE, TWO = Address(1, 0), Address(2, 3)
BODY = np.array([0.5, -1.5], np.float32)
#: One of each kind and more. Parcels in a codec come back decoded, so their bytes cannot be compared.
MESSAGES: list[Message] = [
    case.message for case in CASES.values() if case.codec is CODEC and not getattr(case.message, "codec", "")
]
VALID = [[bytes(frame) for frame in CODEC.encode(message)] for message in MESSAGES]


def outcome(frames: Sequence[bytes]) -> Message | Reason:
    """Decode; hold a message to it that it says what the frames say."""
    try:
        message = CODEC.decode(frames)
    except Rejected as error:
        return error.reason
    if not BY_CLASS[type(message)].any_run:  # what is encoded again names our run
        assert [bytes(frame) for frame in CODEC.encode(message)] == [bytes(frame) for frame in frames]
    return message


def test_the_frames_to_mutate_are_good() -> None:
    assert [type(outcome(frames)) for frames in VALID] == [type(message) for message in MESSAGES]


@settings(max_examples=500)
@given(st.lists(st.binary(max_size=300), max_size=4))
@example([b""])
@example([b"", b""])
@example([b"\x90" + b"\0" * 8])
def test_arbitrary_frames(frames: list[bytes]) -> None:
    assert isinstance(outcome(frames), Reason)


@settings(max_examples=500)
@given(st.binary(max_size=60), st.none() | st.binary(max_size=20))
def test_arbitrary_bytes_with_a_correct_seal(header: bytes, body: bytes | None) -> None:
    assert isinstance(outcome(sealed_bytes(header, body)), Reason)


#: Fields that are nearly right, so that the checks behind the first ones are reached as well. True and 1.0 equal 1.
INTEGERS = st.integers(-2, 6) | st.sampled_from([2**31, 2**53 - 1, 2**53, 2**64 - 1, -(2**63)])
FLOATS = st.floats() | st.sampled_from([0.25, 0.5])
FIELDS = INTEGERS | FLOATS | st.sampled_from([True, False, 1.0, "run", "float32", "", None]) | st.text(max_size=4)
ANYTHING = st.recursive(FIELDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=2))


@settings(max_examples=500)
@given(ANYTHING, st.none() | st.binary(max_size=20))
def test_any_msgpack_object_with_a_correct_seal(header: object, body: bytes | None) -> None:
    assert isinstance(outcome(sealed(header, body)), Reason)


@settings(max_examples=1500)
@given(
    kind=st.integers(0, len(KINDS) - 1) | FIELDS | ANYTHING,
    counts=st.lists(st.integers(0, 3) | INTEGERS, min_size=5, max_size=5),
    more=st.lists(FIELDS | ANYTHING, max_size=8),
    body=st.sampled_from([None, BODY.tobytes(), b"", b"\xff" * 8]),
)
def test_headers_that_begin_like_a_message(
    kind: object, counts: list[int], more: list[object], body: bytes | None
) -> None:
    outcome(sealed([VERSION, "run", kind, *counts[:4], *more], body))


@settings(max_examples=1500)
@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_with_one_field_replaced(message: Message, data: st.DataObject) -> None:
    frames = CODEC.encode(message)
    fields = msgpack.unpackb(bytes(frames[0])[: -8 * len(frames)])
    fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(FIELDS | ANYTHING)
    outcome(sealed(fields, bytes(frames[1]) if len(frames) == 2 else None))


@settings(max_examples=1000)
@given(st.sampled_from(VALID), st.data())
def test_a_good_message_with_bytes_changed_cut_or_added(frames: list[bytes], data: st.DataObject) -> None:
    frames = list(frames)
    which = data.draw(st.integers(0, len(frames) - 1))
    frame = frames[which]
    start = data.draw(st.integers(0, len(frame)))
    stop = data.draw(st.integers(start, len(frame)))
    frames[which] = frame[:start] + data.draw(st.binary(max_size=8)) + frame[stop:]
    result = outcome(frames)
    assert (frames in VALID) == isinstance(result, Message), "only the very bytes that were sent are believed"


@settings(max_examples=300)
@given(st.permutations([frame for frames in VALID for frame in frames]), st.integers(0, 4))
def test_frames_of_different_messages_mixed_up(frames: list[bytes], count: int) -> None:
    result = outcome(frames[:count])
    assert (frames[:count] in VALID) == isinstance(result, Message)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@settings(max_examples=200)
@given(data=st.data())
def test_values_of_any_bits_are_finite_or_rejected(dtype: str, data: st.DataObject) -> None:
    cut = Layout.uniform(3, 1, np.dtype(dtype))
    codec = WireCodec("run", cut)
    body = data.draw(st.binary(min_size=cut.nbytes(0), max_size=cut.nbytes(0)))
    values = np.frombuffer(body, dtype)
    frames = codec.encode(Parcel(ONE, TWO, 0, 0, 0, 0.5, values))
    if np.isfinite(values).all():
        decoded = codec.decode(frames)
        assert isinstance(decoded, Parcel)
        assert decoded.values.tobytes() == body
    else:
        with pytest.raises(Rejected) as caught:
            codec.decode(frames)
        assert caught.value.reason is Reason.NOT_FINITE
