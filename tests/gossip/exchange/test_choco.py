"""CHOCO by hand: the rule of the paper, rounds that both ends take part in, and what ends an edge."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hand_swarm import PAIR, RUN, Hand, only, sealed
from hypothesis import given, settings
from hypothesis import strategies as st

from gossip import codecs, events
from gossip.codecs.difference_codec import DifferenceCodec
from gossip.errors import Reason, Rejected, SettingsError
from gossip.exchange.coding import check_codec
from gossip.policies import parse
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Ack, Address, Parcel, Pass
from topologies import parse as parse_topology

HERE, THERE = Address(0, 0), Address(1, 0)
COUNT = 40
TENTH = "topk:share=10%"


def random(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def swarm(compress: str = TENTH, *, peers: int = 2, gamma: float = 0.5, **more: object) -> Hand:
    known = {"turns": [PAIR], "algorithm": f"choco:gamma={gamma}", **more}
    hand = Hand(*(random(rank) for rank in range(peers)), compress=compress, **known)
    hand.codec = WireCodec(RUN, hand.layout, compress, DifferenceCodec(codecs.parse(compress)))
    return hand


def held(hand: Hand) -> np.ndarray:
    """All x that is held or waits to be; what is on its way is no mass."""
    total = np.zeros(COUNT)
    for core in hand.cores:
        total += core.mass.weights[0] * core.mass.values
        for pile in core.inbox:
            total += pile.factor * pile.values
    return total


# Against the paper


@pytest.mark.parametrize("compress", [TENTH, "int8", "sign"])
@pytest.mark.parametrize("topology", ["bidirectional-ring", "complete"])
def test_training_equals_the_rule_of_the_paper_over_fifty_steps(compress: str, topology: str) -> None:
    """Peers with quadratics of their own, in step: z <- z - rate grad, then q, y and the pull, in dense float64."""
    n, gamma, rate = 5, 0.3, 0.1
    schedule = parse_topology(topology, n)
    turn = {rank: dict(schedule.out_edges(rank, 0)) for rank in range(n)}
    mixing = np.array([[turn[i].get(j, 0.0) for j in range(n)] for i in range(n)])
    hand = swarm(compress, peers=n, gamma=gamma, turns=[turn])
    codec = DifferenceCodec(codecs.parse(compress))
    z, y = np.array([random(rank) for rank in range(n)]), np.zeros((n, COUNT))
    targets = np.array([random(10 + rank) for rank in range(n)])
    for _ in range(50):
        for core, target in zip(hand.cores, targets, strict=True):
            core.mass.values[:] -= rate * (core.mass.values - target)
        hand.round()
        z -= rate * (z - targets)
        y += [codec.decode(codec.encode(one), COUNT, np.float64) for one in z - y]
        z += gamma * (mixing @ y - mixing.sum(axis=1)[:, None] * y)
        for core, expected in zip(hand.cores, z, strict=True):
            np.testing.assert_allclose(core.mass.values, expected, atol=1e-12)
    assert all(core.mass.weights == [1.0] for core in hand.cores)


def test_what_goes_to_several_is_made_once_and_as_long_as_the_format_says() -> None:
    star = {0: {1: 0.25, 2: 0.25}, 1: {0: 0.25}, 2: {0: 0.25}}
    hand = swarm(peers=3, turns=[star])
    hand.step(0)
    first, second = (send.frames[1] for send in hand.post)
    assert bytes(first) == bytes(second)
    # A count of 4 bytes for the page; 4 of 40 values, each with 2 bytes of place and 8 of value; the factor.
    assert len(first) == 4 + 4 * (2 + 8) + 4


# Rounds


def test_nobody_is_drawn_before_both_have_told_and_then_both_by_as_much() -> None:
    hand = swarm("none")
    hand.step(0)
    hand.deliver(Parcel)
    np.testing.assert_array_equal(hand.cores[0].mass.values, random(0))
    hand.step(1)
    apart = random(1) - random(0)
    np.testing.assert_allclose(hand.cores[1].mass.values, random(1) - 0.25 * apart, atol=1e-15)
    np.testing.assert_array_equal(hand.cores[0].mass.values, random(0))
    hand.settle()
    np.testing.assert_allclose(hand.cores[0].mass.values, random(0) + 0.25 * apart, atol=1e-15)


def test_who_has_told_more_than_it_heard_passes_instead_of_queueing() -> None:
    hand = swarm(wait_ceiling=0.0)
    hand.step(0)
    hand.deliver(Parcel)
    hand.deliver(Ack)
    for _ in range(3):
        hand.now += 1.0
        hand.step(0)
        assert [type(message) for message in hand.mail()] == [Pass]
        hand.settle()


@pytest.mark.parametrize("lost", [Parcel, Ack, (Parcel, Ack)])
def test_what_is_lost_is_told_again_and_counts_once(lost: type) -> None:
    hand, calm = swarm(), swarm()
    before = held(hand)
    for one in (hand, calm):
        one.step(0)
        one.step(1)
    hand.lose(Parcel if lost is not Ack else ())
    if lost is not Parcel:
        while hand.parcels():
            hand.deliver(Parcel)
        hand.lose(Ack)
    for rank in (0, 1):
        hand.tick(rank, 1.0)
    hand.post += hand.post
    hand.settle()
    calm.settle()
    assert [hand.bits(rank) for rank in (0, 1)] == [calm.bits(rank) for rank in (0, 1)]
    np.testing.assert_allclose(held(hand), before, atol=1e-14)


def test_where_the_ends_want_different_fractions_both_take_the_smaller() -> None:
    hand = swarm("none", turns=[{0: {1: 0.5}, 1: {0: 0.25}}], gamma=1.0)
    hand.round()
    apart = random(1) - random(0)
    np.testing.assert_allclose(hand.cores[0].mass.values, random(0) + 0.25 * apart, atol=1e-15)
    np.testing.assert_allclose(hand.cores[1].mass.values, random(1) - 0.25 * apart, atol=1e-15)


# Ends of an edge


def test_one_that_dies_before_it_booked_is_not_drawn_towards_and_a_new_life_starts_at_zero() -> None:
    hand = swarm("none")
    hand.step(1)
    hand.deliver(Parcel)
    hand.step(0)  # has both: it is drawn, and what it tells is on its way
    assert not np.array_equal(hand.cores[0].mass.values, random(0))
    hand.lose()
    (undone,) = only(hand.feed(0, events.PeerDied(THERE)), events.Drawn)
    assert undone.undone
    hand.feed(0, events.Merge())
    np.testing.assert_allclose(hand.cores[0].mass.values, random(0), atol=1e-15)
    hand.feed(0, events.PeerAlive(Address(1, 1)))
    hand.lose()
    hand.step(0)
    (told,) = hand.parcels()
    np.testing.assert_allclose(told.values, random(0), atol=1e-15)


def test_with_a_neighbour_its_estimates_are_gone() -> None:
    hand = swarm()
    hand.round()
    choco = hand.cores[0].traffic.way.choco
    assert choco is not None
    assert set(choco._edges) == {(THERE, 0)}
    hand.feed(0, events.PeerDied(THERE))
    assert not choco._edges


def test_one_that_leaves_refuses_and_what_was_drawn_comes_back() -> None:
    hand = swarm("none")
    before = held(hand)
    hand.step(1)
    hand.deliver(Parcel)
    hand.feed(1, events.Leave())
    hand.step(0)
    hand.settle()
    for now in (1.0, 2.0, 3.0):
        for rank in (0, 1):
            hand.tick(rank, now)
        hand.settle()
    hand.step(0)
    hand.settle()
    assert hand.cores[0].mass.weights == [2.0]
    np.testing.assert_allclose(held(hand), before, atol=1e-14)


# What is refused


def test_nan_is_not_told() -> None:
    hand = swarm(wait_ceiling=0.0)
    hand.cores[0].mass.values[3] = np.nan
    assert only(hand.step(0), events.NotFinite)
    assert [type(message) for message in hand.mail()] == [Pass]


def test_a_round_too_many_is_rejected() -> None:
    hand = swarm()
    hand.step(0)
    send = hand.post.pop()
    assert only(hand.feed(1, events.Received(send.frames)), events.Booked)
    parcel = hand.read(send)
    lie = Parcel(HERE, THERE, 1, 0, 0, 0.0, parcel.values, 0.2, payload=np.array(send.frames[1]), codec=_spelled(TENTH))
    (rejected,) = only(hand.tell(1, lie), events.RejectedFrame)
    assert rejected.reason is Reason.WINDOW


def _spelled(compress: str) -> str:
    return DifferenceCodec(codecs.parse(compress)).spelled


@pytest.mark.parametrize(
    ("lies", "reason"),
    [
        *(({"weight": weight}, Reason.WEIGHT) for weight in (0.5, -1.0, float("nan"), 0)),
        *(({"ask": ask}, Reason.MALFORMED) for ask in (0.0, 1.0, -0.5, float("nan"), 1)),
        ({"codec": "choco:topk"}, Reason.DTYPE),
        ({"codec": "topk:share=0.1,values=none"}, Reason.DTYPE),
        ({"cut": 1}, Reason.MALFORMED),
        ({"cut": 40}, Reason.TRUNCATED),
        *(({"factor": factor}, Reason.MALFORMED) for factor in (1.5, -0.1, float("nan"), float("inf"))),
    ],
    ids=repr,
)
def test_a_lie_in_a_difference_is_rejected(lies: dict[str, object], reason: Reason) -> None:
    hand = swarm()
    hand.step(0)
    body = bytes(hand.post[0].frames[1])
    if "factor" in lies:
        body = body[:-4] + np.array([lies["factor"]], "<f4").tobytes()
    payload = np.frombuffer(body[: len(body) - int(lies.get("cut", 0))], np.uint8)
    told = {"weight": 0.0, "ask": 0.25, "codec": _spelled(TENTH), **{key: lies[key] for key in lies if key in FIELDS}}
    lie = Parcel(HERE, THERE, 0, 0, 0, values=np.zeros(COUNT), payload=payload, **told)
    with pytest.raises(Rejected) as caught:
        hand.codec.decode(hand.codec.encode(lie))
    assert caught.value.reason is reason


FIELDS = ("weight", "ask", "codec")


@settings(max_examples=200)
@given(st.sampled_from([TENTH, "sign", "adacomp", "none"]), st.data())
def test_whatever_is_changed_it_is_read_or_rejected(compress: str, data: st.DataObject) -> None:
    hand = swarm(compress)
    hand.step(0)
    header, body = (bytearray(frame) for frame in hand.post[0].frames)
    fields = msgpack.unpackb(bytes(header[:-16]))
    likely = st.integers(-2, 60) | st.floats() | st.sampled_from([True, None, "", "float64", 0.0, 0.5, fields[-1]])
    fields[data.draw(st.integers(3, len(fields) - 1))] = data.draw(likely)
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    frames = sealed(fields, bytes(body))
    try:
        found = hand.codec.decode(frames)
    except Rejected:
        pass
    else:
        assert isinstance(found, Parcel)
        assert found.is_difference
        assert np.isfinite(found.values).all()
    hand.feed(1, events.Received(frames))
    hand.step(1)
    assert np.isfinite(hand.cores[1].mass.values).all()


def test_where_nobody_tells_differences_nothing_is_made_of_them() -> None:
    hand = swarm("int8")
    hand.step(0)
    with pytest.raises(Rejected) as caught:
        WireCodec(RUN, hand.layout, "int8").decode(hand.post[0].frames)
    assert caught.value.reason is Reason.DTYPE


@pytest.mark.parametrize("topology", ["base", "one-peer-exponential", "random-matching"])
def test_neighbours_that_change_are_refused(topology: str) -> None:
    with pytest.raises(SettingsError, match=r"must be the same in every turn.*use bidirectional-ring"):
        parse("choco").check(parse_topology(topology, 6))


@pytest.mark.parametrize("algorithm", ["local", "slowmo", "ssd"])
def test_local_steps_may_tell_differences_where_users_say_so(algorithm: str) -> None:
    telling = parse(f"{algorithm}:differences=true")
    for name in codecs.names():
        check_codec(name, telling)
    telling.check(parse_topology("bidirectional-ring", 6))
    with pytest.raises(
        SettingsError,
        match=f"{algorithm} with differences keeps estimates of its neighbours, so they must be the same in every turn",
    ):
        telling.check(parse_topology("one-peer-exponential", 6))
    parse(algorithm).check(parse_topology("one-peer-exponential", 6))
    with pytest.raises(SettingsError, match=f"Use {algorithm} with differences=true, on a fixed symmetric topology"):
        check_codec("topk", parse(algorithm))


def test_noloco_whose_partners_change_points_to_slowmo() -> None:
    with pytest.raises(SettingsError, match="Use slowmo:differences=true on a fixed symmetric topology"):
        check_codec("adacomp", parse("noloco"))


def test_edges_that_go_one_way_are_refused() -> None:
    with pytest.raises(SettingsError, match="edges that go both ways"):
        parse("choco").check(parse_topology("ring", 6))


@pytest.mark.parametrize("topology", ["bidirectional-ring", "complete", "torus", "hypercube", "star"])
def test_fixed_symmetric_graphs_are_taken(topology: str) -> None:
    parse("choco").check(parse_topology(topology, 16))


def test_a_codec_that_changes_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"choco tells differences in one codec.*Use any of adacomp, bf16"):
        check_codec("auto", parse("choco"))


def test_any_codec_may_tell_differences_but_not_push_mass() -> None:
    for name in codecs.names():
        check_codec(name, parse("choco"))
    with pytest.raises(SettingsError, match="cannot carry mass"):
        check_codec("topk", parse("dpsgd"))


@pytest.mark.parametrize("gamma", [-0.1, 1.5])
def test_a_gamma_that_there_is_not_is_refused(gamma: float) -> None:
    with pytest.raises(SettingsError, match="gamma, the part of the way to the neighbours' mean, must be above 0"):
        parse(f"choco:gamma={gamma}")


# The codec


@pytest.mark.parametrize("name", codecs.names())
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_no_codec_takes_an_estimate_further_away(name: str, kind: type) -> None:
    """Blocks of very different sizes, which adacomp alone would overshoot, and draws, which terngrad alone would."""
    values = np.concatenate([random(1, 512), 1e-3 * random(2, 512), [50.0]]).astype(kind)
    codec = DifferenceCodec(codecs.get(name))
    payload = codec.encode(values, keys=(1, 2))
    assert payload.size <= codec.size(values.size, kind)
    rest = values.astype(np.float64) - codec.decode(payload, values.size, kind)
    assert np.linalg.norm(rest) <= np.linalg.norm(values.astype(np.float64))
