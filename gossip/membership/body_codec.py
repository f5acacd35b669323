"""Bodies as bytes: one msgpack array, [version, number of the kind, life, refutations, ... by kind, updates].

    update     [rank, life, refutations, state, endpoint, key, accusers]

`gossip.membership.body_kinds` has a row for each kind: its number and its fields.

Everything that arrives is hostile until it has been checked: the length is checked before anything is decoded, msgpack
is given hard limits, every field is checked for its exact type and range, and what is wrong is `Rejected` by name
before anything has changed. `SLOW` is one peer's own finding and has no place on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgpack

from gossip.errors import Reason, Rejected
from gossip.membership.bodies import Envelope, Said, Update
from gossip.membership.body_kinds import BODY_KINDS, DIGEST_BYTES, REASON_LIMIT
from gossip.membership.record import LIFE_LIMIT, RANK_LIMIT, Record, State
from gossip.wire.fields import count

__all__ = ["BODY_LIMIT", "decode", "decode_updates", "encode", "encode_updates", "pack_update"]

VERSION = 1
#: No body is longer than this.
BODY_LIMIT = 16 << 10
#: More accusers than this count for nothing.
_ACCUSERS = 16
_UPDATES = 2048
_BY_NUMBER = {kind.number: kind for kind in BODY_KINDS}
_BY_CLASS = {kind.said: kind for kind in BODY_KINDS}
#: The fields behind the version and the number of every kind.
_SENDER = (count("life", LIFE_LIMIT), count("refutations", LIFE_LIMIT))
_COMMON = 2 + len(_SENDER)
_UPDATE_FIELDS = {
    "rank": int,
    "life": int,
    "refutations": int,
    "state": int,
    "endpoint": str,
    "key": str,
    "accusers": list,
}
_UPDATE_TYPES = list(_UPDATE_FIELDS.values())
#: What texts call an update.
_UPDATE = "membership update"
_ACCUSER = count("accuser", RANK_LIMIT)
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
    kind = _BY_CLASS[type(said)]
    values = (getattr(said, field.name) for field in kind.fields)
    fields = (VERSION, kind.number, me.incarnation, me.refutations, *values)
    return _array(len(fields) + 1) + b"".join(map(msgpack.packb, fields)) + encode_updates(updates)


def decode(body: bytes, origin: int) -> Envelope:
    """Return what was said, or raise `Rejected` with the reason."""
    fields = _unpacked(body, origin)
    if not fields or type(fields[0]) is not int:
        raise _malformed(f"the body must begin with its version, not {fields[:1]!r:.40}", origin)
    if fields[0] != VERSION:
        raise Rejected(Reason.VERSION, f"membership: the version must be {VERSION}, not {fields[0]}", origin)
    if len(fields) <= _COMMON:
        raise _malformed(f"the body must have more than {_COMMON} fields, not {len(fields)}", origin)
    kind = _BY_NUMBER.get(fields[1]) if type(fields[1]) is int else None
    if kind is None:
        last = len(BODY_KINDS) - 1
        raise _malformed(f"the kind must be a whole number from 0 to {last}, not {fields[1]!r:.40}", origin)
    *values, updates = fields[2:]
    expected = (*_SENDER, *kind.fields)
    if len(values) != len(expected):
        raise Rejected(
            Reason.MALFORMED, f"{kind.name}: the body must have {3 + len(expected)} fields, not {len(fields)}", origin
        )
    for field, value in zip(expected, values, strict=True):
        if not field.fits(value):
            raise field.rejected(kind.name, value, origin)
    incarnation, refutations, *said = values
    return Envelope(incarnation, refutations, kind.said(*said), _updates(updates, origin))


def decode_updates(body: bytes, origin: int | None = None) -> tuple[Update, ...]:
    """Return the updates in what `encode_updates` made, or raise `Rejected`."""
    return _updates(_unpacked(body, origin), origin)


def _array(length: int) -> bytes:
    header: bytes = msgpack.Packer().pack_array_header(length)
    return header


def _unpacked(body: bytes, origin: int | None) -> list[Any]:
    if type(body) is not bytes or not body:
        raise _malformed(f"the body must be bytes, at least one, not {body!r:.40}", origin)
    if len(body) > BODY_LIMIT:
        raise Rejected(
            Reason.OVERSIZED, f"membership: the body has {len(body)} bytes; the limit is {BODY_LIMIT}", origin
        )
    try:
        fields = msgpack.unpackb(
            body,
            use_list=True,
            max_array_len=_UPDATES,
            max_str_len=REASON_LIMIT,
            max_bin_len=DIGEST_BYTES,
            max_map_len=0,
            max_ext_len=0,
        )
    # msgpack raises several unrelated kinds for bad input; every one of them means the same here.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise _malformed(f"the body must be msgpack: {error!r:.80}", origin) from None
    if type(fields) is not list:
        raise _malformed(f"the body must be an array, not {fields!r:.40}", origin)
    return fields


def _malformed(detail: str, origin: int | None, kind: str = "membership") -> Rejected:
    return Rejected(Reason.MALFORMED, f"{kind}: {detail}", origin)


def _updates(values: Any, origin: int | None) -> tuple[Update, ...]:
    if type(values) is not list:
        raise _malformed(f"the updates must be an array, not {values!r:.40}", origin)
    return tuple(_update(fields, origin) for fields in values)


def _update(fields: Any, origin: int | None) -> Update:
    if type(fields) is not list or len(fields) != len(_UPDATE_TYPES):
        raise _malformed(f"an update must be an array of {len(_UPDATE_TYPES)} fields, not {fields!r:.40}", origin)
    # Exact types first: to the cache 1 and 1.0 and True would be the same.
    if list(map(type, fields)) != _UPDATE_TYPES:
        for (name, exact), value in zip(_UPDATE_FIELDS.items(), fields, strict=True):
            if type(value) is not exact:
                raise _malformed(f"{name} must be {exact.__name__}, not {value!r:.40}", origin, _UPDATE)
    *described, accusers = fields
    if len(accusers) > _ACCUSERS:
        raise _malformed(f"accusers must be at most {_ACCUSERS}, not {len(accusers)}", origin, _UPDATE)
    for rank in accusers:
        if not _ACCUSER.fits(rank):
            raise _ACCUSER.rejected(_UPDATE, rank, origin)
    record = _record(*described)
    if isinstance(record, str):
        raise _malformed(f"a record must not have {record}", origin, _UPDATE)
    return Update(record, tuple(accusers))


@lru_cache(maxsize=1 << 13)
def _record(
    rank: int, incarnation: int, refutations: int, state: int, endpoint: str, key: str
) -> Record | str:  # what is wrong with it, rather than an error, so that it is remembered as well
    if state not in _STATES:
        return f"state {state}"
    record = Record(rank, incarnation, refutations, _STATES[state], endpoint, key)
    return record.wrong() or record
