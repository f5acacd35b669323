"""Peers as threads of one process, over a hub of memory transports: real engines, no ports and no processes."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gossip import presets
from gossip.faults import Faults
from gossip.net.memory_transport import Hub, MemoryTransport
from gossip.presets import Preset
from peers import Peer
from peers.reporting.records import Records
from peers.session.cards import Card
from peers.session.injection import Boundary
from peers.setup import Setup

#: Seconds after which a peer hangs.
LONGEST = 60.0
#: Seconds after which a process does: several of them start at once, and each has torch to import.
LONGEST_PROCESS = 200.0
Body = Callable[[Peer], Any]


def patient(shard_bytes: int = 4 << 20, **settings: Any) -> Preset:
    """Return settings with which a synchronous peer waits for its neighbours, however busy the machine is."""
    found = presets.preset("loopback")
    waits = {"wait_ceiling": LONGEST, "wait_floor": LONGEST, "resend_first": 5.0, "resend_ceiling": 5.0}
    # Nor does anybody refuse a parcel of a neighbour that is some turns ahead.
    room = {"inbox_bytes": 1 << 24, "neighbour_bytes": 1 << 24, "weight_cap": 100.0}
    changed = replace(found.settings, **{**waits, **room, **settings})
    return replace(found, settings=changed, shard_bytes=shard_bytes)


class Meeting:
    """A hub and the cards of all its peers."""

    def __init__(self, n: int, **setup: Any) -> None:
        self.n = n
        self.hub = Hub()
        self.setup = {"start_timeout": LONGEST, **setup}
        self.transports = [MemoryTransport(self.hub, queue=1024) for _ in range(n)]
        self.cards = {rank: Card(rank, transport.endpoint) for rank, transport in enumerate(self.transports)}
        self.said: list[str] = []

    def peer(self, rank: int, preset: Preset | None = None, **setup: Any) -> Peer:
        """Return a peer that is where its card says; a second one of the same rank is a later life of it."""
        transport = self.transports[rank]
        if self.hub.find(self.cards[rank].endpoint) is None:
            transport = MemoryTransport(self.hub, self.cards[rank].endpoint, queue=1024)
        settings = Setup(world_size=self.n).changed(rank=rank, **{**self.setup, **setup}).settled()
        records = Records(settings.run_dir, rank, self.said.append, append=settings.resume or settings.incarnation > 0)
        boundary = Boundary(rank, 0, (), Faults(), None, announce=self.said.append)
        return Peer(settings, preset or patient(), transport, self.cards, boundary=boundary, records=records)

    def run(self, body: Body | Sequence[Body], preset: Preset | None = None) -> list[Any]:
        """Let each peer do its body in a thread of its own, and return what came of it, an exception included."""
        bodies = [body] * self.n if callable(body) else list(body)
        return together([self.task(rank, one, preset) for rank, one in enumerate(bodies)])

    def task(self, rank: int, body: Body, preset: Preset | None = None, **setup: Any) -> Callable[[], Any]:
        def act() -> Any:
            with self.peer(rank, preset, **setup) as peer:
                return body(peer)

        return act


def together(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the tasks in threads; return their results in order, an exception for one that raised."""
    results: list[Any] = [None] * len(tasks)

    def run(index: int) -> None:
        try:
            results[index] = tasks[index]()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(tasks))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LONGEST
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    hanging = [thread for thread in threads if thread.is_alive()]
    if hanging:
        frames = sys._current_frames()
        stacks = ["".join(traceback.format_stack(frames[thread.ident or 0])[-6:]) for thread in hanging]
        raise AssertionError("still running:\n" + "\n---\n".join(stacks) + f"\nresults so far: {results}")
    return results


def swarm(n: int, body: Body | Sequence[Body], preset: Preset | None = None, **setup: Any) -> list[Any]:
    """Run a swarm of n peers and return what each one's body returned; raise what any of them raised."""
    results = Meeting(n, **setup).run(body, preset)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def more_than(before: tuple[set[str], dict[int, str]]) -> tuple[set[str], dict[int, str]]:
    """Return what there is that was not there before; something of an earlier test may have gone in the meantime."""
    threads, files = nothing_left()
    return threads - before[0], {fd: name for fd, name in files.items() if before[1].get(fd) != name}


def nothing_left() -> tuple[set[str], dict[int, str]]:
    """Return the threads of this package and the open files: to be the same before and after."""
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith(("gossip", "checkpoint"))}
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[int(entry.name)] = str(entry.readlink())
        except OSError:
            continue  # the directory's own
    return threads, {fd: name for fd, name in found.items() if "/proc/" not in name}


@contextmanager
def reserved_ports(n: int) -> Any:
    """Hold n ports of loopback, so that only who names them gets them: bound, not listened on, to be bound again."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in held]


def flat(model: torch.nn.Module) -> torch.Tensor:
    """Return all parameters in one vector of double precision."""
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in model.parameters()])


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment without what a launcher would set, and with what the test sets."""
    prefixes = ("SLURM_", "TORCHELASTIC_", "GOSSIP_", "GROUP_", "ROLE_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes) and name not in names}
    root = str(Path(__file__).parents[2])
    return {**kept, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **more}
