"""Processes that train together, told so by a benchmark: started once, they do one task after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from benchmarks.processes import Answer, Fleet
from benchmarks.swarm_methods import free_port

__all__ = ["Swarm"]


class Swarm:
    """Some workers that find each other anew for each task; see `benchmarks.swarm_jobs`."""

    def __init__(
        self,
        n: int,
        *,
        namespaces: Sequence[str] = (),
        address: str = "127.0.0.1",
        interface: str = "lo",
        patience: float = 300.0,
    ) -> None:
        """Start the workers.

        Args:
            n: how many.
            namespaces: the network namespace of each, if they have any.
            address: where the first of them is reached by the others.
            interface: by which network interface.
            patience: seconds that a task may take.
        """
        self._where = {"address": address, "interface": interface}
        arguments = [[str(rank), str(n), *namespaces[rank : rank + 1]] for rank in range(n)]
        self._fleet = Fleet("benchmarks.swarm_worker", arguments, patience=patience)

    def __enter__(self) -> Swarm:
        try:
            self._fleet.answers()
        except BaseException:
            self._fleet.close(kill=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close(kill=kind is not None)

    def run(self, job: str, method: str, setup: dict[str, Any] | None = None, **task: Any) -> list[Answer]:
        """Have all do a task; return what each of them answers.

        Args:
            job: what to do.
            method: ``ddp``, ``alone``, or an algorithm of ours.
            setup: arguments of `peers.join`, beside the algorithm.
            task: what else the job has to know.
        """
        with tempfile.TemporaryDirectory() as run_dir:
            told = {**self._where, "job": job, "method": method, "port": free_port(), **task}
            return self._fleet.ask({**told, "setup": {"run_dir": run_dir, **(setup or {})}})
