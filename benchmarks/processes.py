"""Worker processes that are told what to do in lines of JSON, and are never waited for without end.

A worker is ``python -m MODULE ARGUMENTS``. It reads one request per line from stdin and writes one answer per line to
stdout; what it has to say about an error goes to stderr, which is ours. It ends when its stdin does.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from gossip.net.process_environment import ENVIRONMENT

__all__ = ["Answer", "Fleet", "WorkerFailed"]

Answer = dict[str, Any]

#: BLAS and torch would each take all cores, for every process; here the processes are what is parallel.
#: And all of them, whatever they run, get the allocator's settings that peers are started with.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerFailed(RuntimeError):
    """A worker ended, or did not answer in time."""


class Fleet:
    """Some workers that are spoken to together."""

    def __init__(self, module: str, arguments: Sequence[Sequence[str]], *, patience: float = 60.0) -> None:
        """Start one worker for each list of arguments.

        Args:
            module: what to run.
            arguments: of each worker.
            patience: seconds within which every worker has to answer.
        """
        self._patience = patience
        environment = {**os.environ, **_ONE_THREAD, **ENVIRONMENT}
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", module, *each], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            for each in arguments
        ]
        self._partial = [b""] * len(self._workers)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(kill=kind is not None)

    def __len__(self) -> int:
        return len(self._workers)

    def ask(self, request: Mapping[str, Any]) -> list[Answer]:
        """Say the same to all workers and return what each answers."""
        line = json.dumps(request).encode() + b"\n"
        for rank, worker in enumerate(self._workers):
            assert worker.stdin is not None
            try:
                worker.stdin.write(line)
                worker.stdin.flush()
            except BrokenPipeError:
                raise WorkerFailed(f"worker {rank} has ended, with status {worker.poll()}") from None
        return self.answers()

    def answers(self) -> list[Answer]:
        """Return the next answer of every worker."""
        deadline = time.monotonic() + self._patience
        return [self._answer(rank, deadline) for rank in range(len(self._workers))]

    def close(self, *, kill: bool = False) -> None:
        """End the workers: by the end of their stdin, and who does not heed that, or on ``kill``, by force."""
        for worker in self._workers:
            if kill:
                worker.kill()
            elif worker.stdin is not None and not worker.stdin.closed:
                worker.stdin.close()
        for worker in self._workers:
            try:
                worker.wait(10.0)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        continue  # it was killed before it had read everything

    def _answer(self, rank: int, deadline: float) -> Answer:
        pipe = self._workers[rank].stdout
        assert pipe is not None
        while b"\n" not in self._partial[rank]:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise WorkerFailed(f"worker {rank} did not answer within {self._patience:.0f} s")
            more = os.read(pipe.fileno(), 65536)
            if not more:
                raise WorkerFailed(f"worker {rank} has ended, with status {self._workers[rank].poll()}")
            self._partial[rank] += more
        line, _, self._partial[rank] = self._partial[rank].partition(b"\n")
        answer: Answer = json.loads(line)
        return answer
