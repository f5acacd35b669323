"""Whether stock scripts of frameworks, with the diff of their guide only, train as well in a swarm with trouble.

    python -m benchmarks.frameworks [--quick] [--json] [--seeds 3] [--frameworks transformers lightning accelerate]

Four peers run an example by `gossip launch`: undisturbed, and with trouble: rank 3 takes four times as long for each
step, and rank 1 is killed after a quarter of its steps and does not come back. The figure is the loss on held-out data
of the model that all agreed on, as the script itself reports it.

Bar: on average the trouble costs no more than two standard errors of the difference of the two means. ``--quick`` is
one seed, and no bar. A run takes about 30 CPU seconds, most of them for importing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance

from benchmarks.bars import Bar, finish, parser_of, table

__all__ = ["main"]

N = 4
SEEDS = (30, 31, 32)
_ROOT = Path(__file__).parents[1]
_PATIENCE = 900.0
#: Small models are through in a second. Then one would compare which process gets the CPU.
_SLOW = ("--step-seconds", "0.03")


@dataclass(frozen=True)
class Job:
    """An example: its options, when rank 1 is killed, and how it reports the loss."""

    script: str
    options: tuple[str, ...]
    kill_at: int
    loss: str


JOBS = {
    "transformers": Job(
        "hf_trainer.py", ("--num_train_epochs", "2", "--output_dir", "OUTPUT"), 35, r"\beval_loss\s+=\s+([\d.]+)"
    ),
    "lightning": Job("lightning_module.py", ("--output", "OUTPUT", *_SLOW), 60, r"\bval_loss\D+([\d.]+)"),
    "accelerate": Job("accelerate_loop.py", _SLOW, 60, r"held out: loss ([\d.]+)"),
}


def main(arguments: list[str] | None = None) -> bool:
    """Print the figures and return whether the bars hold."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many (default: 3)")
    parser.add_argument("--frameworks", nargs="+", choices=list(JOBS), default=list(JOBS))
    asked = parser.parse_args(arguments)
    count = 1 if asked.quick else asked.seeds
    if count < 1:
        parser.error("--seeds is at least 1")
    seeds = range(SEEDS[0], SEEDS[0] + count)
    found: dict[str, dict[str, list[float]]] = {}
    rows, bars = [], []
    for name in asked.frameworks:
        runs: dict[str, list[float]] = {"undisturbed": [], "trouble": []}
        for seed in seeds:
            for kind, losses in runs.items():
                losses.append(_loss(JOBS[name], seed, trouble=kind == "trouble"))
                print(f"  {name}, {kind}, seed {seed}: loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
        found[name] = runs
        for kind, losses in runs.items():
            rows.append([f"{name}, {kind}", *(f"{loss:.4f}" for loss in losses), f"{fmean(losses):.4f}"])
        if count > 1:
            gap = fmean(runs["trouble"]) - fmean(runs["undisturbed"])
            error = (sum(variance(losses) for losses in runs.values()) / count) ** 0.5
            bars.append(Bar(f"{name}: loss that the trouble costs, in standard errors", gap / error, "<=", 2.0))
    text = f"frameworks: {N} peers, the loss on held-out data of the model that all agreed on\n"
    text += table(["", *(f"seed {seed}" for seed in seeds), "mean"], rows)
    return finish(text, {"runs": found}, bars, as_json=asked.json)


def _loss(job: Job, seed: int, *, trouble: bool) -> float:
    """Run an example and return the loss that it reports."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        command = [sys.executable, "-m", "launch.cli", "launch", "-n", str(N), "--quiet", "--run-dir", str(run)]
        command += ["--start-timeout", "300s", "--seed", str(seed)]
        if trouble:
            command += ["--straggler", "3=4x", "--fault", f"kill:1@{job.kill_at}"]
        options = [f"{directory}/output" if option == "OUTPUT" else option for option in job.options]
        command += [str(_ROOT / "examples" / job.script), "--seed", str(seed), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        log = run / "rank-0" / "log.txt"
        said = log.read_text() if log.exists() else ""
        losses = re.findall(job.loss, said)
        killed = "a kill is injected" in (run / "rank-1" / "events.jsonl").read_text()
        # The launcher fails because of the peer that was killed, and of nobody else.
        others = re.findall(r"rank [023] (?:failed|was ended)", done.stdout + done.stderr)
        if not losses or others or killed != trouble or (done.returncode != 0 and not trouble):
            raise SystemExit("\n".join([f"frameworks: {job.script} failed", done.stdout, done.stderr, said[-3000:]]))
        return float(losses[-1])


if __name__ == "__main__":
    raise SystemExit(not main())
