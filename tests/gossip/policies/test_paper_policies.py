"""Those who do not wait for this turn's parcels against their rules in dense float64, on quadratics.

That is osgp, adpsgd, easgd, gossip-push and gossip-pull; and what the last three refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hand_swarm import Hand, Turn, only

from gossip import events, policies
from gossip.errors import SettingsError
from gossip.wire.messages import Ack, Parcel
from topologies import parse

N, SIZE, STEPS, RATE = 4, 5, 50, 0.05
#: Two turns, uneven on purpose: somebody is met twice, somebody not at all. Nobody pushes to one whom it answers at the
#: same boundary: there is at most one parcel of a shard on its way between two.
TURNS: list[Turn] = [
    {0: {1: 0.5}, 1: {2: 0.5}, 2: {3: 0.25}, 3: {0: 0.5}},
    {0: {2: 0.5}, 1: {2: 0.5}, 2: {3: 0.5}, 3: {0: 0.25, 1: 0.25}},
]
#: Uneven too, and nobody is pushed to again within three turns: parcels may be on their way for as long.
LATE: list[Turn] = [
    {0: {1: 0.5, 2: 0.25}, 1: {2: 0.5}, 2: {3: 0.25}, 3: {0: 0.5}},
    {1: {3: 0.5}, 2: {0: 0.5}},
    {0: {3: 0.5}, 1: {0: 0.25}, 2: {1: 0.5}, 3: {2: 0.5}},
    {3: {1: 0.5}},
]
#: Edges that go both ways: one of each two is drawn to begin.
PAIRS: list[Turn] = [
    {0: {1: 0.5}, 1: {0: 0.5}, 2: {3: 0.5}, 3: {2: 0.5}},
    {0: {2: 0.5}, 2: {0: 0.5}, 1: {3: 0.5}, 3: {1: 0.5}},
]


def gradient(rank: int, z: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng([3, rank])
    a, b = generator.normal(size=(SIZE, SIZE)) / 2, generator.normal(size=SIZE)
    return a.T @ (a @ z - b)


def start() -> list[np.ndarray]:
    return [np.random.default_rng([5, rank]).normal(size=SIZE) for rank in range(N)]


#: Weight, values, who asks for something in return if anybody does, and for which fraction.
Boxed = tuple[float, np.ndarray, int, float]


@dataclass
class Dense:
    """One peer of the reference: what it holds, what has arrived, and what it was asked for."""

    z: np.ndarray
    w: float = 1.0
    box: list[Boxed] = field(default_factory=list)
    asks: dict[int, float] = field(default_factory=dict)

    def give(self, part: float) -> tuple[float, np.ndarray]:
        weight = part * self.w
        self.w -= weight
        return weight, self.z.copy()

    def merge(self, parcels: list[Boxed]) -> None:
        for weight, values, _, _ in parcels:
            self.z = (self.w * self.z + weight * values) / (self.w + weight)
            self.w += weight


def reference(hand: Hand, turns: list[Turn], kind: str, tau: int, alpha: float = 0.0) -> list[list[np.ndarray]]:
    """Let the peers step one after the other, each letter arriving before the next one steps.

    The swarm is only asked who of two begins.
    """
    peers = [Dense(z) for z in start()]
    trace = []
    for step in range(1, STEPS + 1):
        for rank, peer in enumerate(peers):
            peer.z = peer.z - RATE * gradient(rank, peer.z)
            # At a boundary: first what others pull is given, of what was held before anything is merged.
            for asker, fraction in peer.asks.items():
                peers[asker].box.append((*peer.give(fraction), -1, 0.0))
            peer.asks = {}
            # Then what asks for nothing is merged, then those who ask are answered.
            asking = [one for one in peer.box if one[2] >= 0]
            peer.merge([one for one in peer.box if one[2] < 0])
            peer.box = []
            held = peer.w
            for one in asking:
                # easgd: all of what was held before the first of them. adpsgd: one pair after the other.
                weight = one[3] * (held if alpha else peer.w)
                peer.w -= weight
                peers[one[2]].box.append((weight, peer.z.copy(), -1, 0.0))
                peer.merge([] if alpha else [one])
            peer.merge(asking if alpha else [])
            if step % tau:
                continue
            turn = step // tau - 1
            held = peer.w
            for other, part in turns[turn % len(turns)].get(rank, {}).items():
                if kind == "pairwise" and hand.cores[rank].view.is_asked(other, turn):
                    continue
                fraction = alpha or part
                if kind == "gossip-pull":
                    peers[other].asks[rank] = fraction
                    continue
                peer.w -= fraction * held
                asker = rank if kind == "pairwise" else -1
                peers[other].box.append((fraction * held, peer.z.copy(), asker, fraction))
        trace.append([peer.z.copy() for peer in peers])
    return trace


@pytest.mark.parametrize(
    ("kind", "algorithm", "turns", "tau", "alpha"),
    [
        ("gossip-push", "gossip-push", TURNS, 1, 0.0),
        ("gossip-push", "gossip-push:tau=3", TURNS, 3, 0.0),
        ("gossip-pull", "gossip-pull", TURNS, 1, 0.0),
        ("gossip-pull", "gossip-pull:tau=2", TURNS, 2, 0.0),
        ("pairwise", "easgd:alpha=0.25", TURNS, 1, 0.25),
        ("pairwise", "easgd:alpha=0.1,tau=2", TURNS, 2, 0.1),
        ("pairwise", "easgd:alpha=0.1", PAIRS, 1, 0.1),
        ("pairwise", "adpsgd", TURNS, 1, 0.0),
        ("pairwise", "adpsgd", PAIRS, 1, 0.0),
    ],
)
def test_each_is_its_rule_in_dense_float64(
    kind: str, algorithm: str, turns: list[Turn], tau: int, alpha: float
) -> None:
    hand = Hand(*start(), turns=turns, algorithm=algorithm, weight_floor=0.0, weight_cap=1e5, inbox_bytes=1 << 20)
    for step, expected in enumerate(reference(hand, turns, kind, tau, alpha)):
        hand.now += 1.0
        for rank, core in enumerate(hand.cores):
            core.mass.values[:] -= RATE * gradient(rank, core.mass.values)
            hand.step(rank)
            hand.settle()
        for core, z in zip(hand.cores, expected, strict=True):
            np.testing.assert_allclose(core.mass.values, z, rtol=1e-9, atol=1e-11, err_msg=f"step {step}")
    total = sum(core.mass.weights[0] + core.inbox.weight(0) for core in hand.cores)
    assert total == pytest.approx(N, abs=1e-12)


def overlapped(tau: int) -> list[list[np.ndarray]]:
    """Return each step's values of overlapped push-sum: what was pushed at turn t is merged at turn t + tau."""
    peers = [Dense(z) for z in start()]
    on_its_way: list[list[tuple[int, float, np.ndarray]]] = []
    trace = []
    for turn in range(STEPS):
        pushed = []
        for rank, peer in enumerate(peers):
            peer.z = peer.z - RATE * gradient(rank, peer.z)
            held = peer.w
            for other, part in LATE[turn % len(LATE)].get(rank, {}).items():
                pushed.append((other, part * held, peer.z))
                peer.w -= part * held
        on_its_way.append(pushed)
        for other, weight, values in on_its_way.pop(0) if turn >= tau else ():
            peers[other].merge([(weight, values, -1, 0.0)])
        trace.append([peer.z for peer in peers])
    return trace


@pytest.mark.parametrize("tau", [1, 2, 3])
def test_osgp_trains_on_while_parcels_travel_and_waits_for_those_that_are_late(tau: int) -> None:
    """Every parcel takes as long as it may: it comes when its receiver has pushed tau turns more, and waits for it."""
    hand = Hand(*start(), turns=LATE, algorithm=f"osgp:tau={tau},wait=0", weight_floor=0.0, weight_cap=1e5)
    for turn, expected in enumerate(overlapped(tau)):
        hand.now += 1.0
        proceeds = []
        for rank, core in enumerate(hand.cores):
            core.mass.values[:] -= RATE * gradient(rank, core.mass.values)
            proceeds += [rank for _ in only(hand.step(rank), events.Proceed)]
        waited_for = [to for edges in LATE[(turn - tau) % len(LATE)].values() for to in edges] if turn >= tau else []
        assert set(proceeds) == set(range(N)) - set(waited_for), f"turn {turn}"
        for _ in [parcel for parcel in hand.parcels() if parcel.turn == turn - tau]:
            hand.deliver(Parcel)  # the oldest
            hand.deliver(Ack)
        for core, z in zip(hand.cores, expected, strict=True):
            np.testing.assert_allclose(core.mass.values, z, rtol=1e-9, atol=1e-11, err_msg=f"turn {turn}")
    weight, _ = hand.total()
    assert weight == pytest.approx(N, abs=1e-12)


def test_a_pull_that_is_lost_costs_nothing() -> None:
    hand = Hand(1.0, 2.0, turns=[{0: {1: 0.5}}], algorithm="gossip-pull")
    hand.step(0)
    assert hand.lose() == 1
    hand.step(1)
    hand.settle()
    assert [core.mass.weights for core in hand.cores] == [[1.0], [1.0]]


def test_two_that_swap_alpha_are_drawn_to_each_other_by_it() -> None:
    hand = Hand(0.0, 1.0, turns=[{0: {1: 0.2}}], algorithm="easgd:alpha=0.2")
    hand.step(0)
    hand.settle()
    hand.step(1)
    hand.settle()
    hand.step(0)
    assert hand.cores[0].mass.values[0] == pytest.approx(0.2)
    assert hand.cores[1].mass.values[0] == pytest.approx(0.8)


def test_a_hub_answers_all_of_a_boundary_from_the_mass_before_them() -> None:
    turn: Turn = {leaf: {0: 0.2} for leaf in (1, 2, 3)}
    hand = Hand(0.0, 1.0, 2.0, 3.0, turns=[turn], algorithm="easgd:alpha=0.2")
    for leaf in (1, 2, 3):
        hand.step(leaf)
    hand.settle()
    hand.step(0)
    hand.settle()
    for leaf in (1, 2, 3):
        hand.feed(leaf, events.Merge())
    assert [core.mass.values[0] for core in hand.cores] == pytest.approx([1.2, 0.8, 1.6, 2.4], abs=1e-15)
    assert [core.mass.weights[0] for core in hand.cores] == pytest.approx([1.0] * 4, abs=1e-15)


def test_on_a_star_it_is_classic_elastic_averaging_in_dense_float64() -> None:
    """In step: all train, then c <- c + alpha sum (x_i - c) and x_i <- x_i - alpha (x_i - c), with c from before."""
    alpha, leaves = 0.2, range(1, N)
    star = parse("star", N)
    turn: Turn = {rank: dict(star.out_edges(rank, 0)) for rank in range(N)}
    hand = Hand(*start(), turns=[turn], algorithm=f"easgd:alpha={alpha}")
    z = start()
    for step in range(STEPS):
        z = [one - RATE * gradient(rank, one) for rank, one in enumerate(z)]
        pulls = [alpha * (z[leaf] - z[0]) for leaf in leaves]
        z = [z[0] + sum(pulls), *(z[leaf] - pull for leaf, pull in zip(leaves, pulls, strict=True))]
        hand.now += 1.0
        for rank, core in enumerate(hand.cores):
            core.mass.values[:] -= RATE * gradient(rank, core.mass.values)
        before = hand.total()
        for rank in (*leaves, 0):  # the hub comes to its boundary when all leaves have been at theirs
            hand.step(rank)
            hand.settle()
        for leaf in leaves:
            hand.feed(leaf, events.Merge())
        for core, expected in zip(hand.cores, z, strict=True):
            np.testing.assert_allclose(core.mass.values, expected, rtol=1e-12, atol=1e-13, err_msg=f"step {step}")
            assert core.mass.weights[0] == pytest.approx(1.0, abs=1e-13)
        assert hand.total() == pytest.approx(before, abs=1e-12)


def test_what_rounding_takes_off_several_answers_stays_with_the_hub() -> None:
    turn: Turn = {leaf: {0: 0.2} for leaf in range(1, N)}
    hand = Hand(*start(), turns=[turn], algorithm="easgd:alpha=0.2", compress="int8")
    before = hand.total()
    for leaf in range(1, N):
        hand.step(leaf)
    hand.settle()
    held = hand.cores[0].mass.values.copy()
    hand.step(0)
    answers = hand.parcels()
    assert len(answers) == N - 1
    assert all(np.array_equal(answer.values, answers[0].values) for answer in answers), "all of the same boundary"
    assert not np.array_equal(answers[0].values, held)
    hand.settle()
    assert hand.total() == pytest.approx(before, abs=1e-12)


def test_a_hub_that_is_asked_for_more_than_it_may_give_cuts_all_answers_alike_and_keeps_the_floor() -> None:
    turn: Turn = {leaf: {0: 0.5} for leaf in (1, 2)}
    hand = Hand(0.0, 1.0, 2.0, turns=[turn], algorithm="easgd:alpha=0.4", weight_floor=0.3)
    for _ in range(2):  # the leaves are faster: each asks twice, and is answered once
        for leaf in (1, 2):
            hand.step(leaf)
            hand.settle()
    hand.step(0)
    assert [parcel.weight for parcel in hand.parcels()] == pytest.approx([0.35, 0.35])
    hand.settle()
    assert hand.total() == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("easgd:alpha=0", "alpha, the part of its mass that a peer swaps, must be above 0 and at most 0.5, not 0"),
        ("easgd:alpha=0.6", "above 0 and at most 0.5, not 0.6"),
        ("easgd:tau=0", "tau, the steps from one exchange to the next, must be 1 or more"),
        ("gossip-push:tau=0", "tau, the steps from one push to the next, must be 1 or more, not 0"),
        ("gossip-pull:tau=-1", "tau, the steps from one pull to the next, must be 1 or more, not -1"),
    ],
)
def test_parameters_that_cannot_be_meant(algorithm: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        policies.parse(algorithm)


def test_a_hub_with_more_neighbours_than_fractions_is_refused_with_what_to_say() -> None:
    with pytest.raises(SettingsError, match=r"rank 0 has 7 neighbours.*use alpha below 0\.143"):
        policies.parse("easgd").check(parse("star", 8))
    policies.parse("easgd:alpha=0.1").check(parse("star", 8))
