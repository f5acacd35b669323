"""The parts of the study: rules, data, network, cache, tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from study_cases import outcome, small, trained

from benchmarks.study import __main__ as command
from benchmarks.study import cache as caching
from benchmarks.study.cache import Cache
from benchmarks.study.cards import Cards
from benchmarks.study.document import Missing, insert
from benchmarks.study.graphs import forecast
from benchmarks.study.learner import OPTIMIZERS, SCHEDULES
from benchmarks.study.plan import FULL, METHODS, QUICK, Budget, Trials
from benchmarks.study.rates import Rates, trials
from benchmarks.study.rules import FactorMoves
from benchmarks.study.run import Outcome, Run
from benchmarks.study.section import Report
from benchmarks.study.swarm import TrainingSwarm
from benchmarks.study.tables import accuracy, difference, statistic
from benchmarks.study.tasks import TASKS, batches, clouds, deal
from benchmarks.study.timing import until
from gossip.faults.weather import Weather

# Rules


def test_the_textbook_rule_moves_x_by_the_optimizers_move() -> None:
    z, w = torch.tensor([1.0, 2.0], dtype=torch.float64), 0.25
    x, u = w * z.clone(), torch.tensor([0.5, -1.0], dtype=torch.float64)
    moves = FactorMoves(1, lambda _: z, lambda _: 1 / w)
    moves.begin()
    z += u
    moves.end()
    torch.testing.assert_close(w * z, x + u)


def test_rules_only_differ_where_w_does() -> None:
    steady = {rule: trained(small("sgp", rounds=8, rule=rule))[1].accuracy for rule in ("textbook", "z-step", "capped")}
    assert len(set(steady.values())) == 1
    uneven = [
        trained(small("gossip-push", "epidemic", rounds=8, rule=rule))[1].disagreement
        for rule in ("textbook", "z-step")
    ]
    assert uneven[0] != uneven[1]


# Data


@pytest.mark.parametrize("dirichlet", [0.0, 0.5])
def test_every_sample_is_dealt_to_one_peer(dirichlet: float) -> None:
    labels = clouds().kinds
    dealt = deal(labels, 3, dirichlet, 5)
    assert sorted(torch.cat(dealt).tolist()) == list(range(len(labels)))
    largest = [np.bincount(labels[one], minlength=10).max() / len(one) for one in dealt]
    assert (max(largest) > 0.2) == (dirichlet > 0)


def test_a_peer_goes_through_its_samples_before_it_sees_one_again() -> None:
    task = clouds()
    mine = torch.arange(40)
    data = batches(task, mine, 10, 0, 0)
    seen = torch.cat([next(data)[0] for _ in range(4)])
    assert len(torch.unique(seen, dim=0)) == 40


# The network


def test_a_card_sends_and_receives_one_message_at_a_time() -> None:
    frames = [b"x" * (1000 - 49)]  # with the overhead of a message a thousand bytes
    cards = Cards(Weather(bandwidth=1000.0, delay=(0.5, 0.5)))
    arrivals = {pair: cards.carry(0.0, *pair, frames)[0][0] for pair in [(0, 1), (0, 2), (3, 2), (4, 5)]}
    assert arrivals == {(0, 1): 1.5, (0, 2): 2.5, (3, 2): 3.5, (4, 5): 1.5}


def test_a_lost_message_holds_the_senders_card_all_the_same() -> None:
    cards = Cards(Weather(bandwidth=1000.0, loss=0.999999))
    assert cards.carry(0.0, 0, 1, [b"x" * 951]) == []
    assert cards._sent[0] == 1.0
    assert cards._received[1] == 0.0


# The cache


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Run] = []

    def pretend(run: Run) -> Outcome:
        if len(done) == 2 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        done.append(run)
        return outcome(80.0 + run.seed)

    interrupted: list[bool] = []
    monkeypatch.setattr(caching, "carry_out", pretend)
    runs = [small("sgp", seed=seed) for seed in range(4)]
    path = tmp_path / "cache.jsonl"
    with pytest.raises(KeyboardInterrupt):
        Cache(path).fill(runs, 1, "test")
    assert [run.seed for run in done] == [0, 1]
    with path.open("a") as file:
        file.write('{"run": "cut sho')
    path.write_text(path.read_text() + "\n")
    again = Cache(path)
    again.fill([*runs, runs[0]], 1, "test")
    assert [run.seed for run in done] == [0, 1, 2, 3]
    found = Cache(path).results(runs)
    assert {run.seed: one.accuracy for run, one in found.items()} == {0: 80.0, 1: 81.0, 2: 82.0, 3: 83.0}
    assert found[runs[0]] == outcome(80.0)


def test_all_that_defines_a_run_is_in_its_key() -> None:
    run = small("sgp")
    changed = [run.but(rule="z-step"), run.but(loss=0.1), run.but(batch=11), run.but(delay=(0.0, 1.0))]
    assert len({one.key for one in [run, *changed]}) == 5
    assert json.loads(run.key)["version"] >= 1


# Tables


def test_a_table_says_how_many_diverged() -> None:
    assert accuracy([outcome(80.0), outcome(82.0)]) == "81.00 ± 1.41"
    assert accuracy([outcome(80.0), outcome(10.0, diverged=True)]) == "**diverged 1/2**"
    assert statistic([], lambda one: one.accuracy) == "-"


def test_a_table_says_how_many_never_got_there() -> None:
    never = outcome(79.0)
    for outcomes, text in (
        ([outcome(), outcome()], "1.50 ± 0.00"),
        ([outcome(), never], "1.50 (1/2)"),
        ([outcome(), outcome(), never], "1.50 ± 0.00 (2/3)"),
        ([never, never], "inf"),
    ):
        assert statistic(outcomes, lambda one: until(one, 70.0) if one.accuracy > 80 else float("inf")) == text


# Rates

SMALL = replace(FULL, samples=4800, count=2)


def templates(budget: Budget) -> list[Run]:
    return [one for section in command.SECTIONS.values() for one in section.templates(budget)]


def test_the_best_rate_is_that_of_the_mean_and_none_that_diverges() -> None:
    budget = replace(SMALL, trials={"sgd": Trials((0.1, 0.3, 0.9), (300, 301))})
    template = METHODS["parameter-server"].run(4, budget)
    percents = {0.1: (80.0, 84.0), 0.3: (83.0, 82.0), 0.9: (99.0, 99.0)}
    found = {
        run: outcome(percents[4 * run.rate][run.seed - 300], diverged=4 * run.rate == 0.9 and run.seed == 301)
        for run in trials(template, budget)
    }
    rates = Rates(budget, found)
    assert rates.best(template) == 0.3
    assert [(run.rate, run.seed) for run in rates.runs(template)] == [(0.3 / 4, seed) for seed in budget.seeds]
    lacking = dict(list(found.items())[1:])
    assert Rates(budget, lacking).best(template) is None


def test_the_rate_of_a_text_is_chosen_by_its_loss() -> None:
    template = METHODS["sgp"].run(4, SMALL).but(optimizer="adamw")
    found = {run: outcome(validation_loss=run.rate, accuracy=1e3 * run.rate) for run in trials(template, SMALL)}
    assert Rates(SMALL, found).best(template) == min(SMALL.trials["adamw"].rates)


def test_a_rate_that_is_carried_over_is_the_other_methods() -> None:
    mine, other = METHODS["sgp"].run(4, SMALL), METHODS["allreduce"].run(4, SMALL)
    low, *_, high = SMALL.trials["sgd"].rates
    found = {run: outcome(80.0 + run.rate) for run in trials(other, SMALL)}
    found |= {run: outcome(80.0 - run.rate) for run in trials(mine, SMALL)}
    rates = Rates(SMALL, found)
    assert {run.rate for run in rates.runs(mine)} == {low}
    assert {(run.algorithm, run.rate) for run in rates.runs(mine, other)} == {("sgp", high)}


def test_nothing_is_chosen_by_a_seed_that_is_reported() -> None:
    for budget in (FULL, QUICK, replace(FULL, count=100)):
        assert not {seed for of in budget.trials.values() for seed in of.seeds} & set(budget.seeds)
    tried = {run.seed for one in templates(FULL) for run in trials(one, FULL)}
    assert tried == {seed for of in FULL.trials.values() for seed in of.seeds}


def test_every_method_goes_with_its_codec() -> None:
    cells = [cell.template for section in command.SECTIONS.values() for cell in section.cells(FULL)]
    small = {
        one.but(task="clouds", seed=0, peers=4, rate=0.1, samples=64, dirichlet=0.0, kills="", restarts="")
        for one in cells
    }
    for run in {replace(one, straggler="", loss=0.0, megabits=0.0, delay=(0.0, 0.0), rule="capped") for one in small}:
        assert TrainingSwarm(run).task.chance == 15.0, run


def test_every_method_has_as_many_trials_and_ends_where_its_rate_is_low() -> None:
    for one in templates(FULL):
        of = FULL.trials[one.optimizer]
        assert len(trials(one, FULL)) == len(of.rates) * len(of.seeds)
    for section in command.SECTIONS.values():
        for cell in section.cells(FULL):
            assert SCHEDULES[cell.template.schedule](1.0) <= 0.1


def test_methods_are_compared_seed_by_seed() -> None:
    baseline = [outcome(80.0), outcome(84.0)]
    assert difference([outcome(79.0), outcome(83.0)], baseline) == "-1.00 ± 0.00"
    assert difference([outcome(82.0), outcome(84.0)], baseline) == "+1.00 ± 1.41"
    assert difference([outcome(82.0)], baseline[:1]) == "+2.00"
    assert difference([outcome(82.0)], baseline) == "-"


def report(name: str, budget: Budget, run_all: bool, figures: Path | None, **measured: float) -> Report:
    """Return the report of a section of which everything was run, or nothing."""
    section = command.SECTIONS[name]
    tried = [run for one in section.templates(budget) for run in trials(one, budget)]
    rates = Rates(budget, {run: outcome(**measured) for run in tried} if run_all else {})
    return Report(name, rates, {run: outcome(**measured) for run in section.runs(rates)} if run_all else {}, figures)


def test_a_figure_names_its_command_and_its_noise(tmp_path: Path) -> None:
    for count, noise in ((2, "means of 2 seeds; bars: standard deviations."), (1, "1 seed.")):
        budget = replace(SMALL, count=count)
        text = command.SECTIONS["topologies"].render(report("topologies", budget, True, tmp_path, disagreement=0.01))
        assert text.endswith(f"`python -m benchmarks.study topologies {budget.said}`: {noise}")


def test_the_time_to_an_accuracy_is_read_off_the_curve() -> None:
    assert until(outcome(), 70.0) == 1.5
    assert until(outcome(79.0), 80.0) == float("inf")
    dips = outcome(curve=[(1, 1.0, 75.0), (2, 2.0, 70.0), (3, 3.0, 80.0)])
    assert until(dips, 75.0) == 2.5  # it has to stay there


def test_what_averages_exactly_leaves_the_noise_of_the_moves_since() -> None:
    lengths = np.array([1.9, *(0.9 ** (k + 1) for k in range(1, 40))])
    assert forecast("complete", 8, 40) == pytest.approx(0.1 * np.sqrt((lengths**2).sum() * 7 / 8))
    assert forecast("ring", 16, 200) > 2 * forecast("one-peer-exponential", 16, 200)


@pytest.mark.parametrize("name", command.SECTIONS)
def test_every_section_renders_what_was_run_and_what_was_not(name: str, tmp_path: Path) -> None:
    for budget, run_all in ((SMALL, True), (QUICK, False)):
        found = report(name, budget, run_all, tmp_path if run_all else None)
        text = command.SECTIONS[name].render(found)
        assert f"`python -m benchmarks.study {name} {budget.said}`" in text
        assert "nan" not in text
        assert ("82.00" in text or "0.500 ± 0.000" in text) == run_all
    assert all(picture.read_text().startswith("<?xml") for picture in tmp_path.iterdir())


def test_the_document_keeps_what_is_written_by_hand(tmp_path: Path) -> None:
    document = tmp_path / "study.md"
    document.write_text("By hand.\n<!-- study updates -->\nold\n<!-- /study updates -->\nThe end.\n")
    command.main(["updates", "--no-runs", "--document", str(document), "--cache", str(tmp_path / "none")])
    text = document.read_text()
    assert text.startswith("By hand.\n<!-- study updates -->\n\nAccuracy")
    assert text.endswith("<!-- /study updates -->\nThe end.\n")
    assert "old" not in text
    with pytest.raises(Missing, match="study scale"):
        insert(text, "scale", "new")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["sclae"], "there is no section sclae"),
        (["--quick", "--seeds", "2"], "--quick has its own"),
        (["--jobs", "0"], "at least 1"),
        (["--peers", "1"], "at least 2"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert wrong in capsys.readouterr().err


def test_muon_moves_the_matrices_of_the_blocks_and_adamw_the_rest() -> None:
    run = Run("sgp", "ring", 2, 0.01, 0, 8, task="characters-tiny", batch=2, optimizer="muon")
    model = TASKS[run.task]().model(0)
    made = OPTIMIZERS[run.optimizer](model, run)
    groups = {id(one): "betas" in group for group in made.param_groups for one in group["params"]}
    assert {name: groups[id(one)] for name, one in model.named_parameters()} == {
        name: not (name.startswith("blocks.") and one.dim() == 2) for name, one in model.named_parameters()
    }
    before = [one.detach().clone() for one in model.parameters()]
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    for rate, moves in ((0.0, False), (0.01, True)):
        for group in made.param_groups:
            group["lr"] = rate
        made.step()
        moved = [not torch.equal(one, old) for one, old in zip(model.parameters(), before, strict=True)]
        assert moved == [moves] * len(moved)
