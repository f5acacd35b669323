"""Sparse pairs by hand: both ends move by what was offered and no further, and nothing is ever lost."""

from __future__ import annotations

import numpy as np
import pytest
from hand_swarm import ONE_WAY, PAIR, RUN, Hand, only

from gossip import events
from gossip.codecs.pair_coding import PairCoding
from gossip.errors import SettingsError
from gossip.exchange.coding import check_codec
from gossip.policies import names, parse
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Ack, Address, Bye, Parcel, Proposal, Refusal, Settled

HERE, THERE = Address(0, 0), Address(1, 0)
COUNT = 40
EXACT = "topk-pair:share=100%,values=none,told=none"
QUARTER = "topk-pair:share=25%,values=none,told=none"
ROUNDED = "topk-pair:share=25%"


def random(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def swarm(compress: str = EXACT, *, peers: int = 2, count: int = COUNT, **more: object) -> Hand:
    """Return peers of which, unless it is said otherwise, 0 offers something to 1 in each turn."""
    known = {"turns": [ONE_WAY], "algorithm": "adpsgd", **more}
    hand = Hand(*(random(rank, count) for rank in range(peers)), compress=compress, **known)
    hand.codec = WireCodec(RUN, hand.layout, compress)
    return hand


def mass(hand: Hand) -> np.ndarray:
    """All x that there is, held, waiting and on its way."""
    total = np.zeros(hand.layout.size)
    for core in hand.cores:
        for shard, (start, stop) in enumerate(hand.layout.bounds):
            total[start:stop] += core.mass.weights[shard] * core.mass.view(shard)
        for loose in [*core.inbox, *(entry.parcel for entry in core.outbox)]:
            start, stop = hand.layout.bounds[loose.shard]
            total[start:stop] += (loose.weight or 1.0) * loose.values
    return total


def offer(hand: Hand, kind: type = Proposal) -> Proposal:
    (found,) = [message for message in hand.mail() if isinstance(message, kind)]
    return found


def test_with_equal_weights_both_end_with_the_mean_and_keep_their_weights() -> None:
    hand = swarm()
    mean = (random(0) + random(1)) / 2
    hand.step(0)
    hand.deliver(Proposal)
    assert not hand.post, "no answer before the trainer comes to its step boundary"
    hand.step(1)
    np.testing.assert_allclose(hand.cores[1].mass.values, mean, atol=1e-15)
    hand.settle()
    hand.step(0)
    np.testing.assert_allclose(hand.cores[0].mass.values, mean, atol=1e-15)
    assert [core.mass.weights for core in hand.cores] == [[1.0], [1.0]]


def test_with_unequal_weights_it_is_the_mean_by_weight() -> None:
    hand = swarm()
    hand.cores[0].mass.weights[0], hand.cores[1].mass.weights[0] = 0.5, 2.0
    x = 0.5 * random(0) + 2 * random(1)
    hand.step(0)
    hand.settle()
    hand.step(1)
    hand.settle()
    hand.step(0)
    # d = w0 w1 / (w0 + w1) (z0 - z1) is what brings both to (x0 + x1) / (w0 + w1).
    for core in hand.cores:
        np.testing.assert_allclose(core.mass.values, x / 2.5, atol=1e-14)


@pytest.mark.parametrize(("algorithm", "fraction"), [("adpsgd", 0.5), ("easgd:alpha=0.2", 0.2)])
def test_training_equals_a_dense_reference_over_fifty_steps(algorithm: str, fraction: float) -> None:
    """Both train on quadratics of their own and average a quarter of the coordinates, which the offer names."""
    hand = swarm(QUARTER, algorithm=algorithm)
    z = [random(0), random(1)]
    targets = [random(2), random(3)]
    owed = np.zeros(COUNT)
    for _ in range(50):
        hand.now += 1.0
        for rank in (0, 1):
            values = hand.cores[rank].mass.values
            values -= 0.1 * (values - targets[rank])
            z[rank] = z[rank] - 0.1 * (z[rank] - targets[rank])
        hand.step(0)
        z[0] -= owed
        places = offer(hand).told.places
        assert len(places) == COUNT // 4
        hand.deliver(Proposal)
        hand.step(1)
        owed = np.zeros(COUNT)
        owed[places] = fraction * (z[0] - z[1])[places]
        z[1] += owed
        hand.settle()
        for rank in (0, 1):
            np.testing.assert_allclose(hand.cores[rank].mass.values, z[rank], atol=1e-12)


def test_who_offer_to_each_other_in_the_same_moment_meet_and_do_not_swap() -> None:
    hand = swarm(turns=[PAIR])
    mean = (random(0) + random(1)) / 2
    for rank in (0, 1):
        hand.step(rank)
    hand.settle()
    for rank in (0, 1):
        hand.step(rank)  # each moves by a quarter for the other's offer
    hand.settle()
    for rank in (0, 1):
        hand.step(rank)  # and by a quarter for the answer to its own
        np.testing.assert_allclose(hand.cores[rank].mass.values, mean, atol=1e-15)


def test_what_is_promised_is_not_given_away_however_many_ask() -> None:
    """A peer that has an offer open moves for five others: it still has what it promised, and no z leaves the hull."""
    everybody = {0: {1: 0.5}, **{rank: {0: 0.5} for rank in range(2, 7)}}
    hand = swarm(peers=7, count=1, turns=[everybody, {}])
    for rank, core in enumerate(hand.cores):
        core.mass.values[0] = float(rank == 0)
    for rank in (0, *range(2, 7)):
        hand.step(rank)
    hand.settle()
    hand.step(0)  # moves for all five
    assert hand.cores[0].mass.values[0] == pytest.approx(np.prod([1 - 0.5 / 2**k for k in range(1, 6)]))
    assert hand.cores[0].mass.values[0] > 0.5
    hand.step(1)
    hand.settle()
    for rank in range(7):
        hand.step(rank)
    assert all(0 <= core.mass.values[0] <= 1 for core in hand.cores)


def test_a_place_is_in_one_open_offer_at_a_time() -> None:
    turns = [{0: {1: 0.5}}, {0: {2: 0.5}}]
    hand = swarm("topk-pair:share=50%", peers=3, turns=turns)
    hand.step(0)
    hand.step(0)
    hand.step(0)  # 1 has not answered yet: it is offered nothing
    first, second = hand.mail()
    assert (first.destination.rank, second.destination.rank) == (1, 2)
    assert sorted([*first.told.places, *second.told.places]) == list(range(COUNT))


def test_an_offer_that_is_lost_is_given_up_after_a_while() -> None:
    hand = swarm(ROUNDED, resend_ceiling=2.0)
    hand.step(0)
    hand.lose()
    hand.now = 1.9
    hand.step(0)
    assert not hand.post
    hand.now = 2.0
    hand.step(0)
    assert isinstance(offer(hand), Proposal)
    np.testing.assert_array_equal(hand.cores[0].mass.values, random(0))


def test_an_offer_that_comes_twice_or_late_is_answered_once() -> None:
    hand = swarm(ROUNDED, resend_ceiling=0.5)
    hand.step(0)
    early = hand.post[0]
    hand.now = 1.0
    hand.step(0)  # the first is given up
    hand.deliver(Proposal), hand.deliver(Proposal)
    hand.step(1)
    (answer,) = hand.parcels()
    assert answer.turn == 1
    hand.settle()
    hand.post += [early, early]
    hand.settle()
    hand.step(1)
    assert not hand.post


@pytest.mark.parametrize("lost", [Ack, Parcel, (Ack, Parcel)])
def test_when_the_answer_is_lost_nothing_else_is(lost: type) -> None:
    hand = swarm(ROUNDED)
    before = mass(hand)
    hand.step(0)
    hand.deliver(Proposal)
    hand.step(1)
    np.testing.assert_allclose(mass(hand), before, atol=1e-15)
    hand.lose(lost)
    hand.settle()
    hand.tick(1, 1.0)
    hand.settle()
    np.testing.assert_allclose(mass(hand), before, atol=1e-15)
    hand.step(0)
    assert not len(hand.cores[1].outbox)
    assert np.abs(hand.cores[0].mass.values - random(0)).max() > 0.1


def test_one_that_dies_before_it_has_the_answer_gives_back_what_was_moved() -> None:
    hand = swarm(ROUNDED)
    hand.step(0)
    hand.deliver(Proposal)
    hand.step(1)
    assert not np.array_equal(hand.cores[1].mass.values, random(1))
    hand.feed(1, events.PeerDied(HERE))
    hand.lose()
    hand.step(1)
    np.testing.assert_allclose(hand.cores[1].mass.values, random(1), atol=1e-15)


def test_nobody_moves_for_the_dead_nor_for_a_former_life() -> None:
    for event in (events.PeerDied(HERE), events.PeerAlive(Address(0, 1))):
        hand = swarm(ROUNDED)
        hand.step(0)
        hand.deliver(Proposal)
        hand.feed(1, event)
        hand.lose()
        hand.step(1)
        assert not hand.parcels()
        np.testing.assert_array_equal(hand.cores[1].mass.values, random(1))


def test_one_that_leaves_refuses_and_the_other_moves_back() -> None:
    hand = swarm(ROUNDED, peers=3)
    before = mass(hand)
    hand.step(0)
    hand.deliver(Proposal)
    hand.step(1)
    hand.feed(0, events.Leave())
    hand.lose(Bye)
    hand.deliver(Parcel)
    assert isinstance(hand.mail()[-1], Refusal)
    hand.settle()
    hand.step(1)
    np.testing.assert_allclose(hand.cores[1].mass.values, random(1), atol=1e-15)
    np.testing.assert_allclose(mass(hand), before, atol=1e-15)


def test_one_that_leaves_hands_on_what_comes_back_to_it() -> None:
    """The leaver's move is in flight to a peer that dies: the weight must stay until the move has come back."""
    hand = swarm(ROUNDED, peers=3)
    x = random(1) + random(2)
    hand.step(0)
    hand.deliver(Proposal)
    hand.step(1)  # moved for 0, which does not hear of it
    hand.feed(1, events.Leave())
    hand.lose(Parcel)
    for rank in (0, 2):
        hand.tell(1, Settled(Address(rank, 0), THERE))
    assert not hand.parcels(), "something of the shard is still on its way"
    hand.feed(1, events.PeerDied(HERE))
    (bequest,) = hand.parcels()
    assert (bequest.weight, bequest.destination.rank) == (1.0, 2)
    np.testing.assert_allclose(bequest.values, random(1), atol=1e-15)
    hand.deliver(Parcel)
    hand.step(2)
    np.testing.assert_allclose(2 * hand.cores[2].mass.values, x, atol=1e-14)


def test_what_has_no_weight_is_taken_whatever_is_held() -> None:
    hand = swarm(weight_cap=1.5)
    hand.step(0)
    hand.cores[0].mass.weights[0] = 2.0
    hand.deliver(Proposal)
    hand.step(1)
    assert only(hand.deliver(Parcel), events.Booked)


def test_a_peer_that_reincarnates_forgets_its_offers() -> None:
    hand = swarm(ROUNDED)
    hand.step(0)
    hand.lose()
    hand.feed(0, events.PeerDied(HERE))
    hand.lose()
    hand.step(0)
    assert offer(hand).origin == Address(0, 1)


@pytest.mark.parametrize("rank", [0, 1])
def test_values_that_are_not_finite_are_neither_offered_nor_moved(rank: int) -> None:
    hand = swarm()
    hand.cores[rank].mass.values[3] = np.nan
    said = hand.step(0)
    hand.settle()
    said += hand.step(1)
    assert [effect.shard for effect in only(said, events.NotFinite)] == [0]
    assert not hand.parcels()


def test_an_offer_so_far_away_that_nobody_can_say_how_far_moves_nothing() -> None:
    hand = swarm()
    hand.cores[0].mass.values[0], hand.cores[1].mass.values[0] = 1.7e308, -1.7e308
    before = hand.bits(1)
    hand.step(0)
    hand.settle()
    said = hand.step(1)
    assert not only(said, events.NotFinite), "our own values are numbers"
    assert not hand.parcels()
    assert hand.bits(1) == before


def test_what_changed_most_is_offered_and_what_rounding_took_off_still_counts_as_a_change() -> None:
    hand = swarm("topk-pair:share=10%,told=int8")
    hand.step(0)  # from here on a change is one
    hand.settle(), hand.step(1), hand.settle(), hand.step(0)
    hand.lose()
    hand.now = 10.0
    hand.cores[0].mass.values[[5, 17, 31]] += [3.0, -2.0, 4.0]
    hand.step(0)
    assert {5, 17, 31} <= set(offer(hand).told.places.tolist()), "a quarter of four, one, is drawn by chance"
    told = dict(zip(*map(np.ndarray.tolist, offer(hand).told), strict=True))
    assert told[5] != hand.cores[0].mass.values[5], "int8 rounds"
    hand.settle(), hand.step(1), hand.settle()
    last = hand.cores[0].traffic.way.pairs._last[0]
    assert {place: last[place] for place in told} == told


def test_every_place_is_offered_some_time_though_nothing_changes() -> None:
    hand = swarm("topk-pair:share=10%,values=none,told=none")
    hand.cores[0].mass.values[:] = hand.cores[1].mass.values
    seen: set[int] = set()
    for _ in range(400):  # a place has a chance of 1/40 each time: 40 exp(-400/40) = 0.002 would be left
        hand.now += 1.0
        hand.step(0)
        seen.update(offer(hand).told.places.tolist())
        hand.settle(), hand.step(1), hand.settle()
    assert seen == set(range(COUNT))


def test_who_has_several_neighbours_does_not_always_offer_to_the_first() -> None:
    hand = swarm(peers=3, turns=[{0: {1: 0.3, 2: 0.3}}] * 2)
    asked = []
    for _ in range(2):
        hand.now += 10.0
        hand.step(0)
        asked.append(offer(hand).destination.rank)
        hand.lose()
    assert sorted(asked) == [1, 2]


def test_while_the_disagreement_is_measured_whole_shards_are_pushed() -> None:
    hand = swarm(ROUNDED)
    hand.cores[0].state.measuring = True
    hand.step(0)
    (parcel,) = hand.parcels()
    assert (parcel.weight, parcel.ask) == (0.5, 0.5)
    np.testing.assert_array_equal(parcel.values, random(0))
    hand.settle()
    hand.step(1)
    hand.settle()
    hand.step(0)
    assert hand.cores[0].state.gaps[0] > 0.1


@pytest.mark.parametrize(
    ("compress", "told", "moved"),
    [
        ("topk-pair", 2 + 2, 2 + 1),
        ("topk-pair:told=none", 2 + 8, 2 + 1),
        ("topk-pair:told=int8,values=fp16", 2 + 1, 2 + 2),
        ("topk-pair:values=none", 2 + 2, 2 + 8),
    ],
)
def test_bytes_on_the_wire_are_those_of_the_format(compress: str, told: int, moved: int) -> None:
    """Two places of two pages each: 4 bytes per page, 2 for each place, and the values; a scale for 256 in int8."""
    count = 70_000
    hand = swarm(compress, count=count)
    k, pages = 700, 2
    blocks = 4 * 3  # of 256, for 700
    hand.step(0)
    (send,) = hand.post
    expected = 4 * pages + told * k + (blocks if "told=int8" in compress else 0)
    assert len(send.frames[1]) == expected
    hand.settle()
    hand.step(1)
    (send,) = hand.post
    assert len(send.frames[1]) == 4 * pages + moved * k + (blocks if "values" not in compress else 0)
    assert len(send.frames[0]) < 150
    assert hand.cores[1].outbox.snapshot()[0].parcel.nbytes == len(send.frames[1])


@pytest.mark.parametrize("algorithm", sorted(set(names()) - {"adpsgd", "easgd"}))
def test_it_is_refused_where_nobody_averages_in_pairs(algorithm: str) -> None:
    with pytest.raises(SettingsError, match=rf"topk-pair .* {algorithm} does not average in pairs; use it with adpsgd"):
        check_codec("topk-pair", parse(algorithm))
    with pytest.raises(SettingsError):
        Hand(1.0, 2.0, algorithm=algorithm, compress="topk-pair")


def test_it_is_allowed_where_they_do() -> None:
    for algorithm in ("adpsgd", "easgd:alpha=0.1"):
        check_codec("topk-pair:share=2%", parse(algorithm))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topk-pair:told=fp16", "topk-pair: told must be one of none, bf16, int8, not 'fp16'"),
        ("topk-pair:values=sign", "topk-pair: values must be one of"),
        ("topk-pair:share=0%", "topk-pair: share must be above 0%"),
        ("topk-pair:share=200%", "topk-pair: share must be above 0% and at most 100%, not 200%"),
        ("topk", "topk cannot carry mass"),
        ("topk:share=5%", "Use topk-pair, with which adpsgd averages the values that changed most; or bf16, fp16"),
        ("topk-pair:k=3", "topk-pair has no parameter 'k'; its parameters: share, values, told"),
        ("topk-pair:share", "is not of the form key=value"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_codec(text, parse("adpsgd"))
    assert said in str(caught.value)


def test_what_it_is_called_is_made_of_it_again() -> None:
    for text in ("topk-pair", "topk-pair:share=3%,values=int4,told=none"):
        coding = PairCoding.parse(text)
        assert coding is not None
        again = PairCoding.parse(coding.spelled)
        assert again is not None
        assert again.spelled == coding.spelled
    assert PairCoding.parse("topk") is None
