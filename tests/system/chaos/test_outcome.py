"""The figures of the matrix are able to fail: each kind of loss, in records made by hand, is seen for what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bars import Bar
from benchmarks.chaos.harness import Session, Swarm
from benchmarks.chaos.metronome import Metronome
from benchmarks.chaos.outcome import Outcome, bars, measured

START, FAULT = 1000.0, 1001.0
STEPS = 100


class Records:
    """What two peers would have written that each gave the other a quarter, and of which one may be dead."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.books: dict[int, list[list[Any]]] = {0: [], 1: []}
        self.left = {0: 1.0, 1: 1.0}
        self.unanswered = {0: 0.0, 1: 0.0}
        self.times = {rank: [START + 0.03 * step for step in range(1, STEPS + 1)] for rank in (0, 1)}
        self.steps = {rank: list(range(1, STEPS + 1)) for rank in (0, 1)}
        self.send(0, 1, 0, 0.25)
        self.send(1, 0, 0, 0.25)

    def send(self, origin: int, destination: int, sequence: int, weight: float) -> None:
        parcel = [[origin, 0], [destination, 0], sequence, 0, weight]
        self.books[destination].append(["Booked", *parcel])
        self.books[origin].append(["Released", *parcel])

    def write(self, *, dead: tuple[int, ...] = ()) -> None:
        for rank in (0, 1):
            directory = self.run_dir / f"rank-{rank}"
            directory.mkdir(parents=True)
            _write(directory / "lives.jsonl", [{"pid": 1 << 30, "rank": rank, "incarnation": 0, "time": START}])
            _write(directory / "books.jsonl", self.books[rank])
            rows = zip(self.times[rank], self.steps[rank], strict=True)
            _write(directory / "metrics.jsonl", [{"time": time, "step": step} for time, step in rows])
            if rank in dead:
                continue
            _write(directory / "events.jsonl", [{"event": "consensus", "disagreement": 5e-4}])
            (directory / "log.txt").write_text("9 steps: own model 97.0%, average of all 98.0% (apart by 5e-4)\n")
            (directory / "loss").write_text("0.09")
            weights = {"weight_left": self.left[rank], "weight_unanswered": self.unanswered[rank]}
            (directory / "summary.json").write_text(json.dumps({"rank": rank, "incarnation": 0, **weights}))


def _write(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "run")


class Still(Metronome):
    """Does not beat: that this process was held up says nothing about records that were made by hand."""

    def _run(self) -> None:
        pass


@pytest.fixture
def metronome() -> Iterator[Metronome]:
    one = Still()
    yield one
    one.close()


@pytest.fixture
def read(records: Records, metronome: Metronome) -> Any:
    def outcome(*survivors: int) -> Outcome:
        swarm = Swarm(Session.__new__(Session), records.run_dir)
        swarm.metronome, swarm.fault_at = metronome, FAULT
        return measured(swarm, survivors)

    return outcome


def failed(outcome: Outcome, undisturbed: float = 0.09) -> list[str]:
    held: list[Bar] = bars(outcome, Outcome(loss=undisturbed))
    return [bar.name for bar in held if not bar.holds]


def test_a_swarm_to_which_nothing_happened_holds_all_bars(records: Records, read: Any) -> None:
    records.write()
    outcome = read(0, 1)
    assert outcome.mass_error == 0
    assert outcome.step_seconds == pytest.approx(0.03)
    assert outcome.pause_steps == pytest.approx(1.0)
    assert failed(outcome) == []


def test_what_died_is_accounted_for_by_the_books_of_the_living(records: Records, read: Any) -> None:
    records.send(0, 1, 1, 0.4)
    records.left[0] = 0.6
    records.write(dead=(1,))
    outcome = read(0)
    assert outcome.mass_error < 1e-12
    assert outcome.written_off == pytest.approx(1.4)
    assert failed(outcome) == []


def test_a_parcel_that_is_booked_and_taken_back_is_an_error(records: Records, read: Any) -> None:
    parcel = [[0, 0], [1, 0], 1, 0, 0.3]
    records.books[1].append(["Booked", *parcel])
    records.books[0].append(["TakenBack", *parcel])
    records.left[1] = 1.3
    records.write()
    assert read(0, 1).mass_error == pytest.approx(0.3)


def test_a_parcel_that_is_booked_twice_is_an_error(records: Records, read: Any) -> None:
    records.books[1].append(records.books[1][0])
    records.write()
    assert failed(read(0, 1)) == ["mass error"]


def test_an_answer_that_was_lost_at_the_end_is_none(records: Records, read: Any) -> None:
    records.books[1].append(["Booked", [0, 0], [1, 0], 1, 0, 0.3])
    records.left, records.unanswered[0] = {0: 0.7, 1: 1.3}, 0.3
    records.write()
    assert read(0, 1).mass_error < 1e-12


def test_mass_that_vanishes_is_an_error(records: Records, read: Any) -> None:
    records.left[0] = 0.9
    records.write()
    assert failed(read(0, 1)) == ["mass error"]


def test_steps_that_are_missing_or_done_twice_are_lost(records: Records, read: Any) -> None:
    records.steps[0][50:] = [step - 1 for step in records.steps[0][50:]]
    records.steps[1][60:] = [step + 1 for step in records.steps[1][60:]]
    records.write()
    assert read(0, 1).lost == 2
    assert failed(read(0, 1)) == ["steps lost"]


def test_a_pause_counts_from_the_fault_on(records: Records, read: Any) -> None:
    records.times[0][:10] = [time - 5.0 for time in records.times[0][:10]]
    records.times[1][80:] = [time + 1.5 for time in records.times[1][80:]]
    records.write()
    outcome = read(0, 1)
    assert outcome.pause_seconds == pytest.approx(1.53)
    assert failed(outcome) == ["longest pause"]


def test_the_loss_is_held_against_the_undisturbed_swarm(records: Records, read: Any) -> None:
    records.write()
    assert failed(read(0, 1), undisturbed=0.08) == []
    assert failed(read(0, 1), undisturbed=0.07) == ["loss"]


def test_a_test_image_more_or_less_is_no_loss(records: Records, read: Any) -> None:
    records.write()
    for directory in records.run_dir.iterdir():
        (directory / "log.txt").write_text("9 steps: own model 97.0%, average of all 91.0% (apart by 5e-4)\n")
    assert failed(read(0, 1), undisturbed=0.09) == []


def test_a_survivor_that_never_came_to_the_end_has_no_loss_that_holds(records: Records, read: Any) -> None:
    records.write()
    (records.run_dir / "rank-1" / "loss").unlink()
    assert failed(read(0, 1), undisturbed=0.09) == ["loss"]
