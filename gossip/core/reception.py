"""What a peer makes of frames that arrive: decoded, believed or rejected, and passed to the part that they are for."""

from __future__ import annotations

from collections.abc import Sequence

from gossip import events
from gossip.collective.interface import Collective
from gossip.core.handover import Handover
from gossip.core.life import Life
from gossip.core.rejections import Rejections
from gossip.errors import Reason, Rejected
from gossip.exchange.traffic import Traffic
from gossip.membership import member_events as members
from gossip.values.buffers import Buffer
from gossip.wire.messages import (
    ANYBODY,
    Ack,
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
    Want,
)

__all__ = ["Reception"]


class Reception:
    """Reads what arrives. A new kind of message gets a case in `_pass_on`."""

    def __init__(self, traffic: Traffic, life: Life, handover: Handover, collective: Collective | None) -> None:
        self._traffic = traffic
        self._state = traffic.state
        self._outlet = traffic.out.outlet
        self._life = life
        self._handover = handover
        self._collective = collective
        #: What was rejected.
        self.rejections = Rejections()

    def receive(self, frames: Sequence[Buffer], looks_only: bool, now: float) -> None:
        """Take frames in, or count them as rejected: nothing of them reaches any part then."""
        try:
            message = self._outlet.codec.decode(frames)
            if looks_only and not isinstance(message, Look):
                raise Rejected(
                    Reason.STRANGER, f"{type(message).__name__}: the key is good for looking only", message.origin.rank
                )
            self._outlet.note(message, now)
            if isinstance(message, Roll | Look | Shown):
                self._accept_from_anybody(message, now)
            else:
                self._accept(message, now)
        except Rejected as error:
            log = self.rejections.add(error.reason, error.origin, now)
            count = self.rejections.by_reason[error.reason]
            self._outlet.emit(events.RejectedFrame(error.reason, error.origin, str(error), count, log))

    def _accept_from_anybody(self, message: Roll | Look | Shown, now: float) -> None:
        """Take in what may come from one that is no member, dead to us, or found under another's rank."""
        if message.destination.rank not in (self._state.me.rank, ANYBODY):
            raise Rejected(
                Reason.STRANGER,
                f"{type(message).__name__}: for rank {message.destination.rank}, and this is {self._state.me.rank}",
                message.origin.rank,
            )
        membership = self._life.membership
        if isinstance(message, Look):
            self._outlet.emit(events.Looked(message.endpoint, message.key))
        elif isinstance(message, Roll) and membership is not None:
            self._life.believe(membership.handle(members.BodyReceived(message.origin.rank, message.body), now), now)
        else:
            raise Rejected(
                Reason.STRANGER, f"{type(message).__name__}: this peer did not ask for the message", message.origin.rank
            )

    def _accept(self, message: Message, now: float) -> None:
        """Take in what a member says, in its present life and in ours."""
        me, view = self._state.me, self._state.view
        origin, destination = message.origin, message.destination
        if destination.rank != me.rank or origin.rank == me.rank or not view.known(origin.rank):
            raise Rejected(
                Reason.STRANGER,
                f"{type(message).__name__}: from rank {origin.rank} to {destination.rank}, not both known here",
                origin.rank,
            )
        if view.fenced(origin) and not isinstance(message, Fence):
            if not isinstance(message, Hello):  # somebody whom we believe dead, and who deals with us: it must be told
                self._traffic.out.fence(origin)
            raise Rejected(Reason.STALE, f"incarnation {origin.incarnation} is dead here", origin.rank)
        current = view.incarnation(origin.rank)
        if current is not None and origin.incarnation < current:
            raise Rejected(Reason.STALE, f"incarnation {origin.incarnation} is over", origin.rank)
        if not view.fenced(origin):
            self._life.admit(origin, now)
            self._life.heard(origin, now)
        match message:
            case Fence():
                self._fenced(message, now)
            case Hello():
                pass  # to know who it is was all
            case News(body=body, updates=updates):
                self._life.absorb(updates, now)
                self._outlet.emit(events.Heard(origin, body))
            case Bye(hands_over=hands_over):
                self._life.let_go(origin, hands_over)
            case _:
                if destination.incarnation != self._state.me.incarnation:
                    if isinstance(message, Parcel) and destination.incarnation < self._state.me.incarnation:
                        self._outlet.send(Hello(self._state.me, origin))
                    raise Rejected(Reason.STALE, f"for incarnation {destination.incarnation} of us", origin.rank)
                self._pass_on(message, now)

    def _fenced(self, fence: Fence, now: float) -> None:
        """Hear that we were declared dead: our life is over, if it is this one."""
        origin, incarnation = fence.origin, fence.destination.incarnation
        if incarnation > self._state.me.incarnation:
            raise Rejected(Reason.STALE, f"a fence for incarnation {incarnation} of us", origin.rank)
        if incarnation == self._state.me.incarnation:
            self._life.reincarnate(incarnation + 1, now)
        self._outlet.send(Hello(self._state.me, origin))

    def _pass_on(self, message: Message, now: float) -> None:
        """Let the part that a message is for have it."""
        traffic, origin = self._traffic, message.origin
        match message:
            case Parcel(turn=turn, shard=shard) | Pass(turn=turn, shard=shard) if traffic.is_absurd(turn, shard):
                raise Rejected(
                    Reason.WINDOW,
                    f"{type(message).__name__}: turn {turn} is further ahead than any honest peer can be",
                    origin.rank,
                )
            case Parcel():
                traffic.take_in(message, now)
            case Pass(turn=turn, shard=shard):
                traffic.heard(origin.rank, shard, turn, now)
            case Ack(sequence=sequence):
                traffic.out.acknowledged(origin, sequence, now)
            case Refusal(sequence=sequence):
                refused = traffic.refused(origin, sequence, now)
                if refused is not None:
                    self._life.leaving.refused(refused)
            case Want(piece=piece):
                self._handover.want(origin, piece)
            case Piece():
                if self._handover.take(message):
                    self._life.stateless = False
                    self._outlet.emit(events.Adopted())
            case Pull():
                traffic.asked(message, now)
            case Proposal():
                traffic.offered(message, now)
            case Enter() | Lack() | Chunk() if self._collective is not None:
                self._collective.receive(message, self._state.me, self._state.view.members, now)
            case Settled():
                self._life.leaving.settle(origin)
            case _:
                raise Rejected(
                    Reason.STRANGER, f"{type(message).__name__}: nothing at this peer takes such messages", origin.rank
                )
