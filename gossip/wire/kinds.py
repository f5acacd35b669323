"""The kinds of messages: one row for each, which is all that the codec knows of it.

A new kind is a dataclass in `gossip.wire.messages`, a row here and a handler in the core. The fields of a row are
attributes of the message and stand in the header in this order, behind the common ones; the fields of its body follow.
Where there is no body, the message is made of the fields in this order too. Numbers are on the wire: none is used
twice, and none is changed within a version of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_args

from gossip.errors import Rejected
from gossip.values.layout import Layout
from gossip.wire import messages
from gossip.wire.body import Body
from gossip.wire.chunk_frames import CHUNK, LACK
from gossip.wire.fields import Field, asked, count, flag, fraction, half, shard, subject, weight, weight_or_none
from gossip.wire.pair_frames import PROPOSAL
from gossip.wire.value_frames import PARCEL, PIECE
from gossip.wire.word_frames import LOOK, NEWS, ROLL, SHOWN

__all__ = ["ADDRESSES", "BEFORE", "BY_CLASS", "KINDS", "Kind"]

M = TypeVar("M")

_ADDRESSES = ("origin.rank", "origin.incarnation", "destination.rank", "destination.incarnation")

#: The fields before the addresses: the version of the protocol, the run, the number of the kind.
BEFORE = 3
#: The fields that every message has next.
ADDRESSES = tuple(map(count, _ADDRESSES))


class Kind(Generic[M]):
    """A kind of message. Nobody changes it."""

    def __init__(
        self,
        number: int,
        message: type[M],
        fields: tuple[Field, ...] = (),
        body: Body[M] | None = None,
        *,
        any_run: bool = False,
    ) -> None:
        """Make a row of the table.

        Args:
            number: what it is called on the wire.
            message: its class.
            fields: attributes of the message that stand in the header.
            body: what its body is, if it has one.
            any_run: whether a message counts whatever run it names. A process that looks does not know the name yet.
        """
        self.number = number
        self.message = message
        self.fields = fields
        self.body = body
        self.any_run = any_run
        #: What texts call it.
        self.name = message.__name__
        #: The fields of the header from the addresses on, but for those at its end that the body's reader checks.
        self.checked = (*ADDRESSES, *fields, *(body.fields if body else ()))
        #: The type and range of each of them: compared without a call for each, which is faster.
        self.ranges = tuple((field.exact, field.least, field.most) for field in self.checked)
        #: The number of fields of the header.
        self.length = BEFORE + len(self.checked) + len(body.checked_in_read if body else ())
        #: Returns the addresses and the values of the fields of a message.
        self.values: Callable[[M], tuple[Any, ...]] = attrgetter(*_ADDRESSES, *(field.name for field in fields))

    def within(self, layout: Layout) -> Kind[M]:
        """Return the kind for messages about a model of this layout."""
        fields = tuple(field.within(layout) for field in self.fields)
        if fields == self.fields:
            return self
        return Kind(self.number, self.message, fields, self.body, any_run=self.any_run)

    def rejected(self, header: list[Any]) -> Rejected:
        """Return the error for a header with a field that does not fit."""
        values = header[BEFORE:]
        wrong, field = next((at, field) for at, field in enumerate(self.checked) if not field.fits(values[at]))
        # The origin is believed when all addresses fit.
        return field.rejected(self.name, values[wrong], None if wrong < len(ADDRESSES) else values[0])


KINDS: tuple[Kind[Any], ...] = (
    Kind(
        0,
        messages.Parcel,
        (count("sequence"), count("turn"), shard("shard"), weight_or_none("weight"), asked("ask")),
        PARCEL,
    ),
    Kind(1, messages.Ack, (count("sequence"),)),
    Kind(2, messages.Refusal, (count("sequence"),)),
    Kind(3, messages.Pass, (count("turn"), shard("shard"))),
    Kind(4, messages.Hello),
    Kind(5, messages.Fence),
    Kind(6, messages.Bye, (flag("hands_over"),)),
    Kind(7, messages.News, (), NEWS),
    Kind(8, messages.Want, (count("piece"),)),
    Kind(9, messages.Piece, (count("piece"), count("pieces"), count("turn")), PIECE),
    Kind(10, messages.Roll, (), ROLL),
    Kind(11, messages.Settled),
    Kind(12, messages.Look, (), LOOK, any_run=True),
    Kind(13, messages.Shown, (), SHOWN, any_run=True),
    Kind(14, messages.Pull, (count("turn"), shard("shard"), fraction("fraction"))),
    Kind(
        15,
        messages.Enter,
        (
            count("digest"),
            count("stint"),
            flag("active"),
            count("round"),
            flag("veteran"),
            flag("keeps"),
            count("seal"),
            flag("answers"),
        ),
    ),
    Kind(16, messages.Lack, (subject("subject"), count("round"), count("digest")), LACK),
    Kind(
        17,
        messages.Chunk,
        (subject("subject"), count("round"), count("digest"), count("step"), count("index")),
        CHUNK,
    ),
    Kind(18, messages.Proposal, (count("turn"), shard("shard"), weight("weight"), half("fraction")), PROPOSAL),
)
BY_CLASS: dict[type, Kind[Any]] = {kind.message: kind for kind in KINDS}
assert len(KINDS) == len(BY_CLASS) == len({kind.number for kind in KINDS}), "one row for each kind, one number"
assert set(BY_CLASS) == set(get_args(messages.Message)), "a message without a row, or a row without a message"
