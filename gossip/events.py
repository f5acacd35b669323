"""What goes into the core and what comes out.

Events go in with the time, `Core.handle(event, now)`, and effects come out, in the order in which they are to be
carried out. The core itself never sends, sleeps or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossip.codecs.choice import Choice
from gossip.errors import Reason
from gossip.membership.record import Record
from gossip.values.blocks import Values
from gossip.values.buffers import Buffer
from gossip.wire.messages import Address, Parcel

__all__ = [
    "Adopt",
    "Adopted",
    "Advance",
    "Booked",
    "Compressing",
    "Donate",
    "Drawn",
    "Effect",
    "Event",
    "Expelled",
    "Heard",
    "Join",
    "Leave",
    "Left",
    "Looked",
    "Measure",
    "MemberChanged",
    "Merge",
    "Merged",
    "NotFinite",
    "Offer",
    "PeerAlive",
    "PeerDied",
    "Proceed",
    "Publish",
    "Received",
    "Reduce",
    "Reduced",
    "Refused",
    "Reincarnated",
    "RejectedFrame",
    "Released",
    "Rest",
    "Rested",
    "Resume",
    "Send",
    "Show",
    "StateWanted",
    "StepFinished",
    "Stranded",
    "Synchronize",
    "Synchronized",
    "TakenBack",
    "Tick",
    "Unanswered",
    "Watch",
    "Welcomed",
    "Withdraw",
    "Withdrawn",
]


@dataclass(frozen=True)
class StepFinished:
    """The trainer finished a local step and hands the values over until `Proceed`."""


@dataclass(frozen=True)
class Received:
    """Frames arrived from the network; nothing is known about them yet."""

    frames: Sequence[Buffer]
    #: Whether the sender may look at the swarm, and no more.
    looks_only: bool = False


@dataclass(frozen=True)
class PeerDied:
    """The failure detector gave up on this incarnation of a peer."""

    address: Address


@dataclass(frozen=True)
class PeerAlive:
    """A peer joined, came back as a new incarnation, or can be reached again."""

    address: Address


@dataclass(frozen=True)
class Tick:
    """Time has passed: the core's `deadline` is due."""


@dataclass(frozen=True)
class Merge:
    """The trainer lends the values for a moment, before it moves them: merge what has arrived and asks for nothing."""


@dataclass(frozen=True)
class Rest:
    """The trainer hands the values over until `Resume`: it has nothing to compute for now."""

    #: Whether what arrives is merged at once; otherwise it waits for the next step, and the values stay as they are.
    merge: bool = True


@dataclass(frozen=True)
class Resume:
    """The trainer wants the values back."""


@dataclass(frozen=True)
class Publish:
    """Pass this on to the neighbours, from now on, in place of what was to be passed on before."""

    body: bytes
    #: Begin at once, also while the trainer computes: there may be no further step.
    at_once: bool = False
    #: What of it should go out even with a step without an exchange, because others may wait for it; empty: nothing.
    fresh: bytes = b""


@dataclass(frozen=True)
class Adopt:
    """This peer is new: replace its state by that of these ranks, any of them."""

    donors: Sequence[int]


@dataclass(frozen=True)
class Donate:
    """This peer's state is whole; newcomers may have it."""


@dataclass(frozen=True)
class Watch:
    """Everybody is there: from now on, look after them."""


@dataclass(frozen=True)
class Join:
    """This peer is new to a swarm that runs: ask these, one after the other, to be let in."""

    contacts: Sequence[Record]


@dataclass(frozen=True)
class Measure:
    """From now on steps only mix, and how far others are is measured; or, if it is off, they train again.

    The steps in between do not count: afterwards the core is at the step that it was at before.
    """

    on: bool


@dataclass(frozen=True)
class Advance:
    """The trainer goes on from this step, which it has adopted from others."""

    step: int


@dataclass(frozen=True)
class Leave:
    """This peer goes, and the values are the core's for good: hand all mass over, unless it is to be at once."""

    at_once: bool = False


@dataclass(frozen=True)
class Show:
    """The answer to `Looked`."""

    endpoint: str
    key: str
    body: bytes


@dataclass(frozen=True)
class Synchronize:
    """The trainer wants to take part in a collective exchange, with the state that it has; wait for `Synchronized`."""

    #: Where this peer is, if it has been there: how many steps it has made.
    round: int
    #: A hash of its state, below 2**53; who has the same need not be sent it. 0: not known.
    seal: int = 0


@dataclass(frozen=True)
class Withdraw:
    """The trainer takes no part in collective exchanges until its next `Synchronize`."""


@dataclass(frozen=True)
class Reduce:
    """The trainer lends a vector until `Reduced`, which then holds what everybody has."""

    values: Values
    #: How many of them, from the first on, may be rounded or come late, where there is a codec: gradients.
    lossy: int = 0


@dataclass(frozen=True)
class Offer:
    """The answer to `StateWanted`: the state of the trainer."""

    round: int
    state: bytes


Event = (
    StepFinished
    | Merge
    | Rest
    | Resume
    | Received
    | PeerDied
    | PeerAlive
    | Tick
    | Publish
    | Adopt
    | Donate
    | Watch
    | Join
    | Measure
    | Advance
    | Leave
    | Show
    | Synchronize
    | Withdraw
    | Reduce
    | Offer
)


@dataclass(frozen=True)
class Send:
    """Send the frames to the peer. They may be lost, doubled or late; nobody has to say so."""

    to: Address
    frames: Sequence[Buffer]
    #: Where to, and with whose key, if it is not for where that rank is known to be.
    endpoint: str = ""
    key: str = ""
    #: Whether it is worth another try for a moment, if there is no connection yet: nobody will send it again soon.
    insist: bool = False
    #: Whether it arrives behind what was sent so before: a pass that overtook a parcel would end the wait for it.
    ordered: bool = False


@dataclass(frozen=True)
class Proceed:
    """The trainer may start its next step: the values are its own again."""

    step: int


@dataclass(frozen=True)
class Booked:
    """A parcel of another peer is now part of this peer's mass."""

    parcel: Parcel


@dataclass(frozen=True)
class Released:
    """A parcel of ours was acknowledged, and is forgotten."""

    parcel: Parcel


@dataclass(frozen=True)
class TakenBack:
    """A parcel of ours will never be booked by its receiver; it is part of our mass again."""

    parcel: Parcel


@dataclass(frozen=True)
class Drawn:
    """Our x is moved by an amount, and that of a neighbour, once it has got there, by as much the other way."""

    neighbour: Address
    shard: int
    #: Which round of theirs this is; both ends count alike.
    round: int
    amount: Values
    #: Whether that is undone: the neighbour will never get there.
    undone: bool = False


@dataclass(frozen=True)
class Unanswered:
    """A peer seems not to get what we send: answers to its parcels, or parcels of ours, again and again."""

    to: Address


@dataclass(frozen=True)
class Refused:
    """A parcel of another peer was sent back, because we hold all the mass that we may."""

    parcel: Parcel


@dataclass(frozen=True)
class NotFinite:
    """Our own values of a shard hold NaN or infinity, so that nothing of it was pushed: training diverged here."""

    shard: int


@dataclass(frozen=True)
class RejectedFrame:
    """A frame was rejected. ``log`` is whether it is worth a line in the log, or one of too many."""

    reason: Reason
    origin: int | None
    detail: str
    count: int
    log: bool


@dataclass(frozen=True)
class Reincarnated:
    """Others had declared us dead; all our mass was written off, and our z starts again with weight 1."""

    address: Address
    written_off: float


@dataclass(frozen=True)
class Merged:
    """What had arrived is merged; the values are the trainer's again, to move them."""


@dataclass(frozen=True)
class Rested:
    """The values are the core's until `Resume`."""


@dataclass(frozen=True)
class MemberChanged:
    """A member is now seen like this: it joined, died, left, took a new life, moved, is slow or no longer so."""

    record: Record
    before: Record | None


@dataclass(frozen=True)
class Welcomed:
    """The swarm let us in, and we know whom it knows."""


@dataclass(frozen=True)
class Expelled:
    """This peer cannot be a member: another process has its rank."""

    reason: str


@dataclass(frozen=True)
class Left:
    """This peer is gone; what it could not hand over is written off."""

    written_off: float


@dataclass(frozen=True)
class Compressing:
    """How parcels go out from now on, and why: told once what suits the link is known, and when that changes."""

    choice: Choice


@dataclass(frozen=True)
class Looked:
    """Somebody at this endpoint, with this key, wants to see how the swarm does: answer with `Show`."""

    endpoint: str
    key: str


@dataclass(frozen=True)
class Heard:
    """A peer told us news."""

    origin: Address
    body: bytes


@dataclass(frozen=True)
class Adopted:
    """The state of the others is ours now, with its annex."""


@dataclass(frozen=True)
class Synchronized:
    """This peer takes part, and has the state of the others: its own, or this one, which it has to take over."""

    round: int
    state: bytes | None


@dataclass(frozen=True)
class Withdrawn:
    """This peer takes no part any more."""


@dataclass(frozen=True)
class Reduced:
    """The vector of `Reduce` is the mean of ``count`` vectors; the same, to the bit, for everybody."""

    round: int
    count: int
    #: Whether there is no NaN or infinity in it.
    finite: bool


@dataclass(frozen=True)
class StateWanted:
    """Somebody is to take over this peer's state, which does not change before `Reduced`: answer with `Offer`."""

    round: int


@dataclass(frozen=True)
class Stranded:
    """Nothing can go on: whom it all depends on is gone."""

    reason: str


Effect = (
    Send
    | Proceed
    | Merged
    | Rested
    | Booked
    | Released
    | TakenBack
    | Drawn
    | Refused
    | Unanswered
    | NotFinite
    | RejectedFrame
    | Reincarnated
    | MemberChanged
    | Welcomed
    | Expelled
    | Left
    | Looked
    | Compressing
    | Heard
    | Adopted
    | Synchronized
    | Withdrawn
    | Reduced
    | StateWanted
    | Stranded
)
