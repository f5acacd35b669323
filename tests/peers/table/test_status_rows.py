"""The rows of the swarm's table: which one counts, how many go round, and what is not let in."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import peers
from gossip.net.zmq_transport import new_keys
from launch.watch.invitation import Invitation
from launch.watch.lookout import Lookout, NobodyAnswers
from peers.table import status_rows
from peers.table.columns import COLUMNS, RATES, TOLD
from peers.table.pulse import Pulse
from peers.table.status_rows import Rows


def row(rank: int, life: int = 0, number: int = 1, **values: Any) -> list[Any]:
    return [rank, life, number, *(values.get(column.name) for column in TOLD)]


def packed(*rows: Any) -> bytes:
    data: bytes = msgpack.packb(list(rows))
    return data


def told(rows: Rows) -> list[int]:
    """Return the ranks of which the next message tells."""
    return [one[0] for one in msgpack.unpackb(rows.encode())]


def test_what_one_notes_another_sees() -> None:
    one, other = Rows(3), Rows(0)
    one.note(1000, step=7, loss=0.5, state="training")
    assert other.merge(one.encode()) is False, "nothing is passed on at once"
    seen = other.all()[3]
    assert (seen["incarnation"], seen["step"], seen["loss"], seen["state"]) == (1000, 7, 0.5, "training")
    assert seen["weight"] is None, "what is not said is not known"
    assert one.own()["step"] == 7
    assert other.own() == {}, "it has said nothing yet"


def test_of_two_rows_the_later_counts_in_whatever_order_they_come() -> None:
    rows = [
        row(1, life, number, step=step) for step, (life, number) in enumerate([(0, 1), (0, 9), (5, 1), (5, 2), (7, 1)])
    ]
    for order in itertools.permutations(rows):
        there = Rows(0)
        for one in order:
            there.merge(packed(one))
        assert there.all()[1]["step"] == 4
        assert there.all()[1]["incarnation"] == 7


def test_the_same_number_again_changes_nothing() -> None:
    there = Rows(0)
    there.merge(packed(row(1, 0, 5, step=1)))
    there.merge(packed(row(1, 0, 5, step=2)))
    assert there.all()[1]["step"] == 1


def test_nobody_else_says_how_this_peer_does() -> None:
    rows = Rows(0)
    rows.merge(packed(row(0, 9, 9, step=666)))
    assert rows.all() == {}
    rows.note(0, step=1)
    rows.merge(packed(row(0, 9, 9, step=666)))
    assert rows.all()[0]["step"] == 1


def test_a_message_is_bounded_and_all_get_their_turn() -> None:
    rows = Rows(0)
    for rank in range(1, 101):
        rows.merge(packed(row(rank)))
    rows.note(0, step=1)
    heard: set[int] = set()
    for _ in range(4):
        ranks = told(rows)
        assert len(ranks) == len(set(ranks)) == 32
        assert ranks[0] == 0, "the own row goes every time"
        heard.update(ranks)
    assert heard == set(range(101))
    there = Rows(500)
    there.merge(rows.encode())
    assert len(there.all()) == 32


def test_no_more_ranks_are_kept_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_rows, "_LIMIT", 4)
    rows = Rows(0)
    for rank in range(1, 10):
        rows.merge(packed(row(rank)))
    assert list(rows.all()) == [1, 2, 3, 4]
    rows.merge(packed(row(2, 0, 2, step=5)))
    assert rows.all()[2]["step"] == 5, "who is known is still heard"


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        7,
        [7],
        [[]],
        [row(1)[:-1]],
        [[*row(1), 0]],
        [row(-1)],
        [row(1 << 53)],
        [[True, *row(1)[1:]]],
        [[1.0, *row(1)[1:]]],
        [row(1, 1.5)],
        [row(1, 0, -1)],
        [row(1, step=True)],
        [row(1, step="many")],
        [row(1, loss=math.nan)],
        [row(1, loss=math.inf)],
        [row(1, state="\x1b[2J")],
        [row(1, state=3)],
        [row(1, state=["training"])],
        [row(1, step=[1])],
        [row(1, sends="\x1b[2J")],
        [row(1, sends="")],
        [row(1, sends="x" * 49)],
        [row(1, sends=8)],
        [row(2), row(1, loss=math.nan)],
    ],
    ids=repr,
)
def test_a_row_that_makes_no_sense_is_refused_and_changes_nothing(wrong: Any) -> None:
    rows = Rows(0)
    with pytest.raises(ValueError, match=r"are not valid|not msgpack"):
        rows.merge(msgpack.packb(wrong))
    assert rows.all() == {}


def test_too_many_rows_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="not msgpack"):
        Rows(0).merge(packed(*(row(rank) for rank in range(1, 66))))


_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(),
    lambda some: st.lists(some, max_size=14) | st.dictionaries(st.text(max_size=2), some, max_size=2),
    max_leaves=30,
)


@settings(max_examples=60)
@given(
    st.binary(max_size=200)
    | _ANYTHING.map(msgpack.packb)
    | st.lists(_ANYTHING, min_size=14, max_size=14).map(lambda one: msgpack.packb([one]))
)
def test_whatever_comes_is_taken_in_or_refused(data: bytes) -> None:
    rows = Rows(0)
    try:
        rows.merge(data)
    except ValueError:
        assert rows.all() == {}
    there = Rows(1 << 60)
    there.merge(rows.encode())
    assert there.all() == rows.all(), "what was taken in can be passed on"


NUMBERS = [column.name for column in TOLD if column.accepts(0.5)]
_FIGURES = st.fixed_dictionaries({}, optional={name: st.none() | st.floats(-1e9, 1e9) for name in NUMBERS})


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 3), _FIGURES), max_size=8), st.randoms())
def test_the_order_of_messages_does_not_matter(some: list[Any], random: Any) -> None:
    # A peer never says two things by one number.
    rows = {(rank, life, number): row(rank, life, number, **values) for rank, life, number, values in some}
    one, other = Rows(0), Rows(0)
    shuffled = list(rows.values())
    random.shuffle(shuffled)
    for each in rows.values():
        one.merge(packed(each))
    for each in shuffled:
        other.merge(packed(each))
    assert one.all() == other.all()


def test_a_row_is_told_by_places_that_never_change() -> None:
    """A peer of another build reads the same places: a new column goes to the end."""
    assert [column.place for column in TOLD] == list(range(len(TOLD)))
    assert [column.name for column in TOLD] == [
        "step",
        "samples",
        "loss",
        "samples_per_second",
        "wait_share",
        "weight",
        "neighbours",
        "bytes_per_second",
        "disagreement",
        "state",
        "sends",
    ]


def test_every_column_has_a_name_of_its_own() -> None:
    for names in ([column.name for column in COLUMNS], [column.title for column in COLUMNS if column.title]):
        assert len(names) == len(set(names))
    left_out = [column.spare for column in COLUMNS if column.spare]
    assert sorted(left_out) == list(range(1, len(left_out) + 1)), "in an order without ties"
    assert set(RATES.values()) <= {column.name for column in TOLD}


def test_an_unknown_column_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no column"):
        Rows(0).note(0, colour="red")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_not_told_or_all_would_refuse_the_row(value: float) -> None:
    rows, there = Rows(1), Rows(0)
    rows.note(0, step=3, disagreement=value)
    there.merge(rows.encode())
    assert there.all()[1]["step"] == 3
    assert there.all()[1]["disagreement"] is None


@pytest.mark.parametrize("text", ["x" * 49, "int8\n", ""])
def test_what_cannot_be_shown_is_not_told_or_all_would_refuse_the_row(text: str) -> None:
    rows, there = Rows(1), Rows(0)
    rows.note(0, step=3, sends=text)
    there.merge(rows.encode())
    assert (there.all()[1]["step"], there.all()[1]["sends"]) == (3, None)


@pytest.mark.parametrize("name", ["watch", "join"])
def test_a_peer_shows_the_swarm_to_who_has_a_key_for_it(name: str) -> None:
    own, guests = new_keys(), {"watch": new_keys(), "join": new_keys()}
    public = {f"{which}_key": keys.public.decode() for which, keys in guests.items()}
    with peers.join(keys=own, run="it", **public) as peer:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        place = {str(peer._transport.endpoint): own.public.decode()}
        with Lookout(Invitation(place, guests[name])) as lookout:
            found = lookout.look()
        with Lookout(Invitation(place, new_keys())) as lookout, pytest.raises(NobodyAnswers, match="may look"):
            lookout.look(0.4)
    assert found["setup"]["run"] == "it"
    assert found["setup"]["watch_key"] == public["watch_key"]
    (member,) = found["members"]
    assert {member["endpoint"]: member["key"]} == place
    assert (member["rank"], member["membership"], member["state"]) == (0, "alive", "training")
    assert "secret" not in str(found)
    assert own.secret.decode() not in str(found)


def test_a_pulse_turns_totals_into_rates() -> None:
    rows = Rows(0)
    pulse = Pulse(rows, 100.0)

    def beat(now: float, samples: float, **values: Any) -> dict[str, Any]:
        returned = pulse.beat(
            now, 0, totals={"samples": samples, "bytes": 10 * samples, "waited": samples / 100}, **values
        )
        told = {name: value for name, value in rows.own().items() if value is not None}
        assert returned == told, "the launcher is told what the others are told"
        return rows.own()

    first = beat(100.0, 0, loss=0.5, state="training")
    assert first["samples_per_second"] is None, "nothing to compare with yet"
    assert beat(100.5, 10)["samples_per_second"] is None, "too short a time says little"
    second = beat(102.0, 40)
    assert (second["samples_per_second"], second["bytes_per_second"], second["wait_share"]) == (20, 200, 0.2)
    assert (second["loss"], second["state"]) == (0.5, "training"), "holds until it is told again"
    assert beat(102.5, 1000)["samples_per_second"] == 20
    assert beat(104.0, 40, state="mixing")["samples_per_second"] == 0
    assert rows.own()["state"] == "mixing"


def test_a_loss_that_is_not_finite_is_for_the_launcher_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    with peers.join() as peer:
        model = torch.nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with monkeypatch.context() as patched:
            patched.setattr(peer._reporter, "_channel", SimpleNamespace(send=lambda status: told.append(status)))
            for loss in (0.5, math.nan):
                peer.log(loss=loss)
                peer._reporter.report(state="training")
        own = peer._attached().session.rows.own()
    assert math.isnan(told[-1]["loss"]), "whoever watches the launch should see it"
    assert own["loss"] == 0.5, "the others would refuse the row"
    assert {name: value for name, value in told[0].items() if name != "rank"} == {
        name: value for name, value in own.items() if value is not None
    }, "both have the same row"


def test_a_word_that_nobody_knows_yet_is_let_in() -> None:
    rows = Rows(0)
    rows.merge(packed(row(1, state="evaluating")))
    assert rows.all()[1]["state"] == "evaluating"
