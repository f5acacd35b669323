"""Offers and moves on the wire: whatever is wrong with one is said, and none of it reaches the parameters."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hand_swarm import sealed
from hypothesis import given, settings
from hypothesis import strategies as st

from gossip.codecs.pair_coding import PairCoding
from gossip.codecs.topk import Sparse
from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.frames import VERSION, WireCodec
from gossip.wire.limits import WEIGHT_LIMIT
from gossip.wire.messages import Address, Parcel, Proposal

COUNT = 50
LAYOUT = Layout.uniform(2 * COUNT, 2, np.float32)
TEXT = "topk-pair:share=10%,told=none"
CODING = PairCoding(share="10%", told="none")
WIRE = WireCodec("run", LAYOUT, TEXT)
SOME = Sparse(np.array([0, 7, 8, 30, 49]), np.array([1, -2, 3, -4, 5], np.float32))
OFFER = CODING.told.encode_some(SOME, COUNT)
MOVE = CODING.moved.encode_some(SOME, COUNT)
FIELDS: dict[str, Any] = {
    "turn": 6,
    "shard": 1,
    "weight": 0.5,
    "fraction": 0.5,
    "dtype": "float32",
    "length": len(OFFER),
    "codec": CODING.spelled,
}


def proposal(body: bytes | None = None, **lies: Any) -> list[bytes]:
    body = bytes(OFFER) if body is None else body
    return sealed([VERSION, "run", 18, 7, 0, 1, 0, *{**FIELDS, "length": len(body), **lies}.values()], body)


def move(body: bytes | None = None, **lies: Any) -> list[bytes]:
    body = bytes(MOVE) if body is None else body
    told = {"weight": 0.0, "ask": 0.0, "dtype": "float32", "length": len(body), "codec": CODING.spelled, **lies}
    return sealed([VERSION, "run", 0, 7, 0, 1, 0, 5, 6, 1, *told.values()], body)


def reason(frames: list[bytes], wire: WireCodec = WIRE) -> Reason:
    with pytest.raises(Rejected) as caught:
        wire.decode(frames)
    assert caught.value.origin == 7
    return caught.value.reason


def changed(payload: np.ndarray, at: int, *values: int) -> bytes:
    out = bytearray(payload)
    out[at : at + len(values)] = values
    return bytes(out)


def test_what_the_lies_start_from_is_taken() -> None:
    found = WIRE.decode(proposal())
    assert isinstance(found, Proposal)
    assert (found.origin, found.turn, found.shard, found.weight, found.fraction) == (Address(7, 0), 6, 1, 0.5, 0.5)
    assert found.told.places.tolist() == SOME.places.tolist()
    assert found.told.values.tolist() == SOME.values.tolist()
    moved = WIRE.decode(move())
    assert isinstance(moved, Parcel)
    assert moved.weight == 0
    assert np.flatnonzero(moved.values).tolist() == SOME.places.tolist()


def test_an_offer_is_written_as_it_was_read() -> None:
    assert [bytes(frame) for frame in WIRE.encode(WIRE.decode(proposal()))] == proposal()


COUNTS, PLACES, VALUES = 0, 4, 4 + 2 * 5
NAN, INFINITY = (0, 0, 0xC0, 0x7F), (0, 0, 0x80, 0x7F)


@pytest.mark.parametrize(
    ("lies", "expected"),
    [
        *(({"turn": turn}, Reason.MALFORMED) for turn in (-1, 2**53, 1.0, True, "1", None)),
        *(({"shard": shard}, Reason.SHAPE) for shard in (2, -1, 0.0, True, None)),
        *(({"weight": weight}, Reason.WEIGHT) for weight in (0.0, -1.0, 2 * WEIGHT_LIMIT, 1e308, np.inf, np.nan, 1)),
        *(({"fraction": part}, Reason.MALFORMED) for part in (0.0, -0.5, 0.6, 1.0, np.nan, np.inf, 1, None)),
        *(({"dtype": dtype}, Reason.DTYPE) for dtype in ("float64", "bfloat16", "", 4, None)),
        *(({"codec": name}, Reason.DTYPE) for name in ("", "topk-pair", "int8:block=256", "topk", 3, None)),
        ({"codec": CODING.spelled.replace("0.1", "0.9")}, Reason.DTYPE),
        *(({"length": length}, Reason.SHAPE) for length in (0, len(OFFER) - 1, 2**40, 1.0, None)),
        ({"body": bytes(OFFER)[:-1]}, Reason.SHAPE),
        ({"body": bytes(OFFER) + b"\0"}, Reason.SHAPE),
        ({"body": b""}, Reason.SHAPE),
        ({"body": changed(OFFER, COUNTS, 6)}, Reason.SHAPE),  # more than there are
        ({"body": changed(OFFER, COUNTS, 255, 255, 255, 255)}, Reason.SHAPE),
        ({"body": changed(OFFER, PLACES + 8, COUNT)}, Reason.SHAPE),  # outside
        ({"body": changed(OFFER, PLACES + 2, 30)}, Reason.MALFORMED),  # not increasing
        ({"body": changed(OFFER, PLACES + 2, 8)}, Reason.MALFORMED),  # twice
        ({"body": changed(OFFER, VALUES, *NAN)}, Reason.NOT_FINITE),
        ({"body": changed(OFFER, VALUES + 16, *INFINITY)}, Reason.NOT_FINITE),
    ],
    ids=repr,
)
def test_a_lie_in_an_offer_is_rejected(lies: dict[str, Any], expected: Reason) -> None:
    assert reason(proposal(**lies)) is expected


def test_an_offer_without_a_body_or_with_another_is_rejected() -> None:
    good = proposal()
    assert reason([good[0], good[1][::-1]]) is Reason.CHECKSUM
    header = [VERSION, "run", 18, 7, 0, 1, 0, *FIELDS.values()]
    assert reason(sealed(header)) is Reason.SHAPE


@pytest.mark.parametrize(
    ("lies", "expected"),
    [
        *(({"weight": weight}, Reason.WEIGHT) for weight in (0.5, 1e-300, -1.0, np.nan, 0, False, None)),
        *(({"ask": ask}, Reason.MALFORMED) for ask in (0.5, -0.5, np.nan, 1, None)),
        ({"dtype": "float64"}, Reason.DTYPE),
        ({"body": changed(MOVE, COUNTS, 4)}, Reason.SHAPE),
        ({"body": changed(MOVE, PLACES + 8, COUNT)}, Reason.SHAPE),
        ({"body": changed(MOVE, PLACES + 2, 30)}, Reason.MALFORMED),
        ({"body": changed(MOVE, VALUES, *NAN)}, Reason.NOT_FINITE),  # a scale
        ({"body": changed(MOVE, VALUES + 4, 0x80)}, Reason.MALFORMED),  # a code that nobody writes
        ({"body": bytes(MOVE)[:-1]}, Reason.TRUNCATED),
        ({"body": bytes(MOVE) + b"\0"}, Reason.SHAPE),
    ],
    ids=repr,
)
def test_a_lie_in_a_move_is_rejected(lies: dict[str, Any], expected: Reason) -> None:
    assert reason(move(**lies)) is expected


@pytest.mark.parametrize("codec", ["", "int8:block=256", "bf16"])
def test_mass_without_a_weight_is_rejected_even_where_moves_are_not(codec: str) -> None:
    body = {"": np.ones(COUNT, np.float32).tobytes(), "bf16": bytes(2 * COUNT)}.get(codec, bytes(4 + COUNT))
    assert reason(move(body, codec=codec)) is Reason.WEIGHT


@pytest.mark.parametrize("own", ["", "none", "int8", "auto", "topk-pair:share=20%"])
def test_where_nobody_exchanges_pairs_like_that_nothing_is_made_of_them(own: str) -> None:
    wire = WireCodec("run", LAYOUT, own)
    assert reason(proposal(), wire) is Reason.DTYPE
    assert reason(move(), wire) is Reason.DTYPE


LIKELY = (
    st.integers(-2, 60) | st.floats() | st.sampled_from([True, None, "", "float32", CODING.spelled, 0.0, 0.5, 2**53])
)


@settings(max_examples=300)
@given(st.sampled_from([proposal(), move()]), st.data())
def test_whatever_is_changed_it_is_read_or_rejected(frames: list[bytes], data: st.DataObject) -> None:
    fields = msgpack.unpackb(frames[0][:-16])
    fields[data.draw(st.integers(3, len(fields) - 1))] = data.draw(LIKELY)
    body = bytearray(frames[1])
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = WIRE.decode(sealed(fields, bytes(body)))
    except Rejected:
        return
    assert isinstance(found, Parcel | Proposal)
    values = found.values if isinstance(found, Parcel) else found.told.values
    assert np.isfinite(values).all()
