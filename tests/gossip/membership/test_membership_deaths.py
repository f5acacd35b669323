"""Deaths are found within the bound, pauses are no deaths, and nobody dies falsely in an hour."""

from __future__ import annotations

from itertools import pairwise

import pytest
from repeats import some

from gossip.membership import MembershipSettings, State, membership_preset
from gossip.membership.member_events import StateChanged
from gossip.simulation.memberships import Conditions, MembershipSwarm
from topologies.draws import draw

DELAYS = {"loopback": (0.00005, 0.001), "lan": (0.0002, 0.005), "wan": (0.02, 0.4)}


def deaths(swarm: MembershipSwarm) -> list[tuple[float, int, int]]:
    """Return who found whom dead, and when."""
    found = [(change.at, change.observer, change.effect) for change in swarm.changes]
    return [
        (at, observer, effect.record.rank)
        for at, observer, effect in found
        if isinstance(effect, StateChanged) and effect.record.state is State.DEAD
    ]


def bound(settings: MembershipSettings, n: int) -> float:
    """Return how long it takes at most, in all likelihood, until everybody knows of a death.

    The chance that none of n - 1 peers picks it in an interval is about 1/e, so within 7 intervals somebody has but
    for one case in a thousand; then there is the interval in which that probe fails, the longest suspicion, and
    the time for the news.
    """
    return 8 * settings.interval + 6 * settings.suspicion_least(n) + 3.0


@pytest.mark.parametrize("n", [2, 3, 5, 16, 64, pytest.param(256, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_death_is_known_to_all_within_the_bound(n: int, loss: float) -> None:
    settings = membership_preset("lan")
    times = []
    for seed in range(12 if n < 64 else 4 if n == 64 else 1):
        swarm = MembershipSwarm(settings, seed, Conditions(loss=loss))
        swarm.start(range(n))
        swarm.run(10.0 + seed)
        swarm.kill(n // 2)
        times.append(swarm.run(300.0, swarm.agreed))
        assert {dead for _, _, dead in deaths(swarm)} == {n // 2}, "and of nobody else"
    assert max(times) < bound(settings, n)
    assert min(times) > settings.suspicion_least(n), "nobody is given up without time to refute"
    if n > 4:
        median = sorted(times)[len(times) // 2]
        assert median < 4 * settings.interval + 1.6 * settings.suspicion_least(n), "confirmations shorten it"


@pytest.mark.parametrize("n", [4, 9])
def test_each_is_probed_within_two_rounds(n: int) -> None:
    swarm = MembershipSwarm(MembershipSettings(), 1)
    swarm.start(range(n))
    sent: dict[int, list[float]] = {}
    probes = swarm.peers[0].membership._probes
    begin = probes.interval_over

    def watch(now: float) -> None:
        begin(now)
        assert probes._probe is not None
        sent.setdefault(probes._probe.rank, []).append(now)

    probes.interval_over = watch  # type: ignore[method-assign]
    swarm.run(300.0)
    gaps = [later - earlier for times in sent.values() for earlier, later in pairwise(times)]
    assert set(sent) == set(range(1, n))
    assert max(gaps) <= (2 * (n - 1) - 1) * 1.5 + 1e-6


@pytest.mark.parametrize("seed", some(range(6), 2))
@pytest.mark.parametrize("preset", DELAYS)
def test_a_pause_of_a_second_is_no_death_and_of_ten_seconds_harms_nobody_else(preset: str, seed: int) -> None:
    swarm = MembershipSwarm(membership_preset(preset), seed, Conditions(delay=DELAYS[preset]))
    swarm.start(range(16))
    swarm.run(20.0)
    for _ in range(10):
        swarm.pause(5, 1.0)
        swarm.run(7.0)
    assert deaths(swarm) == []
    swarm.pause(5, 10.0)
    swarm.run(120.0)
    assert {dead for _, _, dead in deaths(swarm)} <= {5}, "who slept accuses nobody, and nobody else was silent"
    assert swarm.run(120.0, swarm.agreed) < 60.0, "and if it was given up it comes back by itself"
    for one in swarm.running():
        one.validate_state()


def test_when_a_machine_sleeps_all_its_peers_wake_up_friends() -> None:
    swarm = MembershipSwarm(membership_preset("loopback"), 2)
    swarm.start(range(12))
    swarm.run(20.0)
    for rank in range(12):
        swarm.pause(rank, 3600.0)
    swarm.run(3700.0)
    assert deaths(swarm) == []
    assert swarm.agreed()


@pytest.mark.parametrize("preset", DELAYS)
@pytest.mark.parametrize(
    ("n", "loss", "naps"),
    [
        (3, 0.0, True),
        (3, 0.1, True),
        (8, 0.0, False),
        (8, 0.1, False),
        pytest.param(16, 0.1, True, marks=pytest.mark.slow),
    ],
)
def test_nobody_dies_falsely_in_an_hour(preset: str, n: int, loss: float, naps: bool) -> None:
    """With loss, doubles, and a peer whose processing is delayed by up to 5 s every few seconds."""
    swarm = MembershipSwarm(membership_preset(preset), n, Conditions(loss, loss / 2, DELAYS[preset]))
    swarm.start(range(n))
    while swarm.now < 3600.0:
        if naps:
            bits = draw(n, int(swarm.now))
            swarm.pause(2, 5.0 if bits & 1 else 5.0 * bits / 2**64)
        swarm.run(13.0)
    assert deaths(swarm) == []
    lives = {one.me.incarnation for one in swarm.running()}
    assert lives == {0}, "no life was lost to a suspicion"
    if not loss and not naps:
        assert swarm.changes == [], "not even a suspicion"
    for one in swarm.running():
        one.validate_state()


def test_one_peer_that_cannot_hear_does_not_get_the_others_killed() -> None:
    """It finds everybody silent; its health keeps it from pulling them down with it."""
    swarm = MembershipSwarm(MembershipSettings(), 4)
    swarm.start(range(16))
    swarm.run(10.0)
    swarm.separates = lambda _, destination: destination == 7
    swarm.run(60.0)
    assert {dead for _, observer, dead in deaths(swarm) if observer != 7} <= {7}


@pytest.mark.parametrize(("loss", "most"), [(0.0, 1.5), (0.1, 3.3)])
def test_what_a_peer_sends_does_not_grow_with_the_swarm(loss: float, most: float) -> None:
    """A probe and its answer per interval; under loss some helpers, but no suspicions that everybody hears of."""
    for n in (8, 32, 96):
        swarm = MembershipSwarm(membership_preset("lan"), 1, Conditions(loss=loss, delay=DELAYS["lan"]))
        swarm.start(range(n))
        swarm.run(40.0)
        assert sum(peer.messages for peer in swarm.peers.values()) / n / 40.0 < most
        assert sum(peer.bytes for peer in swarm.peers.values()) / n / 40.0 < 100.0
