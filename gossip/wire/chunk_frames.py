"""The messages of `gossip.collective` as the fields of a header and a body, and back.

enter     ... digest, stint, takes part, round, veteran, keeps, seal, answers; see `Enter`
lack      ... subject, round, digest; the body is pairs of step and index, 4 bytes each, little-endian
chunk     ... subject, round, digest, step, index, length of the body in bytes; the body is the values, raw
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gossip.errors import Reason, Rejected
from gossip.wire.messages import Address, Chunk, Enter, Lack, Subject

__all__ = ["CHUNK_LIMIT", "decoded_chunk", "decoded_enter", "decoded_lack", "encoded"]

#: No chunk has more bytes.
CHUNK_LIMIT = 8 << 20
#: Nor asks anybody for more at a time.
_LACKED_LIMIT = 1024
_NUMBER_LIMIT = 2**53
_PAIR = np.dtype("<u4")


def encoded(message: Enter | Lack | Chunk) -> tuple[list[Any], memoryview | None]:
    """Return the fields behind the common ones, and the body."""
    if isinstance(message, Enter):
        fields = [message.digest, message.stint, message.active, message.round, message.veteran]
        return [*fields, message.keeps, message.seal, message.answers], None
    common = [int(message.subject), message.round, message.digest]
    if isinstance(message, Lack):
        return common, memoryview(np.array(message.wanted, _PAIR).tobytes())
    body = message.values.view(np.uint8).data
    return [*common, message.step, message.index, len(body)], body


def decoded_enter(origin: Address, destination: Address, fields: list[Any]) -> Enter:
    """Return the message of these fields, or raise `Rejected`."""
    digest, stint, active, number, veteran, keeps, seal, answers = fields
    for count in (digest, stint, number, seal):
        _checked(count, origin)
    if not all(type(flag) is bool for flag in (active, veteran, keeps, answers)):
        raise Rejected(Reason.MALFORMED, "enters neither so nor so", origin.rank)
    return Enter(origin, destination, digest, stint, active, number, veteran, keeps, seal, answers)


def decoded_lack(origin: Address, destination: Address, fields: list[Any], body: bytes) -> Lack:
    """Return the message of these fields and this body, or raise `Rejected`."""
    subject, number, digest = _subject(fields, origin)
    if len(body) % 8 or not 0 < len(body) <= 8 * _LACKED_LIMIT:
        raise Rejected(Reason.MALFORMED, f"asks with {len(body)} bytes", origin.rank)
    pairs = np.frombuffer(body, _PAIR).reshape(-1, 2).tolist()
    return Lack(origin, destination, subject, number, digest, tuple((step, index) for step, index in pairs))


def decoded_chunk(origin: Address, destination: Address, fields: list[Any], body: memoryview | None) -> Chunk:
    """Return the message of these fields and this body, whose checksum is for the caller, or raise `Rejected`."""
    subject, number, digest = _subject(fields[:3], origin)
    step, index, length = (_checked(field, origin) for field in fields[3:])
    if body is None or len(body) < length:
        raise Rejected(Reason.TRUNCATED, f"{0 if body is None else len(body)} of {length} bytes", origin.rank)
    if len(body) > min(length, CHUNK_LIMIT):
        raise Rejected(Reason.OVERSIZED, f"{len(body)} bytes instead of {min(length, CHUNK_LIMIT)}", origin.rank)
    return Chunk(origin, destination, subject, number, digest, step, index, np.frombuffer(body, np.uint8))


def _subject(fields: list[Any], origin: Address) -> tuple[Subject, int, int]:
    subject, number, digest = (_checked(field, origin) for field in fields)
    if subject not in Subject.__members__.values():
        raise Rejected(Reason.MALFORMED, f"about {subject}", origin.rank)
    return Subject(subject), number, digest


def _checked(value: Any, origin: Address) -> int:
    if type(value) is not int or not 0 <= value < _NUMBER_LIMIT:
        raise Rejected(Reason.MALFORMED, f"{value!r:.40} is no count", origin.rank)
    return value
