"""The table of kinds: one row for every message, one number for every row, and texts that name the field."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import msgpack
import pytest
from hand_swarm import sealed
from wire_cases import CASES, LAYOUT, Case

from gossip.errors import Reason, Rejected
from gossip.wire.frames import VERSION
from gossip.wire.kinds import BY_CLASS, KINDS, Kind
from gossip.wire.messages import Message

DOCUMENT = next((Path(__file__).parents[3] / "docs").rglob("protocol.md"))
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def header_of(case: Case) -> tuple[list[Any], bytes | None]:
    """Return the fields of the header of a message, and its body."""
    frames = [bytes(frame) for frame in case.codec.encode(case.message)]
    return msgpack.unpackb(frames[0][: -8 * len(frames)]), frames[1] if len(frames) == 2 else None


def test_every_message_has_exactly_one_row_and_a_number_of_its_own() -> None:
    assert Counter(kind.message for kind in KINDS) == Counter(get_args(Message))
    assert [kind.number for kind in KINDS] == list(range(len(KINDS)))
    assert {message: kind.name for message, kind in BY_CLASS.items()} == {
        message: message.__name__ for message in get_args(Message)
    }


@EVERY_KIND
def test_the_fields_of_a_row_are_those_of_its_message(kind: Kind[Any]) -> None:
    names = [field.name for field in fields(kind.message)]
    own = [field.name for field in kind.fields]
    assert names[:2] == ["origin", "destination"]
    assert set(own) <= set(names)
    if kind.body is None:
        assert own == names[2:], "the message is made of them in this order"


COUNT = (int, 0, 2**53 - 1, Reason.MALFORMED)
SHARD = (int, 0, 2, Reason.SHAPE)
FLAG = (bool, False, True, Reason.MALFORMED)
SUBJECT = (int, 0, 4, Reason.MALFORMED)
LEAST, ALMOST_1 = math.ulp(0.0), 1 - 2**-53
RANGES: dict[str, list[tuple[type, float, float, Reason]]] = {
    "Parcel": [COUNT, COUNT, SHARD, (float, 0.0, 1e6, Reason.WEIGHT), (float, 0.0, ALMOST_1, Reason.MALFORMED)],
    "Ack": [COUNT],
    "Refusal": [COUNT],
    "Pass": [COUNT, SHARD],
    "Hello": [],
    "Fence": [],
    "Bye": [FLAG],
    "News": [COUNT],
    "Want": [COUNT],
    "Piece": [COUNT, COUNT, COUNT],
    "Roll": [],
    "Settled": [],
    "Look": [],
    "Shown": [],
    "Pull": [COUNT, SHARD, (float, LEAST, ALMOST_1, Reason.MALFORMED)],
    "Enter": [COUNT, COUNT, FLAG, COUNT, FLAG, FLAG, COUNT, FLAG],
    "Lack": [SUBJECT, COUNT, COUNT],
    "Chunk": [SUBJECT, COUNT, COUNT, COUNT, COUNT, COUNT],
    "Proposal": [COUNT, SHARD, (float, LEAST, 1e6, Reason.WEIGHT), (float, LEAST, 0.5, Reason.MALFORMED)],
}


@EVERY_KIND
def test_the_range_of_every_field_is_that_of_version_5(kind: Kind[Any]) -> None:
    addresses, own = kind.within(LAYOUT).checked[:4], kind.within(LAYOUT).checked[4:]
    assert [(field.exact, field.least, field.most, field.reason) for field in addresses] == [COUNT] * 4
    assert [(field.exact, field.least, field.most, field.reason) for field in own] == RANGES[kind.name]


@EVERY_CASE
def test_a_row_has_as_many_fields_as_the_header(case: Case) -> None:
    kind = BY_CLASS[type(case.message)]
    header, body = header_of(case)
    assert header[:3] == [VERSION, "run", kind.number]
    assert len(header) == kind.length
    assert (kind.body is None) == (body is None)


@EVERY_CASE
def test_a_rejection_names_the_message_the_field_and_the_value(case: Case) -> None:
    kind = BY_CLASS[type(case.message)].within(LAYOUT)
    header, body = header_of(case)
    for at, field in enumerate(kind.checked, start=3):
        for lie in (None, -1, 2**60, float("nan"), "lie"):
            with pytest.raises(Rejected) as caught:
                case.codec.decode(sealed([*header[:at], lie, *header[at + 1 :]], body))
            assert caught.value.reason is field.reason
            assert caught.value.detail == f"{kind.name}: {field.name} must be {field.rule}, not {lie!r}"
            assert caught.value.origin == (None if at < 7 else header[3]), "known when the addresses are good"


@EVERY_CASE
def test_no_field_takes_a_number_of_another_type(case: Case) -> None:
    """True is 1 and 1.0 is 1, but not on the wire: what is read is written as the same bytes."""
    kind = BY_CLASS[type(case.message)]
    header, body = header_of(case)
    for at in range(3, kind.length):
        if type(header[at]) is str:
            continue
        for other in {bool: (int, float), int: (float, bool), float: (int, bool)}[type(header[at])]:
            with pytest.raises(Rejected):
                case.codec.decode(sealed([*header[:at], other(header[at]), *header[at + 1 :]], body))


@EVERY_KIND
def test_the_document_of_the_protocol_has_the_row(kind: Kind[Any]) -> None:
    names = [field.name for field in kind.fields]
    if kind.body is not None:
        names += [*(field.name for field in kind.body.fields), *kind.body.checked_in_read]
    row = f"| {kind.number} | `{kind.name}` | {', '.join(names)} | {kind.body.about if kind.body else ''} |"
    assert row.replace("  |", " |") in DOCUMENT.read_text().splitlines(), f"{DOCUMENT.name} lacks or differs: {row}"
