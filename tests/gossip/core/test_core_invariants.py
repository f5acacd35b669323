"""A broken state is found, named, and shown with what led to it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hand_swarm import ONE_WAY, Hand, parcel

from gossip import events
from gossip.core.core import Core
from gossip.core.step import Phase
from gossip.errors import InvariantError
from gossip.wire.messages import Address

HERE, THERE = Address(0, 0), Address(1, 0)


def used() -> Core:
    """Return a core with two parcels on their way and one that waits."""
    hand = Hand([1.0, 2.0], [3.0, 4.0], turns=[ONE_WAY], algorithm="osgp", shards=2)
    hand.step(0)
    hand.tell(0, parcel())
    core = hand.cores[0]
    assert len(core.outbox) == 2
    core.validate_state()
    return core


def negative_weight(core: Core) -> None:
    core.mass.weights[1] = -0.5


def no_weight_at_all(core: Core) -> None:
    core.mass.weights[0] = float("nan")


def waits_while_training(core: Core) -> None:
    core.patience._until[1, 0] = (0, 9.0)


def waits_for_nobody(core: Core) -> None:
    core._step.phase = Phase.WAITING
    core.patience._until[7, 0] = (0, 9.0)


def parcel_of_a_former_life(core: Core) -> None:
    core.state.me = Address(0, 1)


def parcel_to_the_dead(core: Core) -> None:
    core.view.fence(THERE)


def miscounted_bytes(core: Core) -> None:
    core.outbox._links[1].nbytes += 1


def over_budget(core: Core) -> None:
    core.outbox._budget = 15


def shard_not_noted(core: Core) -> None:
    core.outbox._links[1].shards.remove(0)


def two_of_a_shard(core: Core) -> None:
    entries = core.outbox._links[1].entries
    entries[1] = entries[0]


def lost_in_the_book(core: Core) -> None:
    del core.outbox._all[1, 0]


def lost_in_the_link(core: Core) -> None:
    del core.outbox._links[1].entries[0]


def sequence_from_the_future(core: Core) -> None:
    core.outbox._links[1].next_sequence = 1


@pytest.mark.parametrize(
    ("corrupt", "said"),
    [
        (negative_weight, "negative weight: [0.5, -0.5]"),
        (no_weight_at_all, "negative weight: [nan, 0.5]"),
        (waits_while_training, "the trainer runs and yet is waiting"),
        (waits_for_nobody, "somebody is waited for who is no member: {7}"),
        (parcel_of_a_former_life, "a parcel of a former life is still in the book"),
        (parcel_to_the_dead, "a parcel to the dead was not taken back"),
        (miscounted_bytes, "16 bytes are in flight to"),
        (over_budget, "the budget is 15"),
        (shard_not_noted, "more than one parcel of a shard is in flight"),
        (two_of_a_shard, "more than one parcel of a shard is in flight"),
        (lost_in_the_book, "the book and its links disagree"),
        (lost_in_the_link, "the book and its links disagree"),
        (sequence_from_the_future, "a sequence that was not given out yet"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_state_is_found_and_named(corrupt: Callable[[Core], None], said: str) -> None:
    core = used()
    corrupt(core)
    with pytest.raises(InvariantError) as caught:
        core.validate_state()
    message = str(caught.value)
    assert said in message
    assert "peer 0, step 1: " in message
    told, history = message.split("\nrecent history:\n")
    assert "\n" not in told
    assert re.search(r"^  0\.000000 StepFinished \W*Send\W*$", history, re.MULTILINE)
    assert re.search(r"^  0\.000000 Tick \W*Send\W+Proceed\W*$", history, re.MULTILINE)
    assert re.search(r"^  0\.000000 Received \W*Booked\W+Send\W*$", history, re.MULTILINE)


def test_rounding_is_not_taken_for_a_negative_weight() -> None:
    core = used()
    core.mass.weights[0] = -1e-16
    core.validate_state()


def test_a_step_cannot_be_finished_twice() -> None:
    hand = Hand(1.0, 3.0)
    hand.step(0)
    before = hand.bits(0)
    with pytest.raises(InvariantError, match="step 1 is finished already; wait for Proceed") as caught:
        hand.step(0)
    assert re.search(r"recent history:\n  0\.000000 StepFinished \W*Send\W*$", str(caught.value))
    assert hand.bits(0) == before
    assert hand.cores[0].step == 1


def test_the_history_names_events_and_messages_and_is_bounded() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.now = 1.5
    hand.tell(0, parcel())
    message, event = hand.cores[0].history()
    assert message == "1.500000 Parcel 1#0 0#0"
    assert re.fullmatch(r"1\.500000 Received \W*Booked\W+Send\W*", event)
    for _ in range(500):
        hand.feed(0, events.Tick())
    assert len(hand.cores[0].history()) == 64


def test_an_invariant_error_without_a_history_is_one_line() -> None:
    assert str(InvariantError("broken")) == "broken"
