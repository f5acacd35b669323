"""The small parts: formula, score, timers, updates, table."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from gossip.errors import SettingsError
from gossip.membership import MembershipSettings, State, membership_preset
from gossip.membership.health import Health
from gossip.membership.suspicion import Suspicion, suspicion_time
from gossip.membership.table import Table
from gossip.membership.timers import Timers
from gossip.membership.updates import Updates
from gossip.simulation.memberships import record_of


def test_confirmations_shorten_a_suspicion_the_first_most() -> None:
    times = [suspicion_time(4.0, 24.0, confirmations, 3) for confirmations in range(5)]
    assert times[0] == 24.0
    assert times[3] == times[4] == 4.0
    assert times[1] == pytest.approx(24 - 20 * math.log(2) / math.log(4))
    steps = [before - after for before, after in pairwise(times[:4])]
    assert steps == sorted(steps, reverse=True)


def test_where_nobody_can_confirm_the_least_time_holds() -> None:
    assert suspicion_time(4.0, 24.0, 0, 0) == 4.0


def test_an_accuser_counts_once_and_only_so_many_count() -> None:
    suspicion = Suspicion(10.0, 4.0, 24.0, 3)
    assert suspicion.confirm([1])
    assert suspicion.ends_at == 34.0
    assert not suspicion.confirm([1])
    assert suspicion.confirm([2, 3, 4, 5, 6])
    assert len(suspicion.accusers) == 4
    assert not suspicion.confirm([7]), "enough is enough: nothing more to pass on"
    assert suspicion.ends_at == 14.0


def test_the_formulas_of_the_settings() -> None:
    settings = MembershipSettings(interval=2.0)
    assert settings.suspicion_least(2) == settings.suspicion_least(10) == 8.0
    assert settings.suspicion_least(1000) == pytest.approx(24.0)
    assert settings.repeats_for(255) == 24
    assert settings.sync_for(16) == settings.sync_for(32) == 30.0
    assert settings.sync_for(128) == 90.0


@pytest.mark.parametrize("name", ["loopback", "lan", "wan"])
def test_no_preset_declares_anybody_dead_within_five_intervals(name: str) -> None:
    settings = membership_preset(name)
    assert settings.interval + settings.suspicion_least(2) >= 5 * settings.interval
    assert 5 * settings.interval >= 7.5


@pytest.mark.parametrize(
    "change",
    [
        {"interval": 0},
        {"interval": math.inf},
        {"interval": math.nan},
        {"timeout_ceiling": 0.6},
        {"timeout_floor": 0.51},
        {"piggyback_bytes": 10},
        {"piggyback_bytes": 10_000},
        {"suspicion_spread": 0.5},
        {"helpers": 0},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        replace(MembershipSettings(), **change)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="preset"):
        membership_preset("lann")


def test_health_stays_within_its_bounds() -> None:
    health = Health(8)
    health.better()
    assert health.stretch == 1
    health.worse(5)
    health.worse(5)
    assert health.stretch == 8
    health.better()
    assert health.stretch == 7


def test_timers_come_in_order_and_can_be_moved() -> None:
    timers = Timers()
    timers.set("a", 3.0)
    timers.set("b", 1.0, 7)
    timers.set("a", 2.0)
    timers.set("c", 2.5)
    timers.drop("c")
    timers.sooner("b", 9.0, 7)
    assert timers.earliest == 1.0
    assert timers.pop(0.5) is None
    timers.put_off(10.0)
    assert [timers.pop(12.0), timers.pop(12.0), timers.pop(99.0)] == [("b", 7), ("a", 0), None]
    assert timers.earliest is None


def test_updates_are_told_so_often_the_newest_first() -> None:
    updates = Updates()
    for rank in range(4):
        updates.add(rank, bytes([rank]) * 10)
    assert [packed[0] for packed in updates.take(25, 3)] == [3, 2]
    assert [packed[0] for packed in updates.take(25, 3)] == [1, 0], "those told the least come first"
    updates.add(9, b"\x09" * 10)
    assert 9 not in [packed[0] for packed in updates.take(25, 3, leave_out=9)]
    told = [packed[0] for _ in range(9) for packed in updates.take(1000, 3)]
    assert told.count(9) == 3, "each as often as it should be, and then no more"
    assert len(updates) == 0


def test_a_newer_update_replaces_the_older_and_is_told_anew() -> None:
    updates = Updates()
    updates.add(1, b"old")
    updates.take(100, 2)
    updates.add(1, b"new")
    assert [updates.take(100, 2) for _ in range(3)] == [[b"new"], [b"new"], []]


def test_no_message_holds_more_updates_than_its_budget() -> None:
    updates = Updates()
    for rank in range(50):
        updates.add(rank, bytes(7 + rank % 5))
    for budget in range(0, 200, 7):
        assert sum(map(len, updates.take(budget, 1000))) <= budget
    assert len(updates) == 50


@pytest.mark.parametrize("n", [2, 3, 17, 100])
def test_a_round_probes_everybody_once(n: int) -> None:
    table = Table(record_of(0), {rank: record_of(rank) for rank in range(n)}, 3)
    rounds = [tuple(table.next_to_probe() for _ in range(n - 1)) for _ in range(4)]
    for probed in rounds:
        assert sorted(probed) == list(range(1, n))  # type: ignore[type-var]
    assert n < 4 or len(set(rounds)) > 1, "each round in another order"


def test_the_dead_are_not_probed_and_newcomers_are() -> None:
    table = Table(record_of(0), {rank: record_of(rank) for rank in range(6)}, 3)
    table.put(record_of(2).become(State.DEAD))
    table.put(record_of(9))
    assert table.living == 6
    probed = [table.next_to_probe() for _ in range(9)]
    assert 2 not in probed
    assert 9 in probed[4:], "in the next round at the latest"
    assert table.a_dead_one() == 2
    table.put(record_of(2).become(State.LEFT))
    assert table.a_dead_one() is None, "who left is left alone"


def test_alone_there_is_nobody_to_probe() -> None:
    table = Table(record_of(0), {}, 3)
    assert table.next_to_probe() is None
    assert table.some(3) == []


def test_some_are_drawn_evenly_and_never_the_excluded() -> None:
    table = Table(record_of(0), {rank: record_of(rank) for rank in range(11)}, 3)
    counts = dict.fromkeys(range(1, 11), 0)
    for _ in range(1000):
        drawn = table.some(3, exclude=(4,))
        assert len(set(drawn)) == 3
        for rank in drawn:
            counts[rank] += 1
    assert counts.pop(4) == 0
    assert min(counts.values()) > 250
    assert sorted(table.some(99, exclude=(4,))) == [1, 2, 3, 5, 6, 7, 8, 9, 10]


def test_digests_tell_which_part_differs() -> None:
    one = Table(record_of(0), {rank: record_of(rank) for rank in range(200)}, 3)
    other = Table(record_of(1), {rank: record_of(rank) for rank in range(200)}, 4)
    assert one.differing(other.digest()) == []
    other.put(record_of(70).become(State.SUSPECT))
    assert [record.rank for record in one.differing(other.digest())] == [6, 70, 134, 198]
