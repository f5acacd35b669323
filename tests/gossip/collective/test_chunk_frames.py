"""The messages of collective exchanges as bytes: there and back, and everything that is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
import xxhash

from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.frames import WireCodec
from gossip.wire.limits import CHUNK_LIMIT
from gossip.wire.messages import Address, Chunk, Enter, Lack, Subject

HERE, THERE = Address(3, 1), Address(4, 0)
CODEC = WireCodec("run", Layout.uniform(8, 2, np.float32))
ENTER = Enter(HERE, THERE, 2**53 - 1, 7, True, 12, False, True, 5, False)
LACK = Lack(HERE, THERE, Subject.RESULT, 9, 77, ((0, 1), (2**32 - 1, 5)))
CHUNK = Chunk(HERE, THERE, Subject.PLAN, 9, 77, 3, 4, np.arange(6, dtype=np.float32))


def test_they_come_back_as_they_were() -> None:
    assert CODEC.decode(CODEC.encode(ENTER)) == ENTER
    assert CODEC.decode(CODEC.encode(LACK)) == LACK
    found = CODEC.decode(CODEC.encode(CHUNK))
    assert isinstance(found, Chunk)
    np.testing.assert_array_equal(found.values.view(np.float32), CHUNK.values)
    assert [getattr(found, name) for name in ("subject", "round", "digest", "step", "index")] == [0, 9, 77, 3, 4]


def test_not_a_number_may_be_in_a_chunk() -> None:
    """Sums may overflow; whoever adds them up decides about that."""
    chunk = Chunk(HERE, THERE, Subject.PLAN, 0, 0, 0, 0, np.array([np.nan, np.inf], np.float32))
    found = CODEC.decode(CODEC.encode(chunk))
    assert isinstance(found, Chunk)
    assert found.values.nbytes == 8


def framed(message: Any, change: dict[int, Any], body: bytes | None = None) -> list[bytes]:
    """Return the frames of a message, some fields behind the common ones changed, sealed as they should be."""
    header, *rest = (bytes(frame) for frame in CODEC.encode(message))
    content = bytes(rest[0]) if rest else None
    fields = msgpack.unpackb(header[: -8 * (1 + bool(rest))])
    for index, value in change.items():
        fields[7 + index] = value
    content = content if body is None else body
    packed = msgpack.packb(fields)
    if content is None:
        return [packed + xxhash.xxh3_64_digest(packed)]
    packed += xxhash.xxh3_64_digest(content)
    return [packed + xxhash.xxh3_64_digest(packed), content]


@pytest.mark.parametrize(
    ("message", "change", "body", "reason"),
    [
        (ENTER, {0: -1}, None, Reason.MALFORMED),
        (ENTER, {0: 2**53}, None, Reason.MALFORMED),
        (ENTER, {1: 1.0}, None, Reason.MALFORMED),
        (ENTER, {2: 1}, None, Reason.MALFORMED),
        (ENTER, {4: 0}, None, Reason.MALFORMED),
        (ENTER, {7: None}, None, Reason.MALFORMED),
        (ENTER, {}, b"more", Reason.MALFORMED),
        (LACK, {0: 9}, None, Reason.MALFORMED),
        (LACK, {0: True}, None, Reason.MALFORMED),
        (LACK, {}, b"", Reason.MALFORMED),
        (LACK, {}, b"1234567", Reason.MALFORMED),
        (LACK, {}, b"12345678" * 1025, Reason.MALFORMED),
        (LACK, {}, b"12345678" * 4000, Reason.OVERSIZED),
        (CHUNK, {0: -2}, None, Reason.MALFORMED),
        (CHUNK, {3: "3"}, None, Reason.MALFORMED),
        (CHUNK, {5: 25}, None, Reason.TRUNCATED),
        (CHUNK, {5: 23}, None, Reason.OVERSIZED),
        (CHUNK, {5: CHUNK_LIMIT + 1}, bytes(CHUNK_LIMIT + 1), Reason.OVERSIZED),
    ],
)
def test_what_cannot_be_meant_is_refused(message: Any, change: Any, body: bytes | None, reason: Reason) -> None:
    with pytest.raises(Rejected) as caught:
        CODEC.decode(framed(message, change, body))
    assert caught.value.reason is reason


@pytest.mark.parametrize("message", [ENTER, LACK, CHUNK])
def test_damage_is_found_wherever_it_is(message: Any) -> None:
    frames = [bytes(frame) for frame in CODEC.encode(message)]
    for number, frame in enumerate(frames):
        for bit in range(8 * len(frame)):
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Rejected):
                CODEC.decode([*frames[:number], damaged, *frames[number + 1 :]])
    for number in range(len(frames)):
        with pytest.raises(Rejected):
            CODEC.decode(frames[:number])
