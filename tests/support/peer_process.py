"""A peer in a process of its own: a real core, driver and transport, told what to do by lines of JSON.

Run as a program this is a *nursery*: it imports everything once and forks a process per peer. A fork takes milliseconds
where a new interpreter takes half a second, so that a hundred restarts can be a hundred processes. The nursery has no
thread and no ZeroMQ context, so a fork of it is as good as new.

A peer reads a command per line on stdin and writes an answer per line on stdout; the end of stdin is the end of it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zmq

import topologies
from gossip import events
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.events import Effect, Event
from gossip.keys import KeyPair
from gossip.link import Link
from gossip.net.driver import Driver
from gossip.net.zmq_transport import ZmqTransport
from gossip.policies import parse
from gossip.settings import Settings
from gossip.values.blocks import Values
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Hello, Parcel

LOOPBACK = Endpoint("127.0.0.1", 0)
#: Nothing here takes longer than this unless it hangs.
PATIENCE = 40.0
EVENTS: dict[str, type[events.PeerDied | events.PeerAlive]] = {"died": events.PeerDied, "alive": events.PeerAlive}


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that nobody signals."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it never came about: {what}"
        time.sleep(0.002)


class Probe(events.Tick):
    """A tick that is only there to look at the core, in the driver's thread."""

    def __init__(self, look: Callable[[], None]) -> None:
        object.__setattr__(self, "look", look)


class VisibleCore(Core):
    """A core that can be looked at between two events; in all else it is the one that users get."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Probe):
            event.look()  # type: ignore[attr-defined]
            return []
        return super().handle(event, now)


class CountingTransport(ZmqTransport):
    """A transport that counts the bytes which ZeroMQ took."""

    taken = 0

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        sent = super().send(rank, frames, ordered)
        if sent:
            self.taken += sum(map(len, frames))
        return sent


class Reading:
    """Weights by shard, and of x = w z two sums by shard: plain, and one in which every element counts differently."""

    def __init__(self, layout: Layout) -> None:
        self._bounds = layout.bounds
        self.count = 0
        self.weights = [0.0] * layout.shards
        self.plain = [0.0] * layout.shards
        self.slanted = [0.0] * layout.shards

    def add(self, shard: int, weight: float, values: Values) -> None:
        start, stop = self._bounds[shard]
        self.count += 1
        self.weights[shard] += weight
        self.plain[shard] += weight * float(values.sum())
        self.slanted[shard] += weight * float(np.dot(values, slant(start, stop)))

    def show(self) -> dict[str, Any]:
        return {"count": self.count, "weights": self.weights, "plain": self.plain, "slanted": self.slanted}


_slants: dict[tuple[int, int], Values] = {}


def slant(start: int, stop: int) -> Values:
    if (start, stop) not in _slants:
        _slants[start, stop] = 1.0 + np.arange(stop - start) / (stop - start)
    return _slants[start, stop]


class Peer:
    """What a process does: one transport, and on top of it, once it is connected, one engine."""

    def __init__(self) -> None:
        self._halt = threading.Event()
        self._trainer: threading.Thread | None = None
        self._failure: str | None = None
        self._effects: Counter[str] = Counter()
        self._flows: dict[tuple[str, int, int, int], Reading] = {}
        self._written_off: list[dict[str, Any]] = []
        self._moved = threading.Condition()
        self._steps = 0
        self._closed = False

    def serve(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                answer = getattr(self, "do_" + order.pop("do"))(**order) or {}
            except Exception:  # noqa: BLE001 - whatever it is, the test shall see it
                answer = {"error": traceback.format_exc()}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        self._halt.set()
        if not self._closed and hasattr(self, "_driver"):
            self._driver.close()

    # Setting up

    def do_bind(
        self,
        *,
        rank: int,
        incarnation: int,
        members: int,
        size: int,
        shard_bytes: int,
        topology: str,
        algorithm: str,
        settings: dict[str, float],
        link: dict[str, float],
        keys: list[str] | None,
        admitted: list[str],
        shared: bool,
    ) -> dict[str, Any]:
        rehearse()
        self._before = vitals()
        self._layout = Layout.cut(size, shard_bytes, np.float64)
        self._settings = Settings(**settings)  # type: ignore[arg-type]
        self._me = Address(rank, incarnation)
        pair = None if keys is None else KeyPair(keys[0].encode(), keys[1].encode())
        self._transport = CountingTransport(
            LOOPBACK, keys=pair, admitted=[key.encode() for key in admitted], link=Link(**link), shared=shared
        )
        roster = Roster(dict.fromkeys(range(members), 0), lambda n: topologies.parse(topology, n))
        #: The same for everybody: what is put into the wrong place shows.
        self._pattern = np.sin(np.arange(size))
        self._mass = Mass(self._layout, self._pattern + rank)
        self._core = VisibleCore(self._me, self._mass, roster, parse(algorithm), self._settings)
        self._injected = Reading(self._layout)
        self._driver = Driver(self._core, self._transport, listen=self._listen)
        return {"endpoint": str(self._transport.endpoint)}

    def do_connect(self, *, peers: dict[str, list[str | None]], greet: list[int]) -> None:
        """Connect to everybody; start the engine once the connections to those that are to be greeted stand."""
        for rank, (endpoint, key) in peers.items():
            assert endpoint is not None
            self._transport.connect(int(rank), Endpoint.parse(endpoint), None if key is None else key.encode())
        codec = WireCodec(self._settings.run, self._layout)
        todo = set(greet)

        def greeted() -> bool:
            for rank in list(todo):
                if self._transport.send(rank, codec.encode(Hello(self._me, Address(rank, 0)))):
                    todo.discard(rank)
            self._transport.wait(0.002)
            return not todo

        until(greeted, "connections to everybody")
        self._driver.__enter__()

    # Training

    def do_go(
        self, *, count: int | None = None, pause: float = 0.0, noise: int | None = None, timeout: float = PATIENCE
    ) -> None:
        """Take steps, so many or until halted; ``pause`` is how long computing one takes, ``noise`` a seed."""
        assert self._trainer is None, "it is training already"
        self._halt.clear()
        self._trainer = threading.Thread(target=self._train, args=(count, pause, noise, timeout), name="trainer")
        self._trainer.start()

    def _train(self, count: int | None, pause: float, noise: int | None, timeout: float) -> None:
        try:
            while not self._halt.is_set() and (count is None or count > 0):
                if noise is not None:
                    self._perturb(np.random.default_rng([noise, self._core.me.rank, self._steps]))
                if pause:
                    self._halt.wait(pause)
                self._driver.step(timeout)
                count = None if count is None else count - 1
                with self._moved:
                    self._steps += 1
                    self._moved.notify_all()
        except BaseException:  # noqa: BLE001 - whoever asks next is told
            self._failure = traceback.format_exc()
            with self._moved:
                self._moved.notify_all()

    def _perturb(self, draws: np.random.Generator) -> None:
        """Train a little, and note by how much that moves x: the values and weights are the trainer's now."""
        for shard in range(self._layout.shards):
            values = self._mass.view(shard)
            step = draws.normal(0.0, 0.01, len(values))
            values += step
            self._injected.add(shard, self._mass.weights[shard], step)

    def do_halt(self) -> dict[str, Any]:
        self._halt.set()
        return self.do_join()

    def do_join(self) -> dict[str, Any]:
        """Wait until the steps are taken."""
        assert self._trainer is not None
        self._trainer.join(PATIENCE)
        assert not self._trainer.is_alive(), "the trainer hangs"
        self._trainer = None
        self._complain()
        return {"steps": self._steps}

    def do_await(self, *, more: int) -> dict[str, Any]:
        """Wait until so many steps more than now are taken."""
        with self._moved:
            goal = self._steps + more
            reached = self._moved.wait_for(lambda: self._steps >= goal or self._failure is not None, PATIENCE)
        self._complain()
        assert reached, f"{goal - self._steps} of {more} steps are missing"
        return {"steps": self._steps}

    def _complain(self) -> None:
        if self._failure is not None:
            raise AssertionError(self._failure)

    # Events and what comes of them

    def do_post(self, *, event: str, rank: int, incarnation: int) -> None:
        """Raise an event of membership; return when the core has handled it."""
        self._driver.post(EVENTS[event](Address(rank, incarnation)))
        self._probe(lambda: None)

    def do_flush(self, *, timeout: float = PATIENCE) -> None:
        assert self._driver.flush(timeout), "parcels are unanswered"

    def do_await_life(self, *, incarnation: int) -> None:
        until(lambda: self._core.me.incarnation == incarnation, f"incarnation {incarnation}")

    def do_await_member(self, *, rank: int, incarnation: int) -> None:
        until(lambda: self._core.view.incarnation(rank) == incarnation, f"member {rank}#{incarnation}")

    def do_await_effect(self, *, effect: str, count: int) -> None:
        until(lambda: self._effects[effect] >= count, f"{count} x {effect}")

    def do_await_outbox(self, *, count: int) -> None:
        """Wait until at least so many parcels are unanswered."""
        until(lambda: len(self._core.outbox) >= count, f"{count} parcels on their way")

    def do_await_waiting(self) -> None:
        """Wait until a step was handed over that is not over."""
        until(lambda: self._core.step > self._steps, "a step that waits")

    def _listen(self, effect: Effect) -> None:
        kind = type(effect).__name__
        self._effects[kind] += 1
        if isinstance(effect, events.Reincarnated):
            address, written_off = effect.address, effect.written_off
            self._written_off.append({"incarnation": address.incarnation, "weight": written_off})
        if isinstance(effect, events.Booked | events.Released | events.TakenBack):
            parcel: Parcel = effect.parcel
            mine, other = parcel.origin, parcel.destination
            if isinstance(effect, events.Booked):
                mine, other = other, mine
            key = (kind, mine.incarnation, other.rank, other.incarnation)
            if key not in self._flows:
                self._flows[key] = Reading(self._layout)
            self._flows[key].add(parcel.shard, parcel.weight, parcel.values)

    # Looking

    def do_books(self) -> dict[str, Any]:
        """Return all the mass there is here, as of one moment."""
        return self._probe(self._books)

    def _books(self) -> dict[str, Any]:
        core, mass = self._core, self._mass
        core.validate_state()
        held, inbox, outbox = (Reading(self._layout) for _ in range(3))
        for shard, weight in enumerate(mass.weights):
            held.add(shard, weight, mass.view(shard))
        for pile in core.inbox:
            inbox.add(pile.shard, pile.weight, pile.values)
        for entry in core.outbox:
            outbox.add(entry.parcel.shard, entry.parcel.weight, entry.parcel.values)
        away = mass.values - self._pattern
        return {
            "address": list(core.me),
            "steps": self._steps,
            "held": held.show(),
            "inbox": inbox.show(),
            "outbox": outbox.show(),
            "injected": self._injected.show(),
            "low": float(away.min()),
            "high": float(away.max()),
            "sample": [float(value) for value in mass.values[:: max(1, len(mass.values) // 256)]],
            "rejections": {reason.value: count for reason, count in core.rejections.by_reason.items()},
            "effects": dict(self._effects),
            "flows": [[*key, reading.show()] for key, reading in self._flows.items()],
            "written_off": self._written_off,
        }

    def do_vitals(self) -> dict[str, Any]:
        return self._probe(
            lambda: (
                vitals()
                | {
                    "outbox_bytes": sum(entry.parcel.values.nbytes for entry in self._core.outbox),
                    "taken": self._transport.taken,
                    "steps": self._steps,
                }
            )
        )

    def _probe(self, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Look at the core in the driver's thread, between two events and after all that were posted before."""
        if self._closed:
            return look() or {}
        seen: list[dict[str, Any] | BaseException] = []
        done = threading.Event()

        def probe() -> None:
            try:
                seen.append(look() or {})
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
                seen.append(error)
            done.set()

        self._driver.post(Probe(probe))
        assert done.wait(PATIENCE), "the driver does not get to it"
        answer = seen[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    # The end

    def do_close(self) -> dict[str, Any]:
        """Close; return how long that took and what was left behind."""
        began = time.monotonic()
        self._driver.close()
        took = time.monotonic() - began
        self._closed = True
        self._halt.set()
        if self._trainer is not None:
            self._trainer.join(PATIENCE)
        # A joined thread's entry in /proc can outlive the join for a moment.
        deadline = time.monotonic() + PATIENCE / 2
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return {"seconds": took, "left": left}

    def _left(self) -> list[str]:
        after = vitals()
        return [
            f"{len(after[what])} {what}: {after[what]}, there were {len(self._before[what])}"
            for what in ("files", "threads")
            if len(after[what]) > len(self._before[what])
        ]


def rehearse() -> None:
    """Let pyzmq start what it starts once in a process, to send messages uncopied: a thread and its sockets."""
    with zmq.Context() as context, context.socket(zmq.PULL) as inlet, context.socket(zmq.PUSH) as outlet:
        inlet.bind("inproc://rehearsal")
        outlet.connect("inproc://rehearsal")
        outlet.send(bytes(1 << 20), copy=False)
        inlet.recv()


def vitals() -> dict[str, Any]:
    """Return what a process holds of its machine, with all that is merely not given back yet given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "memory": int(status["RssAnon"].split()[0]) << 10,
        "files": sorted(_present("/proc/self/fd", lambda file: str(file.readlink()).split(":")[0])),
        "threads": sorted(_present("/proc/self/task", lambda task: (task / "comm").read_text().strip())),
    }


def _present(directory: str, look: Callable[[Path], str]) -> list[str]:
    """Look at all that is in a directory of /proc, save what is gone by then."""
    found = []
    for entry in list(Path(directory).iterdir()):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(look(entry))
    return found


def nursery(control: socket.socket) -> None:
    """Fork a process per request; returns in the processes that were forked, and only there."""
    children: set[int] = set()
    gc.collect()
    gc.freeze()  # what was imported is garbage for nobody: collecting takes a tenth of the time
    while True:
        request, files, _, _ = socket.recv_fds(control, 4096, 3)
        if not request:
            break
        reap = json.loads(request).get("reap")
        if reap is not None:  # only when asked: until then the number is the child's, and safe to kill
            _, status = os.waitpid(reap, 0)
            children.discard(reap)
            control.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        child = os.fork()
        if not child:
            control.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
        for file in files:
            os.close(file)
        if not child:
            return
        children.add(child)
        control.send(json.dumps(child).encode())
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    control.close()
    raise SystemExit


if __name__ == "__main__":
    nursery(socket.socket(fileno=int(sys.argv[1])))
    Peer().serve()
