"""Messages of every kind, and the codecs of the runs that they belong to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gossip import codecs
from gossip.codecs.difference_codec import DifferenceCodec
from gossip.codecs.pair_coding import PairCoding
from gossip.codecs.topk import Sparse
from gossip.values.layout import Layout, Part
from gossip.wire.frames import WireCodec
from gossip.wire.messages import (
    ANYBODY,
    Ack,
    Address,
    Bye,
    Chunk,
    Enter,
    Fence,
    Hello,
    Lack,
    Look,
    Message,
    News,
    Parcel,
    Pass,
    Piece,
    Proposal,
    Pull,
    Refusal,
    Roll,
    Settled,
    Shown,
    Subject,
    Want,
)

HERE, THERE = Address(3, 1), Address(2**53 - 1, 70_000)
#: Two shards of float32, one of float64.
LAYOUT = Layout((Part(5, 2, np.dtype(np.float32)), Part(2, 1, np.dtype(np.float64))))
PAIRS = PairCoding(share=1.0, told="none")
INT8 = codecs.get("int8")
DIFFERENCES = DifferenceCodec(INT8)
#: What parcels and proposals of these runs may come in beside the usual codecs: pairs in one, differences in the other.
IN_PAIRS = WireCodec("run", LAYOUT, PAIRS.spelled)
IN_DIFFERENCES = WireCodec("run", LAYOUT, "int8", DIFFERENCES)

_TWO = np.array([0.5, -1.5], np.float32)
_WIDE = np.array([0.1, -1e300])
_SOME = Sparse(np.array([0, 1]), _TWO)
_KEY = "0123456789abcdefghijABCDEFGHIJ.-:+=^!/*?"


class Case(NamedTuple):
    """A message, and the codec of its run."""

    message: Message
    codec: WireCodec = IN_PAIRS


#: By name. Whatever follows the name of the class tells several of one kind apart.
CASES: dict[str, Case] = {
    "Parcel": Case(Parcel(HERE, THERE, 4, 300, 0, 0.25, _TWO, 0.5)),
    "Parcel of float64": Case(Parcel(THERE, HERE, 2**53 - 1, 0, 2, 1e6, _WIDE)),
    "Parcel in int8": Case(
        Parcel(HERE, THERE, 4, 5, 0, 0.5, _TWO, payload=INT8.encode(_TWO), codec=codecs.spell(INT8))
    ),
    "Parcel with a move": Case(
        Parcel(HERE, THERE, 4, 5, 0, 0.0, _TWO, payload=PAIRS.moved.encode_some(_SOME, 2), codec=PAIRS.spelled)
    ),
    "Parcel with a difference": Case(
        Parcel(
            HERE, THERE, 4, 5, 0, 0.0, _TWO, 0.5, payload=DIFFERENCES.encode(_TWO, keys=(1,)), codec=DIFFERENCES.spelled
        ),
        IN_DIFFERENCES,
    ),
    "Ack": Case(Ack(HERE, THERE, 4)),
    "Refusal": Case(Refusal(THERE, HERE, 70_000)),
    "Pass": Case(Pass(HERE, THERE, 300, 1)),
    "Hello": Case(Hello(THERE, HERE)),
    "Fence": Case(Fence(HERE, THERE)),
    "Bye": Case(Bye(HERE, THERE, True)),
    "Bye without a handover": Case(Bye(HERE, THERE, False)),
    "News": Case(News(HERE, THERE, b"news", b"updates")),
    "News without updates": Case(News(HERE, THERE, b"news")),
    "Want": Case(Want(HERE, THERE, 3)),
    "Piece": Case(Piece(HERE, THERE, 2, 4, 9, _WIDE)),
    "Piece of the annex": Case(Piece(HERE, THERE, 3, 4, 0, np.arange(5, dtype=np.uint8))),
    "Roll": Case(Roll(HERE, THERE, b"roll")),
    "Settled": Case(Settled(HERE, THERE)),
    "Look": Case(Look(Address(ANYBODY, 0), THERE, "127.0.0.1:5", _KEY)),
    "Look without a key": Case(Look(Address(ANYBODY, 0), THERE, "[::1]:5", "")),
    "Shown": Case(Shown(HERE, Address(ANYBODY, 0), b"shown")),
    "Pull": Case(Pull(HERE, THERE, 300, 2, 0.5)),
    "Enter": Case(Enter(HERE, THERE, 2**53 - 1, 7, True, 12, False, True, 5, False)),
    "Lack": Case(Lack(HERE, THERE, Subject.RESULT, 9, 77, ((0, 1), (2**32 - 1, 5)))),
    "Chunk": Case(Chunk(HERE, THERE, Subject.MODEL, 9, 77, 3, 4, np.arange(6, dtype=np.uint8))),
    "Proposal": Case(Proposal(HERE, THERE, 300, 0, 0.25, 0.5, _SOME, PAIRS.told.encode_some(_SOME, 2))),
}
