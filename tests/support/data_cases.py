"""A swarm that shares out chunks in virtual time: no network, no torch, every draw from a seed."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from peers.data.progress import Progress

#: Far more than any case needs: a swarm that is not done by then hangs.
EVENTS = 400_000


@dataclass
class Worker:
    """One peer: how long it needs for a chunk, when it joins and dies, whom it believes alive."""

    rank: int
    pace: float = 1.0
    joins: float = 0.0
    dies: float = float("inf")
    progress: Progress = field(init=False)
    chunks_done: int = 0
    ended: float | None = None


@dataclass
class Swarm:
    """Workers, and how news travel between them."""

    workers: list[Worker]
    batches: int
    epochs: int
    seed: int = 0
    #: How long news take at most, in paces of a normal peer; how often they are lost, and doubled.
    delay: float = 0.1
    loss: float = 0.0
    doubled: float = 0.0
    #: Told after each chunk; None: everybody.
    fanout: int | None = None
    #: After this time a death is known. `view(worker, now)` overrides it.
    notice: float = 5.0
    view: Callable[[Worker, float], list[int]] | None = None
    #: Chunks claimed ahead, as by the workers of a data loader.
    ahead: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.work: Counter[tuple[int, int]] = Counter()
        for worker in self.workers:
            worker.progress = Progress(self.batches, self.epochs, key=self.seed)

    @property
    def chunks(self) -> int:
        return self.workers[0].progress.chunks

    @property
    def duplicates(self) -> float:
        """Work beyond the data, as a fraction of the data."""
        return sum(self.work.values()) / (self.chunks * self.epochs) - 1

    def believed(self, worker: Worker, now: float) -> list[int]:
        if self.view is not None:
            return self.view(worker, now)
        return [other.rank for other in self.workers if other.joins <= now < other.dies + self.notice]

    def run(self) -> Swarm:
        """Let everybody work until all have ended or died."""
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.count = 0
        queues: dict[int, list[tuple[int, int]]] = {worker.rank: [] for worker in self.workers}

        def at(time: float, action: Callable[[float], None]) -> None:
            self.count += 1
            assert self.count < EVENTS, "the swarm does not end"
            heapq.heappush(self.events, (time, self.count, action))

        def begin(worker: Worker, now: float) -> None:
            queue = queues[worker.rank]
            while True:
                while len(queue) <= self.ahead:
                    claim = worker.progress.next_chunk(worker.rank, self.believed(worker, now))
                    if claim is None:
                        break
                    queue.append(claim)
                if not queue:
                    assert worker.progress.finished, "nothing to claim, and not finished"
                    worker.ended = now
                    return
                claim = queue.pop(0)
                if not worker.progress.done(*claim):
                    break
            took = worker.pace * self.random.uniform(0.9, 1.1)
            at(now + took, lambda later: finish(worker, claim, later))

        def finish(worker: Worker, claim: tuple[int, int], now: float) -> None:
            if now >= worker.dies:
                return
            self.work[claim] += 1
            worker.chunks_done += 1
            worker.progress.mark(*claim)
            tell(worker, now)
            begin(worker, now)

        def tell(worker: Worker, now: float) -> None:
            news = worker.progress.encode()
            others = [other for other in self.workers if other is not worker]
            for other in others if self.fanout is None else self.random.sample(others, min(self.fanout, len(others))):
                for _ in range(1 + (self.random.random() < self.doubled)):
                    if self.random.random() >= self.loss:
                        at(now + self.random.uniform(0, self.delay), lambda later, to=other: hear(to, news, later))

        def hear(worker: Worker, news: bytes, now: float) -> None:
            if worker.joins <= now < worker.dies:
                worker.progress.merge(news)

        for worker in self.workers:
            at(worker.joins + self.random.uniform(0, worker.pace), lambda now, worker=worker: begin(worker, now))
        while self.events:
            now, _, action = heapq.heappop(self.events)
            action(now)
        return self

    def check(self) -> None:
        """Every chunk of every epoch was done, and everybody who lived came to the end."""
        wanted = {(epoch, chunk) for epoch in range(self.epochs) for chunk in range(self.chunks)}
        assert set(self.work) == wanted
        assert all(worker.ended is not None for worker in self.workers if worker.dies == float("inf"))
