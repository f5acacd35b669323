"""A swarm that trains in virtual time: the simulator's cores, network and faults, and a trainer for every peer.

What takes virtual time is the scenario's step and the messages' way; the gradient of a step is computed when the step
is over, which is the same as at its start, since nothing touches the values in between.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.study.books import WeightBooks
from benchmarks.study.cards import Cards
from benchmarks.study.learner import Learner
from benchmarks.study.outer_trainer import OuterAverager
from benchmarks.study.run import Outcome, Run
from benchmarks.study.tasks import CURVE_SAMPLES, TASKS, batches, deal
from benchmarks.study.trainers import Averager, Gossiper, Server, Trainer
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.events import Effect
from gossip.faults import parse_incident, parse_straggler
from gossip.settings import Settings
from gossip.simulation import Scenario
from gossip.simulation.swarm import Process, Swarm
from gossip.values.blocks import Values
from gossip.values.layout import SHARD_BYTES
from gossip.view.view import Roster
from gossip.wire.messages import Address
from peers.methods.choosing import fit, suited
from peers.methods.outer_average import OuterAverage

__all__ = ["TrainingSwarm", "carry_out"]

#: More steps than any run has: it ends by its samples.
_ENDLESS = 10**9
#: Points of a curve.
POINTS = 12


class TrainingSwarm(Swarm):
    """A run in progress."""

    trains = True

    def __init__(self, run: Run) -> None:
        self.task = TASKS[run.task]()
        self._defined = run
        self._trainers: dict[int, Trainer] = {}
        self._dealt = deal(self.task.kinds, run.peers, run.dirichlet, run.seed)
        #: Steps that were taken by anybody.
        self.taken = 0
        self._budget = max(1, run.samples // run.batch)
        self._points: list[tuple[int, float, float]] = []
        self._losses: list[float] = []
        super().__init__(scenario_of(run), check_every_event=False)

    # In the place of the simulator's numbers

    def _found(self) -> None:
        run = self._defined
        self.network = Cards(self.scenario.weather)
        roster = Roster(dict.fromkeys(range(run.peers), 0), self._plan)
        self._mean, self._spread = np.zeros(1), 1.0
        for rank in roster.members:
            core = self.start(rank, 0, np.empty(0), roster, None)
            if not rank:
                self.accounts = WeightBooks(core.mass.layout.shards)
            self.accounts.begin(core)

    def start(self, rank: int, incarnation: int, values: Values, roster: Roster, donor: Core | None) -> Core:
        """Start a peer with its trainer; one that joins has its donor's values, place in the schedule and step."""
        run = self._defined
        data = batches(self.task, self._dealt[rank], run.batch, run.seed, rank + run.peers * incarnation)
        learner = Learner(self.task, data, run, self.progress)
        self._policy = suited(self._policy, learner.optimizer)
        replica, method = fit(
            self._policy,
            learner.model,
            learner.optimizer,
            self._shard_bytes(learner.model),
            compress=run.compress,
        )
        if donor is not None:
            replica.arrays[0][:] = values
        core = Core(
            Address(rank, incarnation),
            Mass(replica.layout, replica.arrays),
            roster,
            self._policy,
            self.scenario.settings,
            turns=None if donor is None else donor.turns,
            now=self.now,
            step=0 if donor is None else donor.step,
        )
        process = self.processes[rank] = Process(core)
        feed = partial(self.feed, rank)
        if isinstance(method, OuterAverage):
            trainer: Trainer = OuterAverager(
                core, learner, method, feed, lambda: self.now, partial(self._later, rank, process)
            )
        elif self._policy.collective:
            kind = Server if self._policy.collective == "server" else Averager
            trainer = kind(core, learner, feed)
        else:
            trainer = Gossiper(core, learner, replica, method, feed, run.rule)
        self._trainers[rank] = trainer
        self.at(self.now, partial(self._begin, rank, process, trainer))
        return core

    def _later(self, rank: int, process: Process, when: float, act: Callable[[], None]) -> None:
        """Let a peer do something at a time, if it runs then."""

        def due() -> None:
            if self.runs(rank, process, due):
                act()

        self.at(when, due)

    def _shard_bytes(self, model: nn.Module) -> int:
        parameters = list(model.parameters())
        total = sum(one.numel() * one.element_size() for one in parameters)
        # Tensors are padded to 64 bytes, so that there may be a shard more than asked for.
        return SHARD_BYTES if self._defined.shards == 1 else -(-total // self._defined.shards)

    def _begin(self, rank: int, process: Process, trainer: Trainer) -> None:
        if self.runs(rank, process, partial(self._begin, rank, process, trainer)) and trainer.start():
            super()._train(rank)

    def _train(self, rank: int) -> None:
        self._trainers[rank].proceed()
        super()._train(rank)

    def _finish(self, rank: int) -> None:
        self._trainers[rank].step()
        self.taken += 1
        if self.taken * POINTS // self._budget > len(self._points):
            self._look(CURVE_SAMPLES)

    def _heed(self, rank: int, process: Process, effect: Effect) -> None:
        del process
        if self._trainers[rank].heed(effect):
            super()._train(rank)

    def _note_weights(self, core: Core) -> None:
        self._weight_min = min(self._weight_min, *core.mass.weights)
        self._weight_max = max(self._weight_max, *core.mass.weights)

    def _measure(self) -> None:
        """Do nothing: a run ends by its samples, and is looked at then and again by `_look`."""

    def progress(self) -> float:
        """Return the share of the run that is over when all have taken the step that is being taken.

        It counts whole rounds, so that replicas which are kept equal move by the same rate.
        """
        peers = self._defined.peers
        return (self.taken // peers + 1) * peers / self._budget

    # What comes out

    def average(self) -> list[Tensor]:
        """Return the average replica, parameter by parameter: each peer counts with the weight that it holds.

        With a centre it is the centre's model.
        """
        living = [self._trainers[rank] for rank, process in self.processes.items() if process.alive]
        if self._policy.collective == "server":
            living = living[:1]
        if self._defined.shards == 1:
            weights = [trainer.core.mass.weights[0] for trainer in living]
        else:  # shards have weights of their own: the mean of all replicas is as good a model
            weights = [1.0] * len(living)
        total = sum(weights)
        rows: Sequence[Sequence[Tensor]] = [list(trainer.learner.model.parameters()) for trainer in living]
        with torch.no_grad():
            return [
                sum(one * (weight / total) for one, weight in zip(column, weights, strict=True))
                for column in zip(*rows, strict=True)
            ]

    def disagreement(self) -> float:
        """Return how far values are from the plain mean of the replicas, root mean square, relative to it."""
        living = [self._trainers[rank] for rank, process in self.processes.items() if process.alive]
        with torch.no_grad():
            stack = torch.stack(
                [torch.cat([one.flatten() for one in each.learner.model.parameters()]) for each in living]
            )
            mean = stack.mean(0)
            return float((stack - mean).square().mean().sqrt() / mean.square().mean().sqrt())

    def _finite(self) -> bool:
        return all(one.learner.finite for one in self._trainers.values())

    def _look(self, limit: int | None) -> None:
        model = self.task.model(0)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), self.average(), strict=True):
                parameter.copy_(value)
        score = self.task.score(model, limit)
        self._points.append((self.taken * self._defined.batch, self.now, score.accuracy))
        self._losses.append(score.loss)

    def train(self) -> Outcome:
        """Train until all samples of the run have been seen, or somebody's loss is not finite."""
        began = time.process_time()
        collecting = gc.isenabled()
        gc.disable()
        try:
            while self.taken < self._budget and self._finite():
                if not self.advance():
                    raise RuntimeError(f"nothing is to come any more at {self.now}: {self._defined}")
        finally:
            if collecting:
                gc.enable()
        if self._points and self._points[-1][0] == self.taken * self._defined.batch:
            self._points.pop()
            self._losses.pop()
        self._look(None)
        accuracy = self._points[-1][2]
        finite = self._finite()
        steps = [core.step for core in self._living()]
        return Outcome(
            accuracy=accuracy,
            validation_loss=self._losses[-1],
            curve=self._points,
            losses=self._losses,
            diverged=not finite or accuracy < self.task.chance,
            virtual_seconds=self.now,
            steps=(min(steps), max(steps)),
            bytes=self.network.counts.bytes,
            disagreement=self.disagreement() if finite else float("inf"),
            weight_min=self._weight_min,
            weight_max=self._weight_max,
            book_error=self._worst,
            cpu_seconds=time.process_time() - began,
        )


def scenario_of(run: Run) -> Scenario:
    """Return the simulator's part of a run."""
    settings = Settings(
        share=run.share,
        compress=run.compress,
        weight_floor=run.weight_floor,
        weight_cap=run.weight_cap,
        patience=run.patience,
    )
    return Scenario(
        peers=run.peers,
        steps=_ENDLESS,
        topology=run.topology,
        algorithm=run.algorithm,
        seed=run.seed,
        size=max(8, run.shards),
        shards=run.shards,
        step_seconds=run.step_seconds,
        jitter=run.jitter,
        loss=run.loss,
        delay=run.delay,
        bandwidth=run.megabits * 1e6 / 8 if run.megabits else None,
        stragglers=(parse_straggler(run.straggler),) if run.straggler else (),
        kills=tuple(map(parse_incident, run.kills.split(","))) if run.kills else (),
        restarts=tuple(map(parse_incident, run.restarts.split(","))) if run.restarts else (),
        settings=settings,
    )


def carry_out(run: Run) -> Outcome:
    """Carry out a run, in one thread."""
    torch.set_num_threads(1)
    return TrainingSwarm(run).train()
