"""`auto` as an algorithm: which method suits which swarm, as a pure function of what is known."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from gossip import codecs, policies
from gossip.choosing import Candidate, Situation, forecast, recommend, situation
from gossip.choosing.forecasts import CANDIDATES
from gossip.choosing.worths import MEASURED, share_worth, worth
from gossip.collective.making import check_settings
from gossip.errors import SettingsError
from gossip.exchange.coding import check_codec

#: Ten million parameters in steps of a quarter of a second: 40 MB in float32.
PARAMETERS, COMPUTE = 10_000_000, 0.25


def chosen(link: str, peers: int = 8, **known: float) -> Candidate:
    given = {"step_time": COMPUTE, "parameters": PARAMETERS, **known}
    found = recommend(situation(peers, link, given["step_time"], int(given["parameters"]), given.get("slowest", 1.0)))
    return Candidate(found.algorithm, found.compress, found.share)


@pytest.mark.parametrize(
    ("link", "wanted"),
    [
        ("100Gbit", Candidate("sgp", "none")),  # fresher parameters are worth more than 3 ms
        ("loopback", Candidate("osgp", "none")),
        ("1Gbit", Candidate("osgp", "bf16")),
        ("500Mbit", Candidate("osgp", "int8")),
        ("200Mbit", Candidate("osgp", "int8", 1 / 2)),
        ("50Mbit", Candidate("osgp", "int8", 1 / 8)),
        ("1Mbit", Candidate("outer:h=32", "int2")),
    ],
)
def test_the_slower_the_link_the_less_is_sent(link: str, wanted: Candidate) -> None:
    assert chosen(link) == wanted


def test_bytes_and_progress_never_rise_as_the_link_slows_down() -> None:
    best = [
        recommend(Situation(8, PARAMETERS, 10 ** (power / 4), 0.001, COMPUTE)).forecasts[0]
        for power in range(40, 8, -1)  # bytes per second, from 10 GB to 100
    ]
    for faster, slower in pairwise(best):
        assert slower.size <= faster.size
        assert slower.progress <= faster.progress * 1.0001 / 0.98  # of candidates that are level, any may be taken
    assert best[0].candidate.compress == "none"
    assert best[-1].candidate.algorithm == "outer:h=32"


def test_longer_steps_hide_heavier_pushes_until_there_is_nothing_to_hide() -> None:
    best = [recommend(Situation(8, PARAMETERS, 6.25e6, 0.001, 0.05 * 2**k)).forecasts[0] for k in range(12)]
    hidden = [one.size for one in best if one.candidate.algorithm == "osgp"]
    assert hidden == sorted(hidden)
    assert best[0].candidate.share == 1 / 16
    assert [one.candidate.algorithm for one in best] == ["osgp"] * len(hidden) + ["sgp"] * (12 - len(hidden))
    assert best[-1].candidate.algorithm == "sgp"


def test_a_slow_peer_speaks_against_waiting_for_all() -> None:
    """At 1 Mbit/s and equal peers `outer` is ahead; nobody waits for a peer that takes 20 times as long under osgp."""
    outer = Candidate("outer:h=8", "int2")
    even, uneven = (Situation(8, PARAMETERS, 125e3, 0.001, 2.0, slowest) for slowest in (1.0, 20.0))
    assert forecast(outer, uneven).seconds > 1.9 * 2.0 + forecast(outer, even).sending
    osgp = Candidate("osgp", "int8", 1 / 16)
    assert forecast(osgp, uneven).seconds == forecast(osgp, even).seconds
    assert forecast(osgp, uneven).worth == pytest.approx(forecast(osgp, even).worth * (7 + 1 / 20) / 8)


def test_the_seconds_of_a_step_are_those_of_the_formulas() -> None:
    known = Situation(8, 1_000_000, 1e6, 0.1, 2.0)
    size = codecs.get("none").size(1 << 20) / (1 << 20) * 1e6
    assert forecast(Candidate("sgp"), known).seconds == pytest.approx(2.0 + size / 1e6 + 0.05, rel=1e-3)
    assert forecast(Candidate("osgp"), known).seconds == pytest.approx((size / 1e6 + 0.05) / 0.8, rel=1e-3)
    assert forecast(Candidate("osgp", share=1 / 16), known).seconds == pytest.approx(2.0, rel=1e-3), "hidden"
    sent = 2 * 7 / 8 * 0.3125  # bytes of int2 for a value, scales included
    outer = forecast(Candidate("outer:h=8", "int2"), known)
    assert outer.sending == pytest.approx((sent + 0.3) / 8, rel=1e-3)
    assert outer.size == pytest.approx(sent * 1e6 / 8, rel=1e-3)


def test_all_that_know_the_same_choose_the_same_and_say_the_same() -> None:
    first, second = (recommend(situation(16, "50Mbit,20ms", 0.3, 7_000_000)) for _ in range(2))
    assert first == second
    assert str(first) == str(second)


def test_the_reason_names_what_is_hidden_what_else_there_was_and_what_was_assumed() -> None:
    found = recommend(situation(8, "50Mbit", 0.25))
    assert found.why.startswith(
        "osgp with int8, 12.5% of the shards: 0.2 s of sending hidden behind 0.25 s of computing; a step takes 0.25"
    )
    assert "; outer:h=" in found.why
    assert "; sgp with int8" in found.why
    assert str(found).endswith(". Assumed, because it is not known: 10,000,000 parameters")
    assert not recommend(situation(8, "50Mbit", 0.25, 100)).assumed
    unknown = recommend(situation(8)).assumed
    assert "a link of 1000 Mbit/s and 1 ms, as usual for lan" in unknown
    assert "0.25 s of computing in a step" in unknown


def test_alone_there_is_nothing_to_choose() -> None:
    found = recommend(situation(1))
    assert "nobody to exchange with" in found.why
    assert (found.compress, found.share) == ("none", 1.0)


def test_a_codec_or_a_share_that_is_named_is_kept() -> None:
    slow = situation(8, "50Mbit", 0.25)
    assert recommend(slow, "bf16").compress == "bf16"
    kept = recommend(slow, "int8", 0.5)
    assert (kept.compress, kept.share) == ("int8", 0.5)
    assert recommend(slow, "int2").algorithm.startswith("outer:h=")


def test_a_method_that_can_measure_the_link_is_left_to_do_so() -> None:
    slow = recommend(situation(8, "50Mbit", 0.25), "auto")
    assert (slow.algorithm, slow.compress, slow.share) == ("osgp", "auto", 1.0)
    slower = recommend(situation(8, "1Mbit", 0.25), "auto")
    assert (slower.algorithm, slower.compress) == ("outer:h=32", "int2"), "outer takes no auto"


def test_what_cannot_be_chosen_is_refused() -> None:
    known = situation(8)
    with pytest.raises(SettingsError, match=r"knows no method with compress=int4 and share=1.*name the algorithm"):
        recommend(known, "int4")
    with pytest.raises(SettingsError, match=r"compress=none and share=0\.3"):
        recommend(known, share=0.3)
    with pytest.raises(SettingsError, match=r"chooses the share with compress=auto: leave share=0\.5 out"):
        recommend(known, "auto", 0.5)
    with pytest.raises(SettingsError, match="no codec is called 'int9'"):
        recommend(known, "int9")


@pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
def test_every_candidate_can_be_run(candidate: Candidate) -> None:
    policy = policies.parse(candidate.algorithm)
    check_codec(candidate.compress, policy)
    check_settings(policy, candidate.share, candidate.compress)


def test_a_larger_share_is_worth_more_and_a_longer_h_less() -> None:
    shares = [2**-power for power in range(5)]
    for waits in (False, True):
        worths = [share_worth(share, waits, 8) for share in shares]
        assert worths == sorted(worths, reverse=True)
        # Or it would pay to wait for ever more: see gossip.exchange.coding.
        assert all(more < 2 * less for more, less in pairwise(worths))
    hs = [worth("outer", h, 8) for h in (8, 11, 16, 32, 64)]
    assert hs == sorted(hs, reverse=True)


def test_worths_are_the_measured_ones_and_lie_between_them() -> None:
    for method, points in MEASURED.items():
        for kind, figure in points.items():
            assert worth(method, kind, 8) == pytest.approx(figure)
    assert worth("sgp", 1 / 2, 8) == pytest.approx((MEASURED["sgp"][1] + MEASURED["sgp"][1 / 4]) / 2)


def test_more_peers_lose_more_by_gossip_and_no_more_by_the_mean_of_all() -> None:
    lost = {peers: 1 - worth("osgp", 1, peers) for peers in (2, 8, 64)}
    assert lost[2] == pytest.approx(lost[8] / 3)
    assert lost[64] == pytest.approx(lost[8] * 2)
    assert worth("outer", 8, 64) == worth("outer", 8, 2)
    assert worth("osgp", 1 / 16, 10**9) > 0
    assert worth("outer", 8, 1) == 1.0
    assert math.isfinite(worth("outer", 10**6, 8))
