"""Successive averages under a network that does what it likes, with members that die, leave, join and pause."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from collective_swarm import RATE, Node, Swarm

from gossip import events
from gossip.collective import PLANS, Reduction
from gossip.collective.attempts import Attempts
from gossip.collective.early import Early
from gossip.collective.group import Group, GroupSeat, Seats, Stand, Verdict
from gossip.faults.weather import Weather
from gossip.values.pool import Pool
from gossip.wire.messages import Address, Chunk, Enter, Lack, Subject

BAD = {"loss": 0.15, "duplicate": 0.1, "corrupt": 0.05, "delay": (0.001, 0.3)}


@pytest.mark.parametrize("kind", ["auto", *PLANS])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_all_get_the_same_average_in_fair_weather_and_in_bad(n: int, kind: str) -> None:
    for weather in (Weather(), Weather(seed=n, **BAD)):
        swarm = Swarm(n, kind=kind, weather=weather, seed=n)
        swarm.run()
        swarm.check()
        assert all(node.step == swarm.rounds for node in swarm.nodes.values())
        assert all(sorted(node.computed) == [0, 1, 2] for node in swarm.nodes.values())
        assert all(len(group) == n for node in swarm.nodes.values() for group in node.computed.values())


def test_nothing_but_the_plan_is_sent_once_a_group_is_formed() -> None:
    swarm = Swarm(4, kind="ring", rounds=20)
    swarm.run(lambda: all(node.step >= 1 for node in swarm.nodes.values()))
    before, rounds = swarm.sent, sum(node.step for node in swarm.nodes.values())
    swarm.run()
    more = sum(node.step for node in swarm.nodes.values()) - rounds
    chunks = (swarm.sent - before) / more
    assert chunks == pytest.approx(2 * 3, rel=0.15), "each sends 2 (n - 1) chunks in a round"


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("weather", ["fair", "bad"])
def test_a_death_at_any_moment_leaves_all_others_with_the_same_averages(kind: str, weather: str) -> None:
    for seed in range(40):
        generator = np.random.default_rng([seed, 1])
        given = Weather(seed=seed, **BAD) if weather == "bad" else Weather(seed=seed, delay=(0.001, 0.05))
        n = int(generator.integers(2, 7))
        swarm = Swarm(n, kind=kind, weather=given, seed=seed, rounds=4)
        for victim in generator.choice(n, size=int(generator.integers(1, n)), replace=False):
            swarm.at(
                float(generator.uniform(0.0, 1.5)), partial(swarm.kill, int(victim), partial(generator.uniform, 0, 2))
            )
        swarm.run()
        swarm.check()


def finished_by_some(swarm: Swarm, number: int) -> bool:
    steps = [node.step for node in swarm.nodes.values() if node.alive]
    return max(steps) == number + 1 and min(steps) == number


def test_who_has_finished_gives_its_result_to_those_who_have_not() -> None:
    """One has finished the round with the dead one's part in it, others have not: they all use that average."""
    seen = 0
    for seed in range(60):
        swarm = Swarm(4, kind="ring", weather=Weather(seed=seed, delay=(0.001, 0.2)), seed=seed, rounds=3)
        swarm.run(lambda swarm=swarm: finished_by_some(swarm, 1) or all(one.done for one in swarm.nodes.values()))
        ahead = [node for node in swarm.nodes.values() if node.step == 2]
        behind = [node for node in swarm.nodes.values() if node.step == 1]
        if not ahead or len(behind) < 2:
            continue
        swarm.kill(behind[0].me.rank, lambda: 0.0)
        swarm.run()
        swarm.check()
        for node in behind[1:]:
            seen += 1 not in node.computed
            assert node.results[1].tobytes() == ahead[0].results[1].tobytes()
            assert len(ahead[0].computed[1]) == 4, "the dead one's part counts"
    assert seen > 10, "it was taken over, not computed"


def test_who_finished_and_dies_with_it_leaves_the_others_to_compute_it_anew() -> None:
    seen = 0
    for seed in range(60):
        swarm = Swarm(3, kind="ring", weather=Weather(seed=seed, delay=(0.001, 0.2)), seed=seed, rounds=3)
        swarm.run(lambda swarm=swarm: finished_by_some(swarm, 1) or all(one.done for one in swarm.nodes.values()))
        ahead = [node for node in swarm.nodes.values() if node.step == 2]
        if len(ahead) != 1:
            continue
        swarm.kill(ahead[0].me.rank, lambda: 0.0)
        swarm.run()
        swarm.check()
        for node in swarm.nodes.values():
            if node.alive:
                seen += len(node.computed.get(1, [])) == 2
    assert seen > 10


@pytest.mark.parametrize("weather", ["fair", "bad"])
def test_a_newcomer_takes_the_state_over_and_enters(weather: str) -> None:
    for seed in range(25):
        generator = np.random.default_rng([seed, 2])
        given = Weather(seed=seed, **BAD) if weather == "bad" else Weather(seed=seed, delay=(0.001, 0.05))
        swarm = Swarm(3, weather=given, seed=seed, rounds=12)
        life = int(generator.integers(1, 3))
        newcomer = Address(int(generator.integers(3, 6)), life)

        def enter(
            swarm: Swarm = swarm, newcomer: Address = newcomer, generator: np.random.Generator = generator
        ) -> None:
            members = {node.me.rank: node.me.incarnation for node in swarm.nodes.values() if node.alive}
            node = swarm.add(newcomer, {**members, newcomer.rank: newcomer.incarnation})
            node.x += 99.0
            for other in list(swarm.nodes.values()):
                if other is not node:
                    when = swarm.now + float(generator.uniform(0.0, 0.3))
                    swarm.at(when, lambda other=other: swarm.see(other.me.rank, newcomer))
            swarm.at(swarm.now + float(generator.uniform(0, 0.5)), lambda: swarm.call(node, events.Synchronize(0)))

        swarm.at(float(generator.uniform(0.0, 1.0)), enter)
        victim = int(generator.integers(0, 3))
        if seed % 3 == 0:  # and somebody dies about then, maybe the one that gives the state
            swarm.at(1.0, lambda victim=victim, swarm=swarm: swarm.kill(victim, lambda: 0.5))
            swarm.at(2.0, partial(swarm.see, newcomer.rank, Address(victim, 0), gone=True))
        swarm.run()
        swarm.check()
        node = swarm.nodes[newcomer.rank]
        assert node.adopted, "it took the state over"
        assert node.computed, "and then took part"
        assert any(newcomer.rank in group for group in node.computed.values())


def test_nobody_waits_for_one_that_withdraws_and_it_comes_back_with_the_state() -> None:
    for seed in range(20):
        swarm = Swarm(3, weather=Weather(seed=seed, **BAD), seed=seed, rounds=6)
        node = swarm.nodes[1]
        swarm.run(lambda swarm=swarm: swarm.nodes[1].step >= 2 and swarm.nodes[1].reduction._pending is None)
        swarm.withdraw(1)
        swarm.run(lambda swarm=swarm: all(swarm.nodes[rank].done for rank in (0, 2)))
        assert node.step < 6
        assert any(1 not in group for group in swarm.nodes[0].computed.values())
        for rank in (0, 2):  # as whoever is through does, so that its state does not change any more
            swarm.withdraw(rank)
        node.pausing = False
        swarm.call(node, events.Synchronize(0))
        swarm.run()
        swarm.check()
        assert node.adopted


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("weather", ["fair", "bad"])
def test_whoever_is_through_goes_only_when_nobody_lacks_its_last_result(kind: str, weather: str) -> None:
    for seed in range(40):
        given = Weather(seed=seed, **BAD) if weather == "bad" else Weather(seed=seed, delay=(0.001, 0.05))
        generator = np.random.default_rng([seed, 5])
        n = int(generator.integers(2, 6))
        swarm = Swarm(n, kind=kind, weather=given, seed=seed, rounds=3)
        gone: set[int] = set()

        def leave(swarm: Swarm = swarm, gone: set[int] = gone, generator: np.random.Generator = generator) -> bool:
            for node in swarm.nodes.values():
                if node.done and node.me.rank not in gone:
                    gone.add(node.me.rank)
                    swarm.withdraw(node.me.rank)
                if node.withdrawn and node.alive:
                    swarm.kill(node.me.rank, partial(generator.uniform, 0.0, 0.1))
            return not any(node.alive for node in swarm.nodes.values())

        swarm.run(leave)
        assert len({node.x.tobytes() for node in swarm.nodes.values()}) == 1
        assert all(len(group) == n for node in swarm.nodes.values() for group in node.computed.values())


def test_who_was_given_up_and_lives_comes_back_as_a_newcomer() -> None:
    for seed in range(20):
        swarm = Swarm(3, weather=Weather(seed=seed, delay=(0.001, 0.05)), seed=seed, rounds=14)
        generator = np.random.default_rng([seed, 3])
        late, again = swarm.nodes[2], Address(2, 1)

        def give_up(swarm: Swarm = swarm) -> None:
            for rank in (0, 1):
                swarm.see(rank, Address(2, 0), gone=True)

        def come_back(swarm: Swarm = swarm, late: Node = late, again: Address = again) -> None:
            late.me = again
            late.members = {0: 0, 1: 0, 2: 1}
            swarm.work(late)
            for rank in (0, 1):
                swarm.see(rank, again)

        swarm.at(float(generator.uniform(0.1, 0.5)), give_up)
        swarm.at(float(generator.uniform(0.6, 1.2)), come_back)
        swarm.run()
        assert late.adopted
        assert len({(node.step, node.x.tobytes()) for node in swarm.nodes.values()}) == 1


def test_the_parts_of_a_swarm_that_was_cut_become_one_again() -> None:
    """Both gave each other up, so nobody's state is the group's; that of whoever has come furthest becomes it."""
    adopted = 0
    for seed in range(15):
        swarm = Swarm(4, weather=Weather(seed=seed, delay=(0.001, 0.05)), seed=seed, rounds=25)
        generator = np.random.default_rng([seed, 4])

        def cut(rank: int, swarm: Swarm = swarm) -> None:
            for other in {0, 1, 2, 3} - ({0, 1} if rank < 2 else {2, 3}):
                swarm.see(rank, Address(other, 0), gone=True)

        def heal(rank: int, swarm: Swarm = swarm) -> None:
            node = swarm.nodes[rank]
            node.me, node.members = Address(rank, 1), dict.fromkeys(range(4), 1)
            swarm.work(node)

        for rank in range(4):
            swarm.at(float(generator.uniform(0.2, 0.4)), partial(cut, rank))
            swarm.at(float(generator.uniform(1.0, 1.5)), partial(heal, rank))
        swarm.run(lambda swarm=swarm: swarm.now > 0.9)
        assert len({node.x.tobytes() for node in swarm.nodes.values()}) > 1, "they went apart"
        swarm.run()
        assert len({(node.step, node.x.tobytes()) for node in swarm.nodes.values()}) == 1
        adopted += sum(len(node.adopted) for node in swarm.nodes.values())
    assert adopted >= 15


def test_of_founders_who_differ_the_one_that_has_come_furthest_counts() -> None:
    swarm = Swarm(0, rounds=9)
    for rank, step in enumerate((4, 7, 7)):
        node = swarm.add(Address(rank, 0), {0: 0, 1: 0, 2: 0})
        node.x += rank
        swarm.call(node, events.Synchronize(step, 100 + rank))
    swarm.run()
    swarm.check()
    assert [node.adopted for node in swarm.nodes.values()] == [[7], [], [7]]
    assert all(sorted(node.computed) == [7, 8] for node in swarm.nodes.values())


def test_founders_with_the_same_state_send_none() -> None:
    swarm = Swarm(4)
    swarm.run()
    assert not any(node.adopted for node in swarm.nodes.values())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_makes_everybody_leave_the_step_out(bad: float) -> None:
    def gradient(node: Node) -> np.ndarray:
        found = node.x - swarm.targets[node.me.rank]
        if node.me.rank == 1 and node.step == 1:
            found[5] = bad
        return found

    swarm = Swarm(3, gradient=gradient, weather=Weather(seed=1, **BAD))
    swarm.run()
    assert [node.skipped for node in swarm.nodes.values()] == [[1]] * 3
    assert len({node.x.tobytes() for node in swarm.nodes.values()}) == 1
    assert np.isfinite(swarm.nodes[0].x).all()


def test_sums_that_overflow_are_left_out_by_all_as_well() -> None:
    swarm = Swarm(2, gradient=lambda _: np.full(37, 3e38))
    swarm.run()
    assert [node.skipped for node in swarm.nodes.values()] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("kind", PLANS)
def test_fifty_steps_equal_the_dense_reference_and_replicas_are_the_same_bits(kind: str) -> None:
    n = 5
    swarm = Swarm(n, kind=kind, rounds=50, dtype=np.float64, weather=Weather(seed=7, loss=0.02, delay=(0.0, 0.02)))
    swarm.run()
    swarm.check()
    x = np.zeros(swarm.size)
    for _ in range(50):
        x = x - RATE * np.mean([x - swarm.targets[rank] for rank in range(n)], axis=0)
    np.testing.assert_allclose(swarm.nodes[0].x, x, rtol=1e-12, atol=1e-14)


def stands(group: Group, **told: tuple[int, bool, bool]) -> Group:
    for name, (number, veteran, keeps) in told.items():
        group.stands[int(name[1:])] = Stand(number, veteran, keeps, 0)
    return group


def test_what_follows_from_where_all_stand() -> None:
    def group(**told: tuple[int, bool, bool]) -> Group:
        return stands(Group(Address(0, 0), {0: 0, 1: 0, 2: 3}, Seats()), **told)

    found = group(_0=(4, True, True), _1=(5, True, True), _2=(0, False, False)).verdict()
    assert found == Verdict(5, frozenset([1]), source=1, keeper=1)
    found = group(_0=(4, True, True), _1=(5, True, False), _2=(0, False, False)).verdict()
    assert found == Verdict(5, frozenset([1]), source=1, keeper=None), "it took the state over, and has no result"
    found = group(_0=(4, True, True), _1=(4, True, True), _2=(5, True, True)).verdict()
    assert found == Verdict(5, frozenset([2]), source=2, keeper=2), "also of one that takes no part any more"
    found = group(_0=(4, False, False), _1=(7, False, False), _2=(9, False, False)).verdict()
    assert found == Verdict(7, frozenset([1]), source=1, keeper=None), "nobody knows what one that takes no part has"
    assert Group(Address(0, 1), {0: 1}, Seats()).verdict() is None


def test_lives_and_stints_make_other_groups_and_never_go_back() -> None:
    seats = Seats()
    digests = {Group(Address(0, 0), members, seats).digest for members in ({0: 0}, {0: 0, 1: 0}, {0: 0, 1: 1})}
    before = Group(Address(0, 0), {0: 0, 1: 0}, seats)
    assert seats.learn(1, GroupSeat(0, 1, False))
    after = Group(Address(0, 0), {0: 0, 1: 0}, seats)
    digests.add(after.digest)
    assert len(digests) == 4
    assert (before.places, after.places) == ([0, 1], [0])
    assert not seats.learn(1, GroupSeat(0, 0, True)), "older"
    assert seats.learn(1, GroupSeat(2, 0, False)), "a later life"
    assert not seats.learn(1, GroupSeat(1, 5, True))


def test_a_part_for_another_group_or_of_another_round_is_not_taken() -> None:
    me, other = Address(0, 0), Address(1, 0)
    members = {0: 0, 1: 0}
    one = Reduction(me, Attempts(Pool(0)), first=0.25, ceiling=1.0, early_bytes=1000)
    one.handle(events.Synchronize(0, 7), 0.0)
    (enter,) = [said for said in one.work(me, members, 0.0) if isinstance(said, Enter)]
    one.receive(Enter(other, me, enter.digest, 0, True, 5, True, False, 0, True), me, members, 0.0)
    (lack,) = one.work(me, members, 0.0)
    assert lack == Lack(me, other, Subject.STATE, 5, enter.digest, ((0, 0),))
    state = np.arange(3, dtype=np.uint8)
    for digest, number, subject in [(1, 5, 2), (enter.digest, 4, 2), (enter.digest, 5, 1)]:
        one.receive(Chunk(other, me, Subject(subject), number, digest, 1, 0, state), me, members, 0.0)
        assert not list(one.work(me, members, 0.0))
    one.receive(Chunk(other, me, Subject.STATE, 5, enter.digest, 1, 0, state), me, members, 0.0)
    assert list(one.work(me, members, 0.0)) == [events.Synchronized(5, bytes(state))]


def test_no_state_is_handed_out_while_the_trainer_makes_its_step() -> None:
    me, other = Address(0, 0), Address(1, 1)
    members = {0: 0, 1: 1}
    one = Reduction(me, Attempts(Pool(0)), first=0.25, ceiling=1.0, early_bytes=1000)
    one.handle(events.Synchronize(0, 7), 0.0)
    (enter,) = one.work(me, members, 0.0)
    assert isinstance(enter, Enter)
    one.receive(Enter(other, me, enter.digest, 0, False, 0, False, False, 0, True), me, members, 0.0)
    assert list(one.work(me, members, 0.0)) == [events.Synchronized(0, None)]
    one.handle(events.Reduce(np.ones(3)), 0.0)
    assert list(one.work(me, members, 0.0)) == [events.Reduced(0, 1, True)]
    lack = Lack(other, me, Subject.STATE, 1, enter.digest, ((0, 0),))
    one.receive(lack, me, members, 0.0)
    assert not list(one.work(me, members, 0.0)), "it moves its values just now"
    one.handle(events.Offer(1, b"half done"), 0.0)
    assert not list(one.work(me, members, 0.0))
    one.handle(events.Synchronize(1), 0.0)
    list(one.work(me, members, 0.0))
    one.receive(lack, me, members, 0.0)
    assert list(one.work(me, members, 0.0)) == [events.StateWanted(1)]
    one.handle(events.Offer(1, b"whole"), 0.0)
    (chunk,) = one.work(me, members, 0.0)
    assert isinstance(chunk, Chunk)
    assert bytes(chunk.values) == b"whole"


def test_memory_of_what_comes_early_is_bounded() -> None:
    swarm = Swarm(2, size=400_000, rounds=2)
    for node in swarm.nodes.values():
        node.reduction._early = Early(300_000)
    swarm.nodes[1].pause = lambda: 1.0
    most = 0

    def looked() -> bool:
        nonlocal most
        held = (
            sum(one.values.nbytes for one in node.reduction._early._chunks.values()) for node in swarm.nodes.values()
        )
        most = max(most, *held)
        return all(node.done for node in swarm.nodes.values())

    swarm.run(looked)
    swarm.check()
    assert 0 < most <= 300_000
