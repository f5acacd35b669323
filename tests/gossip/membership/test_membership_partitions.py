"""Two halves go on alone and find each other again."""

from __future__ import annotations

import pytest

from gossip.membership import MembershipSettings, State, membership_preset
from gossip.membership.member_events import LifeOver, LifeSign, StateChanged
from gossip.simulation.memberships import Conditions, MembershipSwarm
from topologies.draws import below


@pytest.mark.parametrize(
    ("n", "seed"), [*((2, s) for s in range(3)), *((16, s) for s in range(4)), *((48, s) for s in range(2))]
)
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_after_a_heal_all_agree_within_a_bounded_time(n: int, seed: int, loss: float) -> None:
    settings = membership_preset("lan")
    swarm = MembershipSwarm(settings, seed, Conditions(loss=loss))
    swarm.start(range(n))
    swarm.run(10.0)
    swarm.separates = lambda one, other: (one < n // 3 + 1) != (other < n // 3 + 1)
    swarm.run(200.0)
    for one in swarm.running():
        side = one.me.rank < n // 3 + 1
        assert {record.rank for record in one.members()} == {rank for rank in range(n) if (rank < n // 3 + 1) == side}
    swarm.separates = None
    healed = swarm.now
    # A greeting of the dead, its answer; then rumours and comparisons, which go on while anything is news.
    assert swarm.run(300.0, swarm.agreed) < 2 * settings.revisit_interval + 15 * settings.interval
    swarm.run(60.0)
    assert swarm.agreed(), "and stay so"
    ends = [change for change in swarm.changes if isinstance(change.effect, LifeOver) and change.at >= healed]
    assert len(ends) <= 2 * n, "nobody goes through more lives than it must"
    assert len({one._opinions.table.digest() for one in swarm.running()}) == 1
    for one in swarm.running():
        one.validate_state()


def test_a_short_cut_leaves_no_trace() -> None:
    swarm = MembershipSwarm(membership_preset("lan"), 1)
    swarm.start(range(16))
    swarm.run(10.0)
    swarm.separates = lambda one, other: (one < 8) != (other < 8)
    swarm.run(4.0)
    swarm.separates = None
    swarm.run(60.0)
    assert swarm.agreed()
    assert not [change for change in swarm.changes if isinstance(change.effect, LifeOver)]


def test_greeting_the_dead_has_a_bounded_rate() -> None:
    settings = MembershipSettings()
    swarm = MembershipSwarm(settings, 1)
    swarm.start(range(12))
    swarm.run(1.0)
    for rank in range(1, 12):
        swarm.kill(rank)
    swarm.run(600.0)  # long: who is suddenly alone suspects itself first
    before = swarm.peers[0].messages
    assert [record.rank for record in swarm.peers[0].membership.members()] == [0]
    swarm.run(100.0)
    assert 8 <= swarm.peers[0].messages - before <= 100 / settings.revisit_interval + 1


@pytest.mark.parametrize("seed", range(3))
def test_any_storm_ends_in_agreement(seed: int) -> None:
    """Kills, pauses, cuts and doubles for five minutes; then quiet."""
    swarm = MembershipSwarm(membership_preset("loopback"), seed, Conditions(0.1, 0.1, (0.0, 0.3)))
    n = 24
    swarm.start(range(n))
    killed = 0
    for moment in range(60):
        what = below(6, seed, moment)
        rank = 1 + below(n - 1, seed, moment, 1)
        if what == 0 and killed < 6:
            killed += 1
            swarm.kill(rank)
        elif what == 1:
            swarm.pause(rank, 20.0)
        elif what == 2:
            swarm.separates = lambda one, other, part=rank: (one < part) != (other < part)  # type: ignore[misc]
        elif what == 3:
            swarm.separates = None
        swarm.run(5.0)
        for one in swarm.running():
            one.validate_state()
    swarm.separates = None
    assert swarm.run(300.0, swarm.agreed) < 200.0
    swarm.run(60.0)
    assert swarm.agreed()


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace() -> list[object]:
        swarm = MembershipSwarm(membership_preset("lan"), 7, Conditions(0.2, 0.1))
        swarm.start(range(10))
        swarm.run(30.0)
        swarm.kill(3)
        swarm.run(60.0)
        return [*swarm.changes, *((peer.messages, peer.bytes) for peer in swarm.peers.values())]

    assert trace() == trace()


def test_data_keeps_a_member_alive_that_answers_no_probe() -> None:
    """Its answers are lost and its data arrives: it may be suspect, and is not dead where the data comes."""
    swarm = MembershipSwarm(MembershipSettings(), 3)
    swarm.start(range(3))
    swarm.run(5.0)
    swarm.separates = lambda one, other: 2 in (one, other)
    for _ in range(400):
        swarm.run(0.25)
        for rank in (0, 1):
            swarm.post(rank, LifeSign(2, 0))
    for rank in (0, 1):
        record = swarm.peers[rank].membership.record(2)
        assert record is not None
        assert not record.final
    changed = [change.effect for change in swarm.changes if isinstance(change.effect, StateChanged)]
    assert not [effect for effect in changed if effect.record.state is State.DEAD and effect.record.rank == 2]
