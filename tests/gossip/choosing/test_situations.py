"""What is known of a swarm: how a link is written, and what is refused."""

from __future__ import annotations

import pytest

from gossip.choosing import Situation, parse_link, situation
from gossip.errors import SettingsError
from gossip.presets import names


@pytest.mark.parametrize(
    ("text", "rate", "round_trip"),
    [
        ("50Mbit", 6.25e6, 0.001),
        ("50 mbit/s", 6.25e6, 0.001),
        ("1Gbit,20ms", 125e6, 0.02),
        ("1.5GB/s, 0.5s", 1.5e9, 0.5),
        ("800bit", 100.0, 0.001),
        ("10kB", 1e4, 0.001),
        ("1Gbit,0ms", 125e6, 0.0),
        ("wan", 6.25e6, 0.05),
    ],
)
def test_a_link_is_read(text: str, rate: float, round_trip: float) -> None:
    assert parse_link(text) == (pytest.approx(rate), pytest.approx(round_trip))


@pytest.mark.parametrize(
    "text", ["", "fast", "50", "0Mbit", "-1Mbit", "50Mbit,", "50Mbit,20", "1Mbit,1s,1s", "\u0665Mbit", "1e9bit", "Wan"]
)
def test_what_is_no_link_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a link: write what it carries.*50Mbit.*; or loopback, lan or wan"):
        parse_link(text)


def test_every_preset_is_a_kind_of_link() -> None:
    rates = [parse_link(name)[0] for name in names()]
    assert rates == sorted(rates, reverse=True), "from near to far"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"peers": 0}, "peers must be at least 1, not 0"),
        ({"parameters": 0}, "parameters, the values of the model, must be at least 1, not 0"),
        ({"rate": 0.0}, r"rate must be a number above 0, not 0\.0"),
        ({"compute": float("nan")}, "compute must be a number above 0, not nan"),
        ({"round_trip": -1.0}, "round_trip must be a number of seconds from 0 on, not -1"),
        ({"slowest": 0.5}, r"slowest, a multiple of the others' computing, must be 1 or more, not 0\.5"),
    ],
)
def test_a_situation_that_cannot_be_is_refused(wrong: dict[str, float], says: str) -> None:
    usual = {"peers": 8, "parameters": 10, "rate": 1e6, "round_trip": 0.0, "compute": 0.1}
    with pytest.raises(SettingsError, match=says):
        Situation(**{**usual, **wrong})  # type: ignore[arg-type]


def test_what_is_not_known_is_not_negative() -> None:
    with pytest.raises(SettingsError, match=r"step_time must be 0 \(not known\) or a number of seconds, not -1"):
        situation(8, step_time=-1)
    with pytest.raises(SettingsError, match=r"parameters must be 0 \(not known\) or the number of values, not -5"):
        situation(8, parameters=-5)
