"""The step of one peer: whose the values are, which shards take their turns, and when the trainer goes on.

The step is always in one phase, and changes it by the table below and in no other way; docs/pictures/step_phases.py
draws the table. In TRAINING the values belong to the trainer, in all other phases to the core.

Each shard walks the schedule at its own pace: its *turn* counts its own pushes, so a share of the shards per step
cannot alias with the schedule's period. Where a policy ever waits for a turn, or averages pairs, the turn is a Lamport
clock: a shard that finds itself behind skips to where the others are. And where a policy is synchronous a parcel of a
later turn waits for that turn, so that turns mix in order.

An exchange has one or several *rounds*. In each of them every shard takes a turn, and the next round begins when what
the step waits for is there: so it passes on what this one brought. A step begins with a turn that is a multiple of the
rounds. Otherwise the first round of some would be the second of others, who would wait for them to compute.
"""

from __future__ import annotations

from enum import Enum

from gossip import events
from gossip.errors import InvariantError
from gossip.exchange.coding import Coding
from gossip.exchange.traffic import Traffic

__all__ = ["TRANSITIONS", "Cause", "Phase", "Step"]


class Phase(Enum):
    """Where a step is."""

    TRAINING = "the trainer computes; the values are the trainer's"
    TURNS = "a step is finished; its shards take their turns, one with each call"
    WAITING = "all turns are taken; the step waits for parcels that it wants, within its patience"
    RESTING = "the trainer rests; what arrives is merged at once"
    HOLDING = "the trainer rests; what arrives waits"
    LEAVING = "the peer hands its mass over; what arrives is refused"
    GONE = "the peer has left"


class Cause(Enum):
    """Why a step changes its phase."""

    EXCHANGE = "StepFinished: exchange"
    LOCAL = "StepFinished: local step"
    TURNS_TAKEN = "the last shard's turn"
    ROUND = "nothing is waited for: next round"
    READY = "nothing is waited for: Proceed"
    REST = "Rest"
    HOLD = "Rest(merge=False)"
    RESUME = "Resume"
    LEAVE = "Leave"
    DEPART = "nothing is left to hand over"


TRANSITIONS: dict[tuple[Phase, Cause], Phase] = {
    (Phase.TRAINING, Cause.EXCHANGE): Phase.TURNS,
    (Phase.TRAINING, Cause.LOCAL): Phase.WAITING,
    (Phase.TURNS, Cause.TURNS_TAKEN): Phase.WAITING,
    (Phase.WAITING, Cause.ROUND): Phase.TURNS,
    (Phase.WAITING, Cause.READY): Phase.TRAINING,  # the core says Proceed
    (Phase.TRAINING, Cause.REST): Phase.RESTING,
    (Phase.TRAINING, Cause.HOLD): Phase.HOLDING,
    (Phase.RESTING, Cause.RESUME): Phase.WAITING,
    (Phase.HOLDING, Cause.RESUME): Phase.WAITING,
    (Phase.TRAINING, Cause.LEAVE): Phase.LEAVING,
    (Phase.TURNS, Cause.LEAVE): Phase.LEAVING,
    (Phase.WAITING, Cause.LEAVE): Phase.LEAVING,
    (Phase.RESTING, Cause.LEAVE): Phase.LEAVING,
    (Phase.HOLDING, Cause.LEAVE): Phase.LEAVING,
    (Phase.LEAVING, Cause.LEAVE): Phase.LEAVING,  # at once, after all
    (Phase.GONE, Cause.LEAVE): Phase.LEAVING,  # the driver has not heard that it is gone, and asks again
    (Phase.LEAVING, Cause.DEPART): Phase.GONE,
}

#: In these what arrives is merged at once.
_MERGING = frozenset([Phase.TURNS, Phase.WAITING, Phase.RESTING])


class Step:
    """The phase of one peer's step, and what a step does in each."""

    def __init__(self, traffic: Traffic, number: int, now: float | None) -> None:
        """Begin in TRAINING.

        Args:
            traffic: moves the mass.
            number: local steps finished before.
            now: when the trainer starts its first step, so that it counts for how long a step takes.
        """
        self._traffic = traffic
        self._state = traffic.state
        self._patience = traffic.out.patience
        self._coding: Coding = traffic.out.coding
        self._outlet = traffic.out.outlet
        self.phase = Phase.TRAINING
        #: Local steps finished.
        self.number = number
        #: The step to go back to when measuring ends.
        self._trained = number
        #: Shards that have not taken their turns yet in this round, and since when the next one's is due.
        self.turns_left = 0
        self._due_at = 0.0
        self._next_shard = 0
        #: The first shard of this step, and the rounds that are still to come. Our own parcels may delay the next one
        #: until `_clear_at`.
        self._first_shard = 0
        self._rounds_left = 0
        self._clear_at = 0.0
        #: Steps since the last exchange: their computing is the time that its push had.
        self._since_exchange = 0
        if now is not None:
            self._patience.step_began(now)

    # The phase

    @property
    def open(self) -> bool:
        """Whether the values are the core's."""
        return self.phase is not Phase.TRAINING

    @property
    def merges(self) -> bool:
        """Whether what arrives now is merged at once."""
        return self.phase in _MERGING

    @property
    def due_at(self) -> float | None:
        """When the next shard's turn is due, or the next round at the latest."""
        if self.turns_left:
            return self._due_at
        return self._clear_at if self._rounds_left and not self._patience else None

    def _change(self, cause: Cause) -> None:
        phase = TRANSITIONS.get((self.phase, cause))
        if phase is None:
            raise InvariantError(
                f"{cause.value} is not possible while {self.phase.name}: {self.phase.value}", self._outlet.history()
            )
        self.phase = phase

    # What the trainer does

    def finish(self, now: float) -> bool:
        """Take a finished step over; return whether it ends in an exchange, of which the first turn is due now."""
        if self.open:
            raise InvariantError(f"step {self.number} is finished already; wait for Proceed", self._outlet.history())
        state, policy = self._state, self._state.policy
        self._patience.step_ended(now)
        self.number += 1
        self._since_exchange += not state.measuring
        state.gaps = {}
        lag = policy.lag_at(self.number)
        self._patience.keep_lag(lag)
        self._traffic.books.inbox.in_order = lag == 0 or self._in_step()
        exchanges = policy.exchanges(self.number) or state.measuring
        self._change(Cause.EXCHANGE if exchanges else Cause.LOCAL)
        self._traffic.merge_all(now)
        if exchanges:
            self._first_shard, self._rounds_left = self._next_shard, policy.rounds
            self._begin_round(now)
        return exchanges

    def _begin_round(self, now: float) -> None:
        """Let the shards of this step take a turn each, the first one now."""
        self._rounds_left -= 1
        self._next_shard = self._first_shard
        self.turns_left = max(1, round(self._coding.most * self._state.mass.layout.shards))
        self._due_at = now

    def take_turn(self, now: float) -> int | None:
        """Let the next shard take its turn; return it if it was the last one of the step.

        The rest are due at once, with a `Tick`. One at a time, so that what has arrived is merged and answered in
        between, while it is in the cache, and less memory is in flight at a time.
        """
        if not self.turns_left:
            return None
        self.turns_left -= 1
        shard, self._next_shard = self._next_shard, (self._next_shard + 1) % self._state.mass.layout.shards
        self._walk(shard, now)
        if self.turns_left:
            return None
        self._change(Cause.TURNS_TAKEN)
        if self._rounds_left:
            self._clear_at = now + self._patience.longest(self._state.settings)
            return None
        return shard

    def _walk(self, shard: int, now: float) -> None:
        """Let a shard take its turn, and want what it has to wait for."""
        state, patience = self._state, self._patience
        lag = patience.lag
        turn = state.turns[shard]
        if self._rounds_left == state.policy.rounds - 1:
            turn = self._caught_up(shard, turn)
        state.turns[shard] = turn + 1
        patience.pushed(shard, turn, now)
        self._traffic.take_turn(shard, turn, self.number, now)
        if lag is not None and turn >= lag:
            for rank in state.view.in_neighbours(turn - lag):
                patience.want(rank, shard, turn - lag, now, state.settings)
        if lag and state.policy.wait:
            for rank in state.view.in_neighbours(turn):
                patience.want_briefly(rank, shard, turn, now)

    def _in_step(self) -> bool:
        """Whether a policy that waits briefly keeps turns in order: nobody is more than a turn ahead of this peer."""
        state = self._state
        return state.policy.wait > 0 and all(
            furthest <= turn + 1 for furthest, turn in zip(state.furthest, state.turns, strict=True)
        )

    def _caught_up(self, shard: int, turn: int) -> int:
        """Return the turn that a step begins with: the shard's own, or a later one if it is behind."""
        state, lag = self._state, self._patience.lag
        behind = state.furthest[shard] - turn
        if lag is None:
            turn += state.view.skipped(behind)
        # Peers that wait for their neighbours are as many turns apart as there are links between them, about log n, and
        # as many times that as they may be late.
        elif behind > (1 + lag) * len(state.view.members).bit_length():
            turn += behind  # further behind than that is slow, or was cut off
        return turn + -turn % state.policy.rounds

    def choose_coding(self, shard: int) -> None:
        """Let the coding look whether another would suit the link better, after the turn of the last shard."""
        if self._state.measuring:
            # Whole shards go out as they are, and nothing is computed: no time to choose, nor to measure by.
            self._coding.look_anew(self._patience.waited)
            return
        steps, self._since_exchange = self._since_exchange, 0
        typical = self._patience.step_time
        compute = None if typical is None else steps * typical
        last = self._state.turns[shard]
        pushes = sum(len(self._state.view.out_edges(turn)) for turn in range(last - self._state.policy.rounds, last))
        choice = self._coding.exchanged(compute, self._patience.waited, pushes, len(self._state.view.members))
        if choice is not None:
            self._outlet.emit(events.Compressing(choice))

    def rest(self, merge: bool, now: float) -> None:
        """Take the values over until `resume`."""
        if self.open:
            raise InvariantError(
                f"{self.phase.name}: the values are the core's already; wait for Proceed, or Resume",
                self._outlet.history(),
            )
        self._change(Cause.REST if merge else Cause.HOLD)
        if merge:
            self._traffic.merge_all(now)

    def resume(self) -> None:
        """Give the values back after a rest; without one there is nothing to do."""
        if (self.phase, Cause.RESUME) in TRANSITIONS:
            self._change(Cause.RESUME)

    def leave(self) -> None:
        """Keep the values as they are, for whoever looks at the model afterwards."""
        self._change(Cause.LEAVE)
        self.turns_left = self._rounds_left = 0  # what has not had its turn yet goes to the heirs

    def depart(self) -> None:
        """Be gone."""
        self._change(Cause.DEPART)

    def measure(self, on: bool) -> None:
        """Let steps only mix and measure, or train again."""
        if on:
            self._trained = self.number
        elif self._state.measuring:
            self.number = self._trained  # steps that only mixed do not count
        self._state.measuring = on
        self._state.gaps = {}

    def proceed_if_ready(self, now: float) -> None:
        """Give up what is overdue; once nothing is waited for, begin the next round, or let the trainer go on."""
        if self.phase is Phase.TRAINING:
            return
        self._patience.expire(now)  # of one that leaves, too, or its deadline never ends
        if self.phase is not Phase.WAITING or self._patience:
            return
        if self._rounds_left:
            if now >= self._clear_at or self._is_clear():
                self._change(Cause.ROUND)
                self._begin_round(now)
        else:
            self._change(Cause.READY)
            self._patience.step_began(now)
            self._outlet.emit(events.Proceed(self.number))

    def _is_clear(self) -> bool:
        """Whether the next round can push: a neighbour takes a shard only when it has answered the one before.

        Only what this step has sent counts, or a peer that has died would delay every step.
        """
        state, taken = self._state, self._state.policy.rounds - self._rounds_left
        return not any(
            entry.parcel.turn >= state.turns[entry.parcel.shard] - taken
            and any(entry.parcel.destination == to for to, _ in state.view.out_edges(state.turns[entry.parcel.shard]))
            for entry in self._traffic.books.outbox
        )
