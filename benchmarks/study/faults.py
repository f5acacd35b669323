"""Lost messages, unequal data, and machines that come and go."""

from __future__ import annotations

from benchmarks.study.plan import ALGORITHMS, BASELINE, RATES, Budget
from benchmarks.study.run import Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, difference, mean, number, table

__all__ = ["LOSSES", "UNEQUAL", "churn", "loss", "runs", "unequal"]

PEERS = 16
LOSSES = (0.0, 0.01, 0.1)
DIRICHLET = 0.1
#: Algorithms for unequal data; a colon and what becomes of the momentum, where that is not the optimizer's own affair.
UNEQUAL = (
    *ALGORITHMS,
    *(
        f"{name}:momentum={momentum}"
        for name in ("sgp", "dpsgd", "osgp", "adpsgd")
        for momentum in ("mixed", "quasi-global")
    ),
)
#: Peers that die and when, and when they come back, in shares of the run.
_DEATHS = ((1, 0.2, 0.4), (5, 0.3, 0.5), (9, 0.4, 0.6), (13, 0.5, 0.7))


def loss(algorithm: str, share: float, seed: int, budget: Budget) -> Run:
    """Return a run in which messages are lost."""
    return ALGORITHMS[algorithm].run(PEERS, RATES[0], seed, budget.samples).but(loss=share)


def unequal(name: str, dirichlet: float, seed: int, budget: Budget) -> Run:
    """Return a run with data that is dealt out unequally, or not."""
    algorithm, _, momentum = name.partition(":")
    base = ALGORITHMS[algorithm].run(PEERS, RATES[0], seed, budget.samples)
    return base.but(dirichlet=dirichlet, **({"algorithm": f"{base.algorithm}:{momentum}"} if momentum else {}))


def churn(algorithm: str, seed: int, budget: Budget) -> Run:
    """Return a run in which a quarter of the peers dies, one after the other, and each comes back later."""
    base = ALGORITHMS[algorithm].run(PEERS, RATES[0], seed, budget.samples)
    nominal = base.step_seconds * budget.samples / base.batch / PEERS
    kills = ",".join(f"{rank}@{begin * nominal:.1f}s" for rank, begin, _ in _DEATHS)
    restarts = ",".join(f"{rank}@{end * nominal:.1f}s" for rank, _, end in _DEATHS)
    return base.but(kills=kills, restarts=restarts)


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    found = []
    for seed in range(budget.seeds):
        found += [
            loss(name, share, seed, budget)
            for name in ALGORITHMS
            for share in (LOSSES[::2] if budget.quick else LOSSES)
        ]
        found += [unequal(name, DIRICHLET, seed, budget) for name in UNEQUAL]
        found += [churn(name, seed, budget) for name in ALGORITHMS]
    return found


def _losses(report: Report) -> str:
    budget = report.budget
    shares = LOSSES[::2] if budget.quick else LOSSES
    rows = []
    for name in ALGORITHMS:
        found = [report.of(loss(name, share, seed, budget) for seed in report.seeds) for share in shares]
        clean, worst = (mean(at, lambda one: one.virtual_seconds) for at in (found[0], found[-1]))
        rows.append([name, *map(accuracy, found), number(worst / clean)])
    head = ["algorithm", *(f"{share:.0%} lost" for share in shares), "time, 10% : 0%"]
    caption = report.caption(f"Accuracy in % where messages are lost, {PEERS} peers.")
    return f"{caption}\n\n{table(head, rows)}"


def _unequal(report: Report) -> str:
    budget = report.budget
    found = {name: report.of(unequal(name, DIRICHLET, seed, budget) for seed in report.seeds) for name in UNEQUAL}
    rows = []
    for name, uneven in found.items():
        even = report.of(unequal(name, 0.0, seed, budget) for seed in report.seeds)
        plain, _, option = name.partition(":")
        gain = difference(uneven, found[plain]) if option else "-"
        size = number(mean(uneven, lambda one: one.bytes) / (budget.samples / 16) / 1e3, 0)
        rows.append([name, accuracy(even), accuracy(uneven), difference(uneven, found[BASELINE]), gain, size])
    caption = report.caption(
        f"Accuracy in % with data dealt out by Dirichlet({DIRICHLET:g}), {PEERS} peers; its difference to "
        f"{BASELINE}'s, and what an option gains, both with the same seed, which deals out the same data."
    )
    head = ["algorithm", "even data", "unequal data", f"to {BASELINE}", "gain", "kB per peer and step"]
    return f"{caption}\n\n{table(head, rows)}"


def _churn(report: Report) -> str:
    budget = report.budget
    rows = []
    for name in ALGORITHMS:
        calm = report.of(loss(name, 0.0, seed, budget) for seed in report.seeds)
        wild = report.of(churn(name, seed, budget) for seed in report.seeds)
        ratio = mean(wild, lambda one: one.virtual_seconds) / mean(calm, lambda one: one.virtual_seconds)
        rows.append([name, accuracy(calm), accuracy(wild), number(ratio)])
    caption = report.caption(
        f"Accuracy in % where 4 of {PEERS} peers are killed, one by one, and come back a fifth of the run later."
    )
    return f"{caption}\n\n{table(['algorithm', 'nobody dies', '4 die and come back', 'time, relative'], rows)}"


def render(report: Report) -> str:
    """Return the three tables."""
    parts = [
        "### Lost messages",
        _losses(report),
        "### Unequal data",
        _unequal(report),
        "### Machines that come and go",
        _churn(report),
    ]
    return "\n\n".join(parts)


SECTION = Section("faults", runs, render)
