"""Which of two statements about a member counts."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from membership_hand import KEY

from gossip.membership import Record, State

ALIVE = Record(3, 1, 2, State.ALIVE, "a:1")

records = st.builds(
    Record,
    rank=st.just(3),
    incarnation=st.integers(0, 2),
    refutations=st.integers(0, 2),
    state=st.sampled_from([State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT]),
    endpoint=st.sampled_from(["a:1", "b:2"]),
)


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        (replace(ALIVE, incarnation=2, refutations=0), replace(ALIVE, state=State.LEFT)),  # a later life beats all
        (replace(ALIVE, state=State.SUSPECT), ALIVE),
        (replace(ALIVE, refutations=3), replace(ALIVE, state=State.SUSPECT)),  # the refutation beats the suspicion
        (replace(ALIVE, state=State.SUSPECT), replace(ALIVE, refutations=1)),
        (replace(ALIVE, state=State.DEAD), replace(ALIVE, state=State.SUSPECT)),
        (replace(ALIVE, refutations=3), replace(ALIVE, state=State.DEAD)),  # declared in ignorance of the refutation
        (replace(ALIVE, state=State.LEFT), replace(ALIVE, state=State.DEAD)),
        (replace(ALIVE, endpoint="b:1"), ALIVE),  # two processes with one name are no matter of opinion
    ],
)
def test_what_beats_what(stronger: Record, weaker: Record) -> None:
    assert stronger.beats(weaker)
    assert not weaker.beats(stronger)


def test_nothing_beats_itself_and_anything_beats_nothing() -> None:
    assert not ALIVE.beats(ALIVE)
    assert ALIVE.beats(None)


@given(st.lists(records, min_size=1, max_size=4))
def test_statements_merge_to_the_same_in_any_order(statements: list[Record]) -> None:
    def merge(held: Record, said: Record) -> Record:
        return said if said.beats(held) else held

    ends = {reduce(merge, order).precedence for order in permutations(statements)}
    assert len(ends) == 1


@given(records, records)
def test_marks_tell_statements_apart(one: Record, other: Record) -> None:
    assert (one.mark == other.mark) == (one.precedence == other.precedence)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": -1}, "rank -1"),
        ({"rank": 1 << 31}, "rank"),
        ({"incarnation": 1 << 53}, "life"),
        ({"refutations": -1}, "refutations"),
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "host"}, "endpoint"),
        ({"endpoint": "host:0"}, "port 0"),
        ({"endpoint": "host:70000"}, "endpoint"),
        ({"endpoint": "a" * 300 + ":1"}, "300|302 characters"),
        ({"key": "short"}, "public key"),
        ({"key": '"' * 40}, "public key"),
        ({"key": "\u00e9" * 40}, "public key"),
    ],
)
def test_a_wrong_record_says_what_is_wrong(change: dict[str, object], words: str) -> None:
    found = replace(Record(1, endpoint="host:5555", key=KEY), **change).wrong()  # type: ignore[arg-type]
    assert any(word in found for word in words.split("|")), found


def test_a_good_record_has_nothing_wrong() -> None:
    assert Record(1, 5, 2, State.SUSPECT, "[::1]:5555", KEY).wrong() == ""
