"""Promise 1 where nobody is told anything: peers join, leave, die, seem to die, are cut off, and find out themselves.

`Swarm` checks the mass of the whole swarm after every event. These runs also have to come to rest: all that live hold
each other for members, in their present lives, and nothing is held twice (`watched.until_calm`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from repeats import some
from watched import FALSE_DEATH, FAST, KINDS, STEP, Troubles, until_calm

from gossip import events
from gossip.books import ledger
from gossip.core import farewell
from gossip.core.core import Core
from gossip.core.leaving import Leaving
from gossip.core.life import Life
from gossip.errors import InvariantError
from gossip.faults import parse_incident, parse_straggler
from gossip.membership import MembershipSettings, State
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm
from gossip.wire.messages import Address, News, Roll
from topologies.draws import below

#: Virtual seconds between two troubles: none, less than an interval, less than a detection, more than one.
GAPS = (0.0, 0.2, 1.6, 6.0)


def settled(troubles: Troubles, seed: int, **fields: object) -> Swarm:
    """Run to the end and return the swarm, whose books balance."""
    print(f"seed {seed}: {troubles}")
    swarm = Swarm(troubles.scenario(seed, **fields))
    until_calm(swarm, troubles.over)
    books, shards = swarm.accounts, swarm.scenario.shards
    assert books.weight + books.written_off == pytest.approx(shards * troubles.peers + books.minted)
    return swarm


def weights(swarm: Swarm) -> tuple[float, float, float]:
    """Return what there is, what was written off and what was minted, per shard."""
    books, shards = swarm.accounts, swarm.scenario.shards
    return books.weight / shards, books.written_off / shards, books.minted / shards


def happened(swarm: Swarm) -> list[str]:
    return [what for _, what in swarm._incidents.log]


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_any_two_troubles_at_any_distance(first: str, second: str, half: int) -> None:
    """Each pair in both orders; the victims, the algorithm, the shards and the weather are the seed's."""
    for place, gap in enumerate(GAPS):
        # Half of the distances in every run of the tests, alternating; the other half with the slow ones.
        if (KINDS.index(first) + KINDS.index(second) + place) % 2 != half:
            continue
        seed = (KINDS.index(first) * len(KINDS) + KINDS.index(second)) * len(GAPS) + place
        victim = below(5, 3, seed)
        troubles = Troubles(5)
        troubles.add(first, victim, 2.0)
        troubles.add(second, (victim + 1 + below(4, 4, seed)) % 5, 2.0 + gap)
        swarm = settled(troubles, seed)
        total, off, minted = weights(swarm)
        kinds = {first, second}
        if kinds == {"leave"}:
            assert (off, minted, total) == pytest.approx((0, 0, 5))
        if kinds <= {"join", "leave"}:
            assert off == pytest.approx(minted - len(troubles.joins)), (
                "a newcomer that had to ask twice is minted twice"
            )
            assert total == pytest.approx(5 + len(troubles.joins))
        if not kinds & {"death", "restart"}:
            assert len(happened(swarm)) == 2 + sum(kind in ("leave", "cut") for kind in (first, second)), "nobody died"


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_a_leaver_leaves_all_its_mass(seed: int) -> None:
    """Whoever it is, the first peer as well, out of 2 to 8."""
    troubles = Troubles(2 + seed % 7)
    leaver = seed % 3 % troubles.peers
    troubles.add("leave", leaver, 1.0 + 0.01 * seed)
    swarm = settled(troubles, seed)
    assert weights(swarm) == pytest.approx((troubles.peers, 0, 0))
    gone = swarm.processes[leaver].core
    assert sum(gone.mass.weights) + len(gone.outbox) + len(list(gone.inbox)) == 0


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_the_average_does_not_move_when_somebody_leaves(seed: int) -> None:
    """Not even if it leaves in the first steps, when its estimate is its own."""
    troubles = Troubles(4)
    troubles.add("leave", seed % 4, 0.3)
    swarm = Swarm(troubles.scenario(seed, steps=60))
    result = swarm.run()
    assert result.bias < 1e-6, f"seed {seed}"
    assert result.disagreement < 1e-6, f"seed {seed}"
    assert result.agreed


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_a_joiner_brings_a_weight_of_one(seed: int) -> None:
    troubles = Troubles(2 + seed % 7)
    troubles.add("join", 0, 1.0 + 0.05 * seed)
    swarm = settled(troubles, seed, loss=0.0, duplicate=0.0)
    assert weights(swarm) == pytest.approx((troubles.peers + 1, 0, 1))
    assert swarm.processes[troubles.peers].core.step > 0


@pytest.mark.parametrize("seed", some(range(6), 2))
@pytest.mark.parametrize("kind", ["death", "false-death", "cut", "restart"])
def test_the_first_peer_is_nobody_special(kind: str, seed: int) -> None:
    troubles = Troubles(3 + seed)
    troubles.add(kind, 0, 1.0 + 0.07 * seed)
    swarm = settled(troubles, seed)
    lives = {rank: process.core.me.incarnation for rank, process in swarm.processes.items() if process.alive}
    if kind in ("false-death", "restart"):
        assert lives.pop(0) > 0, "it was dead to the others, and says so by its new life"
        assert set(lives.values()) == {0}
    assert swarm.processes[0].alive == (kind != "death")


@pytest.mark.parametrize("after", [0.0, 0.01, 0.4])
@pytest.mark.parametrize("seed", range(4))
class TestInTheMiddle:
    """Something befalls one that takes part in a join or a leave which is not over."""

    def test_a_leaver_dies(self, seed: int, after: float) -> None:
        swarm = settled(self.two(seed, ("leave", 1), ("death", 1), after), seed)
        total, _, minted = weights(swarm)
        assert minted == 0
        if "left 1" in happened(swarm):
            assert total == pytest.approx(swarm.scenario.peers), "it was gone already"

    def test_a_leaver_stands_still(self, seed: int, after: float) -> None:
        swarm = settled(self.two(seed, ("leave", 0), ("false-death", 0), after), seed)
        assert "left 0" in happened(swarm)

    def test_a_leaver_is_cut_off(self, seed: int, after: float) -> None:
        swarm = settled(self.two(seed, ("leave", 0), ("cut", 0), after), seed)
        assert "left 0" in happened(swarm)

    def test_an_heir_dies(self, seed: int, after: float) -> None:
        troubles = self.two(seed, ("leave", 0), ("death", 1), after)
        swarm = settled(troubles, seed)
        assert "left 0" in happened(swarm)
        if troubles.peers == 2:
            assert weights(swarm)[:2] == pytest.approx((0, 2)), "nobody is left to inherit"

    def test_an_heir_stands_still(self, seed: int, after: float) -> None:
        swarm = settled(self.two(seed, ("leave", 0), ("false-death", 1), after), seed)
        assert "left 0" in happened(swarm)

    def test_a_donor_dies(self, seed: int, after: float) -> None:
        troubles = self.two(seed, ("join", 0), ("death", seed % self.peers(seed)), after)
        swarm = settled(troubles, seed)
        assert not swarm.processes[troubles.peers].adopts

    def test_a_joiner_dies(self, seed: int, after: float) -> None:
        swarm = settled(self.two(seed, ("join", 0), ("death", self.peers(seed)), after), seed)
        total, off, minted = weights(swarm)
        assert total == pytest.approx(swarm.scenario.peers + minted - off)

    def test_a_joiner_leaves_before_it_has_the_state(self, seed: int, after: float) -> None:
        """What it started with is nobody's estimate, and must not get into the average."""
        troubles = self.two(seed, ("join", 0), ("leave", self.peers(seed)), after)
        swarm = settled(troubles, seed)
        total = weights(swarm)[0]
        if swarm.processes[troubles.peers].adopts:
            assert total < troubles.peers + 1e-9
        else:
            assert total == pytest.approx(troubles.peers + 1), "it had the state, and so something to leave"

    def test_one_that_stands_still_is_to_leave(self, seed: int, after: float) -> None:
        swarm = settled(self.two(seed, ("false-death", 0), ("leave", 0), after), seed)
        assert "left 0" in happened(swarm)
        assert swarm._incidents.log[-1][0] > 2.0 + FALSE_DEATH

    def peers(self, seed: int) -> int:
        return 2 + seed

    def two(self, seed: int, first: tuple[str, int], second: tuple[str, int], after: float) -> Troubles:
        troubles = Troubles(self.peers(seed))
        troubles.add(*first, 2.0)
        troubles.add(*second, 2.0 + after)
        return troubles


@pytest.mark.parametrize("seed", some(range(5), 2))
@pytest.mark.parametrize("stay", [1, 0])
def test_all_but_one_and_all_leave_at_once(stay: int, seed: int) -> None:
    troubles = Troubles(2 + seed)
    for rank in range(stay, troubles.peers):
        troubles.add("leave", rank, 1.0)
    swarm = settled(troubles, seed)
    assert sum(what.startswith("left") for what in happened(swarm)) == troubles.peers - stay
    expected = (troubles.peers, 0, 0) if stay else (0, troubles.peers, 0)
    assert weights(swarm) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("contact", range(4))
@pytest.mark.parametrize("after", [0.0025, 0.0035])
def test_who_let_the_joiner_in_dies_before_anybody_else_knows(after: float, contact: int, seed: int) -> None:
    """Ask, welcome, digest and table take a millisecond each; whoever is asked first dies before or after the last."""
    troubles = Troubles(4)
    troubles.add("join", 0, 2.0)
    troubles.add("death", contact, 2.0 + after)
    swarm = settled(troubles, seed, loss=0.0, duplicate=0.0, delay=(0.001, 0.001))
    assert swarm.processes[4].core.step > 0


def test_a_cut_at_any_moment_ends_in_agreement() -> None:
    """Before, while and after parcels, their answers, a leave or a join are on their way; views differ meanwhile."""
    for seed in range(8):
        troubles = Troubles(4)
        troubles.add("leave", 3, 1.5)
        troubles.add("join", 0, 1.6)
        troubles.add("cut", seed % 3, 1.45 + 0.05 * seed)
        settled(troubles, seed, delay=(0.01, 0.06))


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd", "dpsgd"])
def test_after_a_heal_the_two_sides_agree_again(algorithm: str) -> None:
    """A cut from the first step on: the sides agree among themselves on different averages, until they meet."""
    troubles = Troubles(6)
    troubles.add("cut", 0, 0.01)
    topology = "base" if algorithm == "dpsgd" else "one-peer-exponential"
    swarm = Swarm(troubles.scenario(3, algorithm=algorithm, topology=topology, loss=0.05))
    apart = disagreement(swarm, FALSE_DEATH)
    assert apart > 0.1, "there was something to heal"
    until_calm(swarm, troubles.over)
    assert disagreement(swarm, swarm.now + 20 * STEP) < 0.02 * apart


def disagreement(swarm: Swarm, at: float) -> float:
    """Run up to a moment and return how far the peers are apart then."""
    while swarm.now < at:
        swarm.advance()
    return swarm._estimates()[0]


# What it costs


def test_what_membership_costs_a_peer_does_not_depend_on_how_many_there_are() -> None:
    cost = {n: rolls(n) for n in (8, 32, 128)}
    print(cost)
    messages, size = zip(*cost.values(), strict=True)
    assert max(messages) < 1.5 * min(messages)
    assert size[2] < 1.5 * size[0]


def rolls(n: int) -> tuple[float, float]:
    """Return the messages and bytes of membership that a peer sends in a second of calm."""
    settings = MembershipSettings(sync_interval=10.0)
    # Nobody finishes a step in this time: what is sent is membership, and nothing else.
    swarm = Swarm(
        Scenario(peers=n, steps=1, size=1, step_seconds=1000.0, watch=settings, algorithm="sgp"),
        check_every_event=False,
    )
    seconds = 8.0
    while swarm.now < seconds:
        swarm.advance()
    counts = swarm.network.counts
    return counts.messages / n / seconds, counts.bytes / n / seconds


def test_news_of_members_travel_with_the_data() -> None:
    """Membership itself spreads nothing, compares nothing and probes once: with nothing else a join stays unknown."""
    mute = replace(FAST, interval=300.0, spread_interval=1e6, sync_interval=1e6, revisit_interval=1e6)
    scenario = Scenario(
        peers=8, steps=2000, step_seconds=STEP, size=1, watch=mute, joins=(parse_incident("8@2s"),), algorithm="sgp"
    )
    assert not know_of_the_join(Swarm(scenario))
    swarm = Swarm(scenario)
    for rank in range(8):
        swarm.feed(rank, events.Publish(b"nothing that matters here"))
    assert know_of_the_join(swarm)


def know_of_the_join(swarm: Swarm) -> bool:
    """Whether the founders all know of the newcomer after a few steps, without a message from it."""
    carry = swarm.network.carry

    def silenced(now: float, sender: int, receiver: int, frames: object) -> object:
        message = swarm.processes[0].core.outlet.codec.decode(frames)  # type: ignore[arg-type]
        # The newcomer asks one member and compares tables with it; it has nothing to say to the others, and nobody
        # learns of it from a parcel.
        if isinstance(message, News) or (isinstance(message, Roll) and not {sender, receiver} - {8, contact(swarm)}):
            return carry(now, sender, receiver, frames)  # type: ignore[arg-type]
        return [] if 8 in (sender, receiver) else carry(now, sender, receiver, frames)  # type: ignore[arg-type]

    swarm.network.carry = silenced  # type: ignore[method-assign, assignment]
    while swarm.now < 2.0 + 8 * STEP:
        swarm.advance()
    return all(swarm.processes[rank].core.view.incarnation(8) == 0 for rank in range(8))


def contact(swarm: Swarm) -> int:
    """Return whom the newcomer asks first."""
    asked: int = swarm.processes[8].core.membership._admission._contacts[0].rank  # type: ignore[union-attr]
    return asked


def test_newcomers_whom_nobody_gives_a_state_do_not_hold_up_the_end() -> None:
    """The only one that has the state has finished when they ask for it, and they outnumber it."""
    joins = parse_incident("1@9.9s"), parse_incident("2@9.9s")
    swarm = Swarm(
        Scenario(
            peers=1,
            steps=10,
            step_seconds=1.0,
            jitter=0.0,
            algorithm="adpsgd",
            delay=(0.06, 0.07),
            watch=FAST,
            joins=joins,
        )
    )
    while swarm.advance():
        assert swarm.now < 200.0, "it never ends"
    assert [process.adopts for process in swarm.processes.values()] == [False, True, True]


# Slow is not dead


@pytest.mark.parametrize("seed", range(3))
def test_a_straggler_is_slow_and_never_suspect_and_nobody_waits_for_it(seed: int) -> None:
    scenario = Scenario(
        peers=4,
        steps=60,
        step_seconds=STEP,
        size=2,
        seed=seed,
        watch=FAST,
        stragglers=(parse_straggler("2=4x"),),
        algorithm="sgp",
    )
    swarm = Swarm(scenario)
    seen: list[events.MemberChanged] = []
    handle = Core.handle

    def listening(core: Core, event: events.Event, now: float) -> list[events.Effect]:
        effects = handle(core, event, now)
        seen.extend(effect for effect in effects if isinstance(effect, events.MemberChanged))
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Core, "handle", listening)
        result = swarm.run()
    states = {(change.record.rank, change.record.state) for change in seen}
    assert (2, State.SLOW) in states, f"seed {seed}"
    assert not [state for _, state in states if state >= State.SUSPECT], f"seed {seed}: {states}"
    assert result.agreed
    assert result.weight_written_off == 0
    # The others took no longer than they would have alone, but for what it took to find out.
    assert result.steps_per_peer["median"] == 60
    assert result.steps_per_peer["min"] < 30, "the straggler cannot have kept up"
    assert result.curve[-1][0] < 1.5 * 60 * STEP, f"seed {seed}: somebody waited"


# The checks can fail


def forget_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave before the others have heard what became of their parcels, which they then take back."""
    monkeypatch.setattr(farewell.Farewell, "settled", property(lambda _: True))


def drop_the_inheritance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave with all mass."""

    def drop(self: Leaving, _: object, shard: int, *__: object) -> None:
        self._state.mass.weights[shard] = 0.0

    monkeypatch.setattr(Leaving, "_bequeath", drop)


def live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not take a new life when the others hold this one for over."""
    monkeypatch.setattr(Life, "reincarnate", lambda *_: None)


def reuse_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every parcel to a neighbour the sequence of one that was answered."""
    honest = ledger.Verdicts.verdict
    monkeypatch.setattr(ledger.Verdicts, "verdict", lambda self, sequence: honest(self, sequence // 2 * 2))


def keep_the_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take up a new life in name only, with the mass of the former one."""

    def reincarnate(self: Life, incarnation: int, _: float) -> None:
        self._state.me = Address(self._state.me.rank, incarnation)
        self._state.view.admit(self._state.me)

    monkeypatch.setattr(Life, "reincarnate", reincarnate)


@pytest.mark.parametrize("sabotage", [forget_to_wait, drop_the_inheritance, live_on, reuse_sequences, keep_the_mass])
def test_the_checks_notice(sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    with pytest.raises((InvariantError, AssertionError)):
        leave_and_die_falsely()


def leave_and_die_falsely() -> None:
    for seed in range(4):
        calm = Troubles(4)
        calm.add("leave", 1, 2.0)
        assert weights(settled(calm, seed, loss=0.3)) == pytest.approx((4, 0, 0))
        calm.add("false-death", 2, 2.1)
        settled(calm, seed, loss=0.2, duplicate=0.1)


def test_the_checks_have_nothing_to_say_about_honest_code() -> None:
    leave_and_die_falsely()
