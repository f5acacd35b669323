"""Bodies as bytes: one msgpack array, [version, kind, life, refutations, ... by kind, updates].

    update     [rank, life, refutations, state, endpoint, key, accusers]

Everything that arrives is hostile until shown otherwise: the length is checked before anything is decoded, msgpack is
given hard limits, every field is checked for its exact type and range, and what is wrong is `Rejected` by name before
anything has changed. `SLOW` is one peer's own finding and has no place on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgpack

from gossip.errors import Reason, Rejected
from gossip.membership.bodies import (
    BUCKETS,
    Ack,
    Ask,
    Behind,
    Digest,
    Envelope,
    Errand,
    Holdings,
    Nack,
    News,
    Ping,
    Said,
    Taken,
    Update,
    Welcome,
)
from gossip.membership.record import ENDPOINT_LIMIT, LIFE_LIMIT, RANK_LIMIT, Record, State

__all__ = ["BODY_LIMIT", "decode", "decode_updates", "encode", "encode_updates", "pack_update"]

VERSION = 1
#: No body is longer than this.
BODY_LIMIT = 16 << 10
REASON_LIMIT = 400
#: More accusers than this count for nothing.
_ACCUSERS = 16
_UPDATES = 2048
_KINDS: tuple[type[Said], ...] = (Ping, Ack, Nack, Errand, News, Digest, Holdings, Ask, Welcome, Behind, Taken)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
#: The limits of the fields of each kind: a number for an int below it, a type and a length for a string or bytes.
_FIELDS: dict[type, tuple[Any, ...]] = {
    Ping: (LIFE_LIMIT,),
    Ack: (LIFE_LIMIT,),
    Nack: (LIFE_LIMIT,),
    Errand: (LIFE_LIMIT, RANK_LIMIT),
    News: (),
    Digest: ((bytes, 8 * BUCKETS), bool),
    Holdings: (),
    Ask: ((str, ENDPOINT_LIMIT), (str, 40)),
    Welcome: (LIFE_LIMIT,),
    Behind: (LIFE_LIMIT,),
    Taken: ((str, REASON_LIMIT),),
}
_NAMES = {kind: tuple(kind.__dataclass_fields__) for kind in _KINDS}
#: The states on the wire, by number.
_STATES = {0: State.ALIVE, 2: State.SUSPECT, 3: State.DEAD, 4: State.LEFT}


def pack_update(record: Record, accusers: Sequence[int] = ()) -> bytes:
    """Return a statement about a member as bytes."""
    state = State.ALIVE if record.state is State.SLOW else record.state
    fields = (record.rank, record.incarnation, record.refutations, int(state), record.endpoint, record.key)
    packed: bytes = msgpack.packb((*fields, sorted(accusers)))
    return packed


def encode_updates(updates: Sequence[bytes]) -> bytes:
    """Return packed updates as one array."""
    return _array(len(updates)) + b"".join(updates)


def encode(me: Record, said: Said, updates: Sequence[bytes] = ()) -> bytes:
    """Return the body that says this, in the name of ``me``, with packed updates."""
    kind = type(said)
    fields = (VERSION, _NUMBERS[kind], me.incarnation, me.refutations, *(getattr(said, name) for name in _NAMES[kind]))
    return _array(len(fields) + 1) + b"".join(map(msgpack.packb, fields)) + encode_updates(updates)


def decode(body: bytes, origin: int) -> Envelope:
    """Return what was said, or raise `Rejected` with the reason."""
    fields = _unpacked(body, origin)
    if not fields or type(fields[0]) is not int:
        raise Rejected(Reason.MALFORMED, "not a list of fields that begins with a version", origin)
    if fields[0] != VERSION:
        raise Rejected(Reason.VERSION, f"membership of version {fields[0]}, ours is {VERSION}", origin)
    number = fields[1] if len(fields) > 4 and type(fields[1]) is int else -1
    kind = _KINDS[number] if 0 <= number < len(_KINDS) else None
    if kind is None or len(fields) != 5 + len(_FIELDS[kind]):
        raise Rejected(Reason.MALFORMED, "the fields of nothing that peers say", origin)
    incarnation = _count(fields[2], LIFE_LIMIT, "life", origin)
    refutations = _count(fields[3], LIFE_LIMIT, "refutations", origin)
    for value, limit, name in zip(fields[4:-1], _FIELDS[kind], _NAMES[kind], strict=True):
        _check(value, limit, name, origin)
    if kind is Digest and len(fields[4]) != 8 * BUCKETS:
        raise Rejected(Reason.TRUNCATED, f"a digest of {len(fields[4])} bytes", origin)
    return Envelope(incarnation, refutations, kind(*fields[4:-1]), _updates(fields[-1], origin))


def decode_updates(body: bytes, origin: int | None = None) -> tuple[Update, ...]:
    """Return the updates in what `encode_updates` made, or raise `Rejected`."""
    return _updates(_unpacked(body, origin), origin)


def _array(length: int) -> bytes:
    header: bytes = msgpack.Packer().pack_array_header(length)
    return header


def _unpacked(body: bytes, origin: int | None) -> list[Any]:
    if type(body) is not bytes or not body:
        raise Rejected(Reason.MALFORMED, "no bytes", origin)
    if len(body) > BODY_LIMIT:
        raise Rejected(Reason.OVERSIZED, f"a body of {len(body)} bytes; the limit is {BODY_LIMIT}", origin)
    try:
        fields = msgpack.unpackb(
            body,
            use_list=True,
            max_array_len=_UPDATES,
            max_str_len=REASON_LIMIT,
            max_bin_len=8 * BUCKETS,
            max_map_len=0,
            max_ext_len=0,
        )
    # msgpack raises several unrelated kinds for bad input; every one of them means the same here.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Rejected(Reason.MALFORMED, f"the body is not msgpack: {error!r:.80}", origin) from None
    if type(fields) is not list:
        raise Rejected(Reason.MALFORMED, "the body is not a list", origin)
    return fields


def _check(value: Any, limit: Any, name: str, origin: int | None) -> None:
    if limit is bool:
        fits = type(value) is bool
    elif type(limit) is int:
        fits = type(value) is int and 0 <= value < limit
    else:
        fits = type(value) is limit[0] and len(value) <= limit[1]
    if not fits:
        raise Rejected(Reason.MALFORMED, f"{name} is {value!r:.40}", origin)


def _count(value: Any, limit: int, name: str, origin: int | None) -> int:
    _check(value, limit, name, origin)
    assert type(value) is int
    return value


def _updates(values: Any, origin: int | None) -> tuple[Update, ...]:
    if type(values) is not list:
        raise Rejected(Reason.MALFORMED, f"updates are {values!r:.40}", origin)
    return tuple(_update(fields, origin) for fields in values)


def _update(fields: Any, origin: int | None) -> Update:
    if type(fields) is not list or len(fields) != 7:
        raise Rejected(Reason.MALFORMED, f"an update that is {fields!r:.40}", origin)
    *numbers, endpoint, key, accusers = fields
    # Exact types first: to the cache 1 and 1.0 and True would be the same.
    if not all(type(number) is int for number in numbers) or type(endpoint) is not str or type(key) is not str:
        raise Rejected(Reason.MALFORMED, f"an update with {fields!r:.80}", origin)
    if type(accusers) is not list or len(accusers) > _ACCUSERS:
        raise Rejected(Reason.MALFORMED, f"accusers are {accusers!r:.40}", origin)
    for rank in accusers:
        _check(rank, RANK_LIMIT, "accuser", origin)
    record = _record(*numbers, endpoint, key)
    if type(record) is str:
        raise Rejected(Reason.MALFORMED, f"a record with {record}", origin)
    assert isinstance(record, Record)
    return Update(record, tuple(accusers))


@lru_cache(maxsize=1 << 13)
def _record(
    rank: int, incarnation: int, refutations: int, state: int, endpoint: str, key: str
) -> Record | str:  # what is wrong with it, rather than an error, so that it is remembered as well
    if state not in _STATES:
        return f"state {state}"
    record = Record(rank, incarnation, refutations, _STATES[state], endpoint, key)
    return record.wrong() or record
