"""Runs of eight processes, or of others, that train the small network on Fashion-MNIST; what is done is kept.

A network of 105,866 parameters, SGD with Nesterov's momentum of 0.9, batches of 32 samples per process, a short
warm-up, then half a cosine down to 0. The same part of the data, start and rates for gloo's all-reduce by torch's
DistributedDataParallel and for each method of ours.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.fashion_data import small_network
from benchmarks.processes import Answer
from benchmarks.swarms import Swarm

__all__ = ["BATCH", "STEPS", "N", "Run", "carried_out", "ring_bytes", "sent"]

N = 8
BATCH = 32
#: 6 epochs.
STEPS = 1350


@dataclass(frozen=True)
class Run:
    """One training."""

    #: ``ddp``, or an algorithm of ours.
    algorithm: str
    seed: int
    rate: float
    steps: int = STEPS
    #: Arguments of `peers.join`, beside the algorithm.
    setup: dict[str, Any] = field(default_factory=dict)
    #: The number of processes.
    peers: int = N

    @property
    def key(self) -> str:
        """All that defines it."""
        text = f"{self.algorithm} {json.dumps(self.setup)} seed={self.seed} rate={self.rate:g} steps={self.steps}"
        return text if self.peers == N else f"{text} peers={self.peers}"


def carried_out(runs: Iterable[Run], name: str, *, more: bool = False) -> list[Answer]:
    """Return what rank 0 says of each run.

    Args:
        runs: what to carry out.
        name: that of the benchmark, which the file has in which they are kept until all are done.
        more: whether there will be more runs, so that these are still kept.
    """
    kept = Path(tempfile.gettempdir()) / f"gossip-benchmark-{name}.json"
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    asked = list(runs)
    todo = [run for run in asked if run.key not in done]
    for peers in dict.fromkeys(run.peers for run in todo):
        with Swarm(peers, patience=3600.0) as swarm:
            for run in (one for one in todo if one.peers == peers):
                told = {"seed": run.seed, **run.setup}
                task = {"seed": run.seed, "steps": run.steps, "batch": BATCH, "lr": run.rate, "warmup": 1}
                found = _summary(swarm.run("fashion", run.algorithm, told, **task))
                done[run.key] = found
                kept.write_text(json.dumps(done))
                said = f"{found['accuracy']:.2f}% after {found['seconds']:.0f} s, moved {found['moved']:.2f}"
                print(f"  {run.key}: {said}, {sent([found], peers) / 1e3:.1f} kB/step", file=sys.stderr, flush=True)
    if not more:
        wanted = {run.key for run in asked}
        left = {key: value for key, value in done.items() if key not in wanted}
        if left:
            kept.write_text(json.dumps(left))
        else:
            kept.unlink(missing_ok=True)
    return [done[run.key] for run in asked]


def ring_bytes(peers: int = N) -> float:
    """Return what all-reduce over a ring sends per peer and step: all but one part of n, twice."""
    return 2 * (peers - 1) / peers * 4 * sum(one.numel() for one in small_network().parameters())


def sent(answers: Iterable[Answer], peers: int = N) -> float:
    """Return bytes per peer and step."""
    return fmean(answer.get("bytes_sent", ring_bytes(peers)) for answer in answers)


def _summary(answers: list[Answer]) -> Answer:
    """Return what rank 0 says, and the means over all of what each says for itself."""
    summary = {**answers[0], "moved": fmean(answer["moved"] for answer in answers)}
    if "bytes_sent" in answers[0]:
        summary["bytes_sent"] = fmean(answer["bytes_sent"] for answer in answers)
    return summary
