"""The bytes of every kind of message, as version 5 of the protocol writes them.

Peers of other releases read these bytes: they change with the version of the protocol, and with nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from wire_cases import CASES

from gossip.wire.frames import VERSION
from gossip.wire.messages import Message

GOLDEN = json.loads(Path(__file__).with_name("golden_frames.json").read_text())


def test_there_is_a_case_of_every_kind_and_golden_bytes_of_every_case() -> None:
    assert {type(case.message) for case in CASES.values()} == set(get_args(Message))
    assert set(GOLDEN) == set(CASES)
    assert VERSION == 5, "another version has other bytes"


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_version_5(name: str) -> None:
    message, codec = CASES[name]
    assert [bytes(frame).hex() for frame in codec.encode(message)] == GOLDEN[name]


@pytest.mark.parametrize("name", CASES)
def test_the_golden_bytes_are_read_as_the_message(name: str) -> None:
    message, codec = CASES[name]
    found = codec.decode([bytes.fromhex(frame) for frame in GOLDEN[name]])
    assert type(found) is type(message)
    if not getattr(message, "codec", ""):  # such a parcel comes back decoded; nobody encodes it again
        assert [bytes(frame).hex() for frame in codec.encode(found)] == GOLDEN[name]
