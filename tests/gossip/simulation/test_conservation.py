"""Promise 1: mass is conserved whatever happens, and the check of it can fail.

`simulate` checks after every event; so a run that ends has conserved mass all the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from repeats import some
from weather import storm

from gossip.books import ledger
from gossip.core import core as core_module
from gossip.core.life import Life
from gossip.errors import InvariantError
from gossip.exchange.traffic import Traffic
from gossip.faults import parse_incident, parse_pause
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate
from gossip.simulation.swarm import Swarm
from gossip.wire.messages import Address


@pytest.mark.parametrize("block", some(range(25), 4))
def test_mass_is_conserved_in_every_storm(block: int) -> None:
    for seed in range(4 * block, 4 * block + 4):
        scenario = storm(seed)
        swarm = Swarm(scenario)
        result = swarm.run()
        living = [process.core for process in swarm.processes.values() if process.alive]
        views = {tuple(core.view.members.items()) for core in living}
        assert len(views) == 1, f"seed {seed}: views differ for good: {views}"
        assert result.mass_error < 1e-9, f"seed {seed}"
        assert result.weight_contested == 0, f"seed {seed}: mass is held twice after everybody met"
        assert result.disagreement < 1, f"seed {seed}: {scenario}"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(25))
def test_mass_is_conserved_in_many_more_storms(block: int) -> None:
    for seed in range(1000 + 4 * block, 1004 + 4 * block):
        assert simulate(storm(seed)).mass_error < 1e-9, f"seed {seed}"


def test_nothing_is_biased_by_loss() -> None:
    for seed in range(2):
        result = simulate(
            Scenario(peers=16, steps=500, topology="one-peer-exponential", loss=0.3, seed=seed, algorithm="sgp")
        )
        assert result.bias < 1e-6
        assert result.disagreement < 1e-6
        assert result.weight_total == pytest.approx(16, abs=1e-9)


def forget_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop every parcel once it is sent, as if the network were reliable."""
    honest = ledger.Outbox.add

    def add(self: ledger.Outbox, *args: object) -> None:
        honest(self, *args)  # type: ignore[arg-type]
        self.remove(args[0].destination, args[0].sequence)  # type: ignore[attr-defined]

    monkeypatch.setattr(ledger.Outbox, "add", add)


def book_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every copy of a parcel for a new one."""
    monkeypatch.setattr(ledger.Verdicts, "verdict", lambda *_: None)


def change_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledge a refused parcel when it comes again."""
    honest = ledger.Verdicts.verdict
    monkeypatch.setattr(
        ledger.Verdicts, "verdict", lambda self, sequence: None if honest(self, sequence) is None else True
    )


def take_back_and_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose what comes back from the dead."""
    monkeypatch.setattr(Traffic, "take_back", lambda *_: None)


def keep_mass_when_reborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Come back from a false death with all one held, which the others have taken back in part."""

    def reincarnate(self: Life, incarnation: int, _: float) -> None:
        self._state.me = Address(self._state.me.rank, incarnation)
        self._state.view.admit(self._state.me)

    monkeypatch.setattr(Life, "reincarnate", reincarnate)


def forget_old_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a copy that comes late, long after its parcel was acknowledged, for a new parcel."""
    honest = ledger.Verdicts.verdict
    monkeypatch.setattr(
        ledger.Verdicts,
        "verdict",
        lambda self, sequence: None if sequence < self._floor else honest(self, sequence),
    )


def come_back_heavier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a new life with more than a weight of 1."""
    honest = Life.reincarnate

    def reincarnate(self: Life, incarnation: int, now: float) -> None:
        honest(self, incarnation, now)
        self._state.mass.weights = [2.0] * len(self._state.mass.weights)

    monkeypatch.setattr(Life, "reincarnate", reincarnate)


def ignore_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge by halves whatever the weights."""
    honest = core_module.Mass.merge
    monkeypatch.setattr(
        core_module.Mass, "merge", lambda self, shard, values, _: honest(self, shard, values, self.weights[shard])
    )


@pytest.mark.parametrize(
    "sabotage",
    [
        forget_what_was_sent,
        book_duplicates,
        change_the_verdict,
        take_back_and_forget,
        keep_mass_when_reborn,
        forget_old_verdicts,
        come_back_heavier,
        ignore_the_weight,
    ],
)
def test_the_check_notices(sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(
        peers=8,
        steps=60,
        topology="epidemic:s=2",
        algorithm="osgp",
        loss=0.2,
        duplicate=0.2,
        delay=(0.005, 0.2),
        kills=(parse_incident("3@20"),),
        pauses=(parse_pause("5@20+2s"),),
        settings=Settings(weight_cap=1.5),  # so that parcels are refused, too
        seed=5,
    )
    assert simulate(scenario).mass_error < 1e-9
    sabotage(monkeypatch)
    with pytest.raises(InvariantError, match="seed 5"):
        simulate(scenario)


def test_an_invariant_error_carries_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    book_duplicates(monkeypatch)
    with pytest.raises(InvariantError, match=r"was booked twice(.|\n)*recent history(.|\n)*Received"):
        simulate(Scenario(peers=4, steps=40, duplicate=0.5, topology="complete", algorithm="sgp"))


def test_one_seed_run_twice_gives_the_identical_trace() -> None:
    for seed in range(3):
        once, again = simulate(storm(seed)), simulate(storm(seed), check_every_event=False)
        assert replace(once, wall_seconds=0) == replace(again, wall_seconds=0)
        assert once.trace != simulate(replace(storm(seed), seed=seed + 1000)).trace


def test_the_trace_tells_every_event_apart() -> None:
    calm = Scenario(peers=4, steps=20, algorithm="sgp")
    assert simulate(calm).trace != simulate(replace(calm, delay=(0.001, 0.0020001))).trace
