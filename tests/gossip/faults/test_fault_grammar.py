"""The grammar of stragglers and faults: every form of its docstring, and every way to get one wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossip import faults
from gossip.errors import SettingsError
from gossip.faults import Cut, Fault, Faults, Incident, Moment, Pause, Straggler, parse_fault, parse_faults
from gossip.faults.weather import Weather

PARSERS: list[Callable[[str], object]] = [
    faults.parse_incident,
    faults.parse_pause,
    faults.parse_cut,
    faults.parse_straggler,
    faults.parse_share,
    faults.parse_delay,
    faults.parse_bandwidth,
    faults.parse_fault,
]


def steps(value: float) -> Moment:
    return Moment(value, in_steps=True)


def clock(value: float) -> Moment:
    return Moment(value, in_steps=False)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("100", steps(100)),
        ("100step", steps(100)),
        ("100steps", steps(100)),
        ("100 steps", steps(100)),
        (" 100 ", steps(100)),
        ("1", steps(1)),
        ("2.5s", clock(2.5)),
        ("2s", clock(2)),
        ("300ms", clock(0.3)),
        ("0.5ms", clock(0.0005)),
    ],
)
def test_moments(text: str, moment: Moment) -> None:
    incident = faults.parse_incident(f"3@{text}")
    assert incident == Incident(3, Moment(pytest.approx(moment.value), moment.in_steps))


def test_a_moment_in_seconds() -> None:
    assert steps(100).seconds(0.1) == pytest.approx(10.0)
    assert clock(2.5).seconds(0.1) == 2.5


def test_a_pause() -> None:
    assert faults.parse_pause("1@100+10s") == Pause(1, steps(100), clock(10))
    assert faults.parse_pause("12@2.5s+30") == Pause(12, clock(2.5), steps(30))


@pytest.mark.parametrize(
    ("ranks", "meant"),
    [
        ("3", {3}),
        ("0-3", {0, 1, 2, 3}),
        ("5-5", {5}),
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("1,1,0-1", {0, 1}),
        (" 1 , 2 ", {1, 2}),
    ],
)
def test_ranks(ranks: str, meant: set[int]) -> None:
    assert faults.parse_straggler(f"{ranks}=4x").ranks == meant
    assert faults.parse_cut(f"{ranks}|99@1+1").left == meant
    assert faults.parse_cut(f"99|{ranks}@1+1").right == meant


def test_a_cut_separates_its_sides_and_nobody_else() -> None:
    cut = faults.parse_cut("0-31|32-63@100+50")
    assert cut == Cut(frozenset(range(32)), frozenset(range(32, 64)), steps(100), steps(50))
    assert cut.separates(0, 32)
    assert cut.separates(63, 31)
    assert not cut.separates(0, 31)
    assert not cut.separates(32, 63)
    assert not cut.separates(0, 64)
    assert not cut.separates(64, 0)


@pytest.mark.parametrize(
    ("text", "straggler"),
    [
        ("2=4x", Straggler(frozenset({2}), (4.0, 4.0))),
        ("2=0.5x", Straggler(frozenset({2}), (0.5, 0.5))),
        ("0-1=+50ms", Straggler(frozenset({0, 1}), extra=0.05)),
        ("2=+1.5s", Straggler(frozenset({2}), extra=1.5)),
        ("2=4x@100-200", Straggler(frozenset({2}), (4.0, 4.0), start=steps(100), stop=steps(200))),
        ("2=+50ms@2.5s-300", Straggler(frozenset({2}), extra=0.05, start=clock(2.5), stop=steps(300))),
        ("random=10%:2x-5x", Straggler(None, (2.0, 5.0), share=0.1)),
        ("random=0.1:2x", Straggler(None, (2.0, 2.0), share=0.1)),
        ("random=10%:2x-5x@1s-2s", Straggler(None, (2.0, 5.0), share=0.1, start=clock(1), stop=clock(2))),
    ],
)
def test_stragglers(text: str, straggler: Straggler) -> None:
    assert faults.parse_straggler(text) == straggler


def test_named_stragglers_are_those_that_are_named() -> None:
    straggler = faults.parse_straggler("2,4=4x")
    assert [rank for rank in range(6) if straggler.slows(rank, seed=1)] == [2, 4]
    assert straggler.factor(2, seed=1) == 4.0


def test_random_stragglers_are_about_the_share_and_drawn_by_the_seed() -> None:
    straggler = faults.parse_straggler("random=10%:2x-5x")
    slow = [rank for rank in range(10_000) if straggler.slows(rank, seed=1)]
    assert 900 < len(slow) < 1100
    assert slow == [rank for rank in range(10_000) if straggler.slows(rank, seed=1)]
    assert slow != [rank for rank in range(10_000) if straggler.slows(rank, seed=2)]
    drawn = [straggler.factor(rank, seed=1) for rank in slow]
    assert min(drawn) >= 2.0
    assert max(drawn) <= 5.0
    assert max(drawn) - min(drawn) > 2.8


@pytest.mark.parametrize(
    ("text", "share"), [("10%", 0.1), ("0.1", 0.1), ("0", 0), ("0%", 0), ("100%", 1), ("1", 1), (" 5% ", 0.05)]
)
def test_shares(text: str, share: float) -> None:
    assert faults.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("20ms", 0.02, 0.02), ("5ms-50ms", 0.005, 0.05), ("5ms-1s", 0.005, 1), ("0-5ms", 0, 0.005), ("0", 0, 0)],
)
def test_delays(text: str, low: float, high: float) -> None:
    assert faults.parse_delay(text) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [("50", 6.25e6), ("50mbit", 6.25e6), ("50Mbit", 6.25e6), ("8 kbit", 1e3), ("1gbit", 1.25e8), ("0.5mbit", 62500)],
)
def test_bandwidths(text: str, bytes_per_second: float) -> None:
    assert faults.parse_bandwidth(text) == bytes_per_second


def test_a_moment_is_reached_by_steps_or_by_seconds() -> None:
    assert steps(3).reached(3, 0)
    assert not steps(3).reached(2, 100)
    assert clock(3).reached(0, 3)
    assert not clock(3).reached(100, 2.9)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("kill:1@300", "kill", Incident(1, steps(300))),
        ("kill:1@2.5s", "kill", Incident(1, clock(2.5))),
        ("restart:1@400", "restart", Incident(1, steps(400))),
        ("pause:1@100+10s", "pause", Pause(1, steps(100), clock(10))),
        ("cut:0-1|2@200+30s", "cut", Cut(frozenset({0, 1}), frozenset({2}), steps(200), clock(30))),
        ("drop:5%", "drop", 0.05),
        ("loss:5%", "drop", 0.05),
        ("duplicate:1%", "duplicate", 0.01),
        ("corrupt:0.1%", "corrupt", 0.001),
        ("delay:20ms-80ms", "delay", (0.02, 0.08)),
        ("bandwidth:50mbit", "bandwidth", 6.25e6),
        (" kill : 1 @ 300 ", "kill", Incident(1, steps(300))),
    ],
)
def test_a_fault(text: str, kind: str, said: faults.Said) -> None:
    assert parse_fault(text) == Fault(kind, said, text)


def test_the_faults_of_a_run() -> None:
    texts = ["kill:1@300", "restart:1@400", "kill:1@500", "kill:2@5s", "restart:2@400", "pause:3@100+10s",
             "pause:3@200+10s", "cut:0-1|2-3@200+30s", "drop:5%", "delay:20ms-80ms", "duplicate:1%", "corrupt:0.1%",
             "bandwidth:50mbit"]  # fmt: skip
    found = parse_faults(iter(texts), 4, seed=7)
    assert found == Faults(
        kills=(Incident(1, steps(300)), Incident(1, steps(500)), Incident(2, clock(5))),
        restarts=(Incident(1, steps(400)), Incident(2, steps(400))),
        pauses=(Pause(3, steps(100), clock(10)), Pause(3, steps(200), clock(10))),
        cuts=(Cut(frozenset({0, 1}), frozenset({2, 3}), steps(200), clock(30)),),
        weather=Weather(7, loss=0.05, duplicate=0.01, corrupt=0.001, delay=(0.02, 0.08), bandwidth=6.25e6),
    )
    assert found
    assert found == parse_faults(texts, 4, seed=7)


def test_the_order_of_kills_and_restarts_does_not_matter() -> None:
    assert parse_faults(["restart:1@4", "kill:1@5", "kill:1@3"], 2).kills == (
        Incident(1, steps(5)),
        Incident(1, steps(3)),
    )


def test_without_weather_the_network_is_left_alone() -> None:
    assert parse_faults(["kill:1@3", "cut:0|1@1+1"], 2).weather is None
    assert parse_faults(["drop:0%", "delay:0"], 2, seed=3) == Faults()
    assert not parse_faults([], 2)


def test_who_is_cut_off() -> None:
    found = parse_faults(["cut:0|1-2@1+1", "cut:5|6@1+1"], 8)
    assert [rank for rank in range(8) if found.cuts_off(rank)] == [0, 1, 2, 5, 6]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["kill:4@3"], "'kill:4@3': rank 4 does not exist; ranks are 0 to 3"),
        (["pause:9@3+1s"], "'pause:9@3+1s': rank 9 does not exist"),
        (["cut:0-1|2-5@3+1s"], "'cut:0-1|2-5@3+1s': rank 4 does not exist"),
        (["kill:1@3", "restart:7@5"], "'restart:7@5': rank 7 does not exist"),
        (["kill:0@3", "restart:1@5"], "'restart:1@5': rank 1 is never killed, so it cannot be restarted"),
        (["kill:1@3", "restart:1@5", "restart:1@6"], "'restart:1@6': rank 1 is killed only 1x"),
        (["restart:1@5", "kill:1@6"], "'restart:1@5': rank 1 is killed only after that (see the fault 'kill:1@6')"),
        (["kill:1@5", "restart:1@5"], "'restart:1@5': rank 1 is killed only after that"),
        (["kill:1@5s", "restart:1@4s"], "rank 1 is killed only after that"),
        (["kill:1@5", "kill:1@9"], "'kill:1@9': rank 1 is killed before; add a restart:1@... in between"),
        (["kill:1@5", "kill:1@9", "restart:1@9"], "rank 1 is not restarted before that (see the fault 'restart:1@9')"),
        (["kill:1@5", "kill:1@9", "restart:1@7", "restart:1@8"], "'restart:1@8': rank 1 is killed only after that"),
        (["kill:1@5", "restart:1@7", "kill:1@9s"], "give all moments of rank 1 in steps, or all as times"),
        (["kill:1@5", "kill:1@5step"], "'kill:1@5step': kill is already given by 'kill:1@5'"),
        (["drop:5%", "drop:6%"], "'drop:6%': drop is already given by 'drop:5%'; give it once"),
        (["drop:5%", "loss:6%"], "'loss:6%': drop is already given by 'drop:5%'"),
        (["delay:5ms", "drop:5%", "delay:6ms-9ms"], "'delay:6ms-9ms': delay is already given by 'delay:5ms'"),
        (["bandwidth:5", "bandwidth:6"], "bandwidth is already given by"),
        (["cut:0|1@3+1", "cut:0|1@3+1"], "cut is already given by"),
        (["pause:0@3+1s", "pause:0@3+1s"], "pause is already given by"),
        (["drop:5%", "kil:1@3"], "did you mean kill?"),
    ],
)  # fmt: skip
def test_faults_that_cannot_be_meant_together(texts: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_faults(texts, 4)
    assert said in str(caught.value)


def test_stragglers_of_a_run() -> None:
    assert faults.parse_stragglers(["2=4x", "random=10%:1x-5x"], 4) == (
        Straggler(frozenset({2}), (4.0, 4.0)),
        Straggler(None, (1.0, 5.0), share=0.1),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2-4=4x", "'2-4=4x': rank 4 does not exist; ranks are 0 to 3"),
        ("2=0.5x", "'2=0.5x': a real peer can be slowed down, not sped up; use a factor of 1x or more"),
        ("random=10%:0.5x-2x", "slowed down, not sped up"),
        ("random=10%:2x-0.5x", "slowed down, not sped up"),
        ("2=4", "'4' is not a factor such as 4x"),
    ],
)
def test_stragglers_that_cannot_be_real(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        faults.parse_stragglers(["1=2x", text], 4)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (faults.parse_incident, "3", "is not of the form RANK@MOMENT, such as 3@100 or 3@2.5s"),
        (faults.parse_incident, "@100", "a rank must be a number from 0 on, not ''"),
        (faults.parse_incident, "-1@100", "not '-1'"),
        (faults.parse_incident, "a@100", "not 'a'"),
        (faults.parse_incident, "1.5@100", "not '1.5'"),
        (faults.parse_incident, "\N{SUPERSCRIPT TWO}@100", "a rank must be a number"),
        (faults.parse_incident, "3@", "'' is not a number of steps, nor a time"),
        (faults.parse_incident, "3@-5", "'-5' is not a number of steps"),
        (faults.parse_incident, "3@5m", "'5m' is not a number of steps"),
        (faults.parse_incident, "3@1e3", "'1e3' is not a number of steps"),
        (faults.parse_incident, "3@nan", "'nan' is not a number of steps"),
        (faults.parse_incident, "3@5@6", "'5@6' is not a number of steps"),
        (faults.parse_pause, "1@100", "is not of the form RANK@MOMENT+SPAN"),
        (faults.parse_pause, "1+5", "is not of the form RANK@MOMENT+SPAN"),
        (faults.parse_pause, "1@100+", "'' is not a number of steps"),
        (faults.parse_cut, "0-3@100+50", "is not of the form RANKS|RANKS@MOMENT+SPAN"),
        (faults.parse_cut, "0|1@100", "is not of the form RANKS|RANKS@MOMENT+SPAN"),
        (faults.parse_cut, "0|1", "is not of the form RANKS|RANKS@MOMENT+SPAN"),
        (faults.parse_cut, "|1@1+1", "a rank must be a number"),
        (faults.parse_cut, "0-3|3-5@1+1", "rank 3 is on both sides of the cut"),
        (faults.parse_cut, "3-0|5@1+1", "the range '3-0' must begin with the lower rank"),
        (faults.parse_cut, "0-9999999|5@1+1", "has more ranks than any swarm"),
        (faults.parse_cut, "0-|5@1+1", "not ''"),
        (faults.parse_straggler, "2", "is not of the form RANKS=4x"),
        (faults.parse_straggler, "2=4", "'4' is not a factor such as 4x"),
        (faults.parse_straggler, "2=0x", "'0x' is not a factor"),
        (faults.parse_straggler, "2=-4x", "'-4x' is not a factor"),
        (faults.parse_straggler, "2=+50", "give the delay in seconds or milliseconds, as in 2=+50ms"),
        (faults.parse_straggler, "2=4x@100", "is not of the form RANKS=4x"),
        (faults.parse_straggler, "2=4x@100-", "'' is not a number of steps"),
        (faults.parse_straggler, "x=4x", "a rank must be a number"),
        (faults.parse_straggler, "random=10%", "is not of the form RANKS=4x"),
        (faults.parse_straggler, "random=10%:2", "'2' is not a factor"),
        (faults.parse_share, "101%", "a share from 0% to 100%"),
        (faults.parse_share, "-1%", "a share from 0% to 100%"),
        (faults.parse_share, "1.5", "a share from 0% to 100%"),
        (faults.parse_share, "10%%", "a share from 0% to 100%"),
        (faults.parse_share, "nan", "a share from 0% to 100%"),
        (faults.parse_share, "ten", "a share from 0% to 100%"),
        (faults.parse_share, "", "a share from 0% to 100%"),
        (faults.parse_delay, "50ms-5ms", "the least first"),
        (faults.parse_delay, "5", "TIME or TIME-TIME with units"),
        (faults.parse_delay, "5-50", "TIME or TIME-TIME with units"),
        (faults.parse_delay, "5ms-", "'' is not a number of steps"),
        (faults.parse_delay, "", "'' is not a number of steps"),
        (faults.parse_bandwidth, "0", "NUMBER[kbit|mbit|gbit] with a number above 0"),
        (faults.parse_bandwidth, "fast", "such as 50mbit"),
        (faults.parse_bandwidth, "50mb", "such as 50mbit"),
        (faults.parse_bandwidth, "-5mbit", "such as 50mbit"),
        (faults.parse_bandwidth, "nan", "such as 50mbit"),
        (faults.parse_fault, "kil:1@3", "no fault is called 'kil'; did you mean kill?"),
        (faults.parse_fault, "Pause:1@3+1s", "did you mean pause?"),
        (faults.parse_fault, "meteor:1", "there are: bandwidth, corrupt, cut, delay, drop, duplicate, kill, "),
        (faults.parse_fault, "", "Examples of faults: kill:1@300, pause:1@100+10s"),
        (faults.parse_fault, "1@300", "no fault is called '1@300'"),
        (faults.parse_fault, "kill", "is not of the form kill:..., as in kill:1@300"),
        (faults.parse_fault, "kill:", "'' is not of the form RANK@MOMENT, such as 3@100 or 3@2.5s"),
        (faults.parse_fault, "kill:1", "'1' is not of the form RANK@MOMENT"),
        (faults.parse_fault, "kill:-1@5", "a rank must be a number from 0 on, not '-1'"),
        (faults.parse_fault, "restart:1@soon", "'soon' is not a number of steps, nor a time"),
        (faults.parse_fault, "pause:1@100", "is not of the form RANK@MOMENT+SPAN, such as 1@100+10s"),
        (faults.parse_fault, "pause:1@100+10", "a paused peer counts no steps; give the span as a time"),
        (faults.parse_fault, "pause:1@100+0s", "the span must be longer than 0"),
        (faults.parse_fault, "cut:0|1@100+0", "the span must be longer than 0"),
        (faults.parse_fault, "cut:0-3@100+5s", "is not of the form RANKS|RANKS@MOMENT+SPAN"),
        (faults.parse_fault, "drop:5", "a share from 0% to 100%"),
        (faults.parse_fault, "drop:100%", "the share must be less than 100%, such as drop:5%"),
        (faults.parse_fault, "corrupt:1", "the share must be less than 100%"),
        (faults.parse_fault, "delay:20", "TIME or TIME-TIME with units"),
        (faults.parse_fault, "delay:80ms-20ms", "the least first"),
        (faults.parse_fault, "bandwidth:0mbit", "NUMBER[kbit|mbit|gbit] with a number above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_quoted_with_what_is_wrong(parse: Callable[[str], object], text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert said in str(caught.value)


#: Made of the words of the grammar, so that more than the first check is reached.
SPOKEN = ["ms", "steps", "random", "nan", "1e9", "mbit", "kill:", "pause:", "cut:", "drop:", "delay:"]
WORDS = st.lists(st.sampled_from([*"0123456789@+-=|,.:%x s", *SPOKEN]), max_size=12)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@settings(max_examples=400)
@given(text=st.text(max_size=20) | WORDS.map("".join))
@example(text="\N{ARABIC-INDIC DIGIT THREE}@1")
@example(text="3@\N{ARABIC-INDIC DIGIT THREE}")
@example(text="1_0%")
@example(text="3\u2003@1")
@example(text="\N{ARABIC-INDIC DIGIT THREE}\N{KELVIN SIGN}bit")
@example(text="kill:\N{ARABIC-INDIC DIGIT THREE}@1")
def test_any_text_is_read_or_refused_and_nothing_else(parse: Callable[[str], object], text: str) -> None:
    try:
        meant = parse(text)
    except SettingsError as error:
        assert repr(text) in str(error)  # noqa: PT017
    else:
        assert parse(text) == meant
