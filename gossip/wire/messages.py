"""The messages between peers.

- `Parcel`: a fraction of one shard's mass. Held by its sender until answered.
- `Ack`: the parcel is in the receiver's books. Now, and only now, the sender forgets it.
- `Refusal`: the parcel is not, and never will be, in the receiver's books: the sender takes it back.
- `Pull`: give me this fraction of a shard's mass, at your next step boundary.
- `Proposal`: these are some values of mine; move us towards each other, at your next step boundary. The answer is a
  parcel of weight 0 (`gossip.exchange.sparse_pairs`).
- `Pass`: nothing comes from me at this turn; do not wait for it.
- `Hello`: this is who I am now; what you sent to my former lives is yours again.
- `Fence`: the addressee's incarnation is dead to the sender of this; it must come back as a new one.
- `Bye`: I am leaving; do not send to me any more, and tell me when I have answered all that you sent.
- `Settled`: you have; nothing of mine is in flight to you, nor will be.
- `News`: a few bytes about the swarm, passed on by everybody; what they mean is for the layers above. Updates about
  the members ride on it.
- `Roll`: a body of `gossip.membership`: who is alive.
- `Look`: show me the status of the swarm. From any process that may look, a member or not. `Shown`: here it is.
- `Want`: I am new; give me this piece of the state.
- `Piece`: here it is. Unlike a parcel it is a copy, no mass: it may come twice, or not at all.
- `Enter`: this is where I stand; for the exchanges of `gossip.collective`, which need everybody.
- `Lack`: I lack these parts of one. `Chunk`: here is a part; as a piece, it is a copy.

Every message names who sends it in which incarnation, and for whom in which. An answer counts only between the
incarnations that the parcel went between: a peer that restarted knows nothing of what it received in a former life and
must not answer for it, and sequences start again from 0 with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from gossip.codecs import Payload
from gossip.codecs.topk import Sparse
from gossip.values.blocks import Values

__all__ = [
    "ANYBODY",
    "Ack",
    "Address",
    "Bye",
    "Chunk",
    "Enter",
    "Fence",
    "Hello",
    "Lack",
    "Look",
    "Message",
    "News",
    "Parcel",
    "Pass",
    "Piece",
    "Proposal",
    "Pull",
    "Refusal",
    "Roll",
    "Settled",
    "Shown",
    "Subject",
    "Want",
]

#: The rank that a message has as destination if it is for whoever is found there.
ANYBODY = (1 << 31) - 1


class Address(NamedTuple):
    """A peer in one of its lives: an incarnation ends with a crash, or by being declared dead."""

    rank: int
    incarnation: int


@dataclass(frozen=True)
class Parcel:
    """Mass in flight."""

    origin: Address
    destination: Address
    #: Counts the parcels from this origin to this destination, from 0.
    sequence: int
    #: Which turn of the sender's shard this is; the schedule counts in turns.
    turn: int
    shard: int
    #: Above 0, the values are z. 0, no weight goes with them: they are x itself, something is moved; or, if there is an
    #: ask, they are a difference, which is no mass.
    weight: float
    values: Values
    #: The fraction of its own mass that the receiver shall send back: pairwise averaging. 0 for none. Of a difference,
    #: the part of what is between them by which both shall be moved, at most (`gossip.exchange.differences`).
    ask: float = 0.0
    #: The checksum of what is sent, where it is known: who sends it to several, or again, reads it once.
    seal: int | None = None
    #: What is sent, if it is not the values as they are, and the codec that makes it of them.
    payload: Payload | None = None
    codec: str = ""

    @property
    def nbytes(self) -> int:
        """The bytes that are sent."""
        return int((self.values if self.payload is None else self.payload).nbytes)

    @property
    def factor(self) -> float:
        """What the values are to be multiplied by to be x."""
        return self.weight or (0.0 if self.is_difference else 1.0)

    @property
    def is_difference(self) -> bool:
        """Whether the values are what is to be added to an estimate; see `gossip.exchange.differences`."""
        return not self.weight and self.ask > 0

    @property
    def key(self) -> tuple[Address, Address, int]:
        """What makes this parcel unique in the life of the swarm."""
        return self.origin, self.destination, self.sequence


@dataclass(frozen=True)
class Ack:
    """The parcel with this sequence has been booked by the origin of this message."""

    origin: Address
    destination: Address
    sequence: int


@dataclass(frozen=True)
class Refusal:
    """The parcel with this sequence has not been booked and never will be: the receiver is full. Take it back."""

    origin: Address
    destination: Address
    sequence: int


@dataclass(frozen=True)
class Pull:
    """The origin wants a fraction of the destination's mass. Lost, it is not repeated: there is a next turn."""

    origin: Address
    destination: Address
    turn: int
    shard: int
    fraction: float


@dataclass(frozen=True)
class Proposal:
    """The origin offers some values of a shard for pairwise averaging. Lost, it is not repeated, as a pull."""

    origin: Address
    destination: Address
    turn: int
    shard: int
    #: The origin's weight of the shard, and the fraction by which it wants to be moved.
    weight: float
    fraction: float
    #: Where the values stand, and what they are said to be.
    told: Sparse
    #: That as it is sent.
    payload: Payload


@dataclass(frozen=True)
class Pass:
    """The origin pushes nothing of the shard to the destination at this turn."""

    origin: Address
    destination: Address
    turn: int
    shard: int


@dataclass(frozen=True)
class Hello:
    """The origin lives in this incarnation, and in no other."""

    origin: Address
    destination: Address


@dataclass(frozen=True)
class Fence:
    """The destination, up to this incarnation, has been declared dead by the origin."""

    origin: Address
    destination: Address


@dataclass(frozen=True)
class Bye:
    """The origin leaves of its own will."""

    origin: Address
    destination: Address
    #: Whether it hands its mass over; otherwise it goes at once, and that is written off.
    hands_over: bool = True


@dataclass(frozen=True)
class Settled:
    """Nothing of the origin's is in flight to the destination, which leaves, nor will be."""

    origin: Address
    destination: Address


@dataclass(frozen=True)
class News:
    """Something that everybody should hear."""

    origin: Address
    destination: Address
    body: bytes
    #: About members: what `gossip.membership` has to pass on, if anything.
    updates: bytes = b""


@dataclass(frozen=True)
class Roll:
    """What the origin says about who is alive."""

    origin: Address
    destination: Address
    body: bytes


@dataclass(frozen=True)
class Look:
    """A process at this endpoint, with this key if there are keys, wants to see the status of the swarm."""

    origin: Address
    destination: Address
    endpoint: str
    key: str


@dataclass(frozen=True)
class Shown:
    """The status of the swarm, as the origin knows it."""

    origin: Address
    destination: Address
    body: bytes


@dataclass(frozen=True)
class Want:
    """The origin has no state yet, and asks for a piece of it."""

    origin: Address
    destination: Address
    piece: int


@dataclass(frozen=True)
class Piece:
    """A piece of the state: a shard's values, or behind the shards a part of the annex."""

    origin: Address
    destination: Address
    piece: int
    #: How many pieces there are, those of the annex included.
    pieces: int
    #: The turn that the shard comes to next. Of the annex: 1 if training changes this part of it, else 0.
    turn: int
    values: Values


class Subject(IntEnum):
    """What a chunk is a part of."""

    PLAN = 0  #: a vector in flight through the plan of a reduction
    RESULT = 1  #: the sum that a round ended with
    STATE = 2  #: all that a newcomer to a group has to have
    MOVE = 3  #: what a worker's step did to its model, for the centre
    MODEL = 4  #: the centre's model, for a worker


@dataclass(frozen=True)
class Enter:
    """Where the origin stands in a group: it counts for the group whose digest it names."""

    origin: Address
    destination: Address
    digest: int
    #: How often the origin has begun or ceased to take part, and whether it does.
    stint: int
    active: bool
    #: The round that it comes to next, whether its state is that of the group at that round, and whether it still has
    #: the result of the round before.
    round: int
    veteran: bool
    keeps: bool
    #: A hash of its state, where it is no veteran; 0: not known.
    seal: int
    #: Whether it answers the destination's own, and wants no answer itself.
    answers: bool


@dataclass(frozen=True)
class Lack:
    """The origin lacks these parts, each a step and an index, of what the destination has or had."""

    origin: Address
    destination: Address
    subject: Subject
    round: int
    digest: int
    wanted: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chunk:
    """A part of a vector, of a sum or of a state."""

    origin: Address
    destination: Address
    subject: Subject
    round: int
    digest: int
    #: Of a plan, the step of it; of a sum, how many were added up; of a state or model, how many chunks there are.
    step: int
    index: int
    values: Values


Message = (
    Parcel
    | Ack
    | Refusal
    | Pass
    | Hello
    | Fence
    | Bye
    | News
    | Want
    | Piece
    | Roll
    | Settled
    | Look
    | Shown
    | Pull
    | Enter
    | Lack
    | Chunk
    | Proposal
)
