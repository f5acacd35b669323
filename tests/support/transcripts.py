"""Golden transcripts of the simulator: every event of a run, the effects it had, and the state it left.

A transcript is what etcd's raft calls a golden test: a change that is meant to leave the protocol as it is leaves every
line as it is. There is one readable transcript for each algorithm, with a mix of faults, in transcripts/NAME.txt, and
one digest for each of many more runs in transcripts/digests.json. When a line is meant to change, write them anew with

    python tests/support/transcripts.py --write

read the difference, and say in a decision record why it had to change.

A line is

    SECONDS RANK EVENT -> EFFECT; EFFECT | STATE

Messages are shown as they are on the wire: the header's fields behind version and run, and a digest of the body. So a
transcript depends on what is sent and what is done, and not on how the code that does it is cut into modules.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import xxhash

from gossip import events
from gossip.core.core import Core
from gossip.errors import InvariantError
from gossip.events import Effect, Event
from gossip.faults import parse_cut, parse_incident, parse_pause, parse_straggler
from gossip.membership import MembershipSettings
from gossip.policies import names, parse
from gossip.settings import Settings
from gossip.simulation import Scenario
from gossip.simulation.swarm import Process, Swarm

FOLDER = Path(__file__).parents[1] / "gossip" / "simulation" / "transcripts"
DIGESTS = FOLDER / "digests.json"
#: Algorithms that average vectors, or ask a centre, instead of moving mass.
COLLECTIVE = ("allreduce", "outer", "parameter-server")
#: An algorithm, and what else is set beside its defaults.
VARIANTS = {
    "allreduce-int8": ("allreduce", {"compress": "int8"}),
    "adpsgd-topk-pair": ("adpsgd", {"compress": "topk-pair:share=25%"}),
    "choco-int8": ("choco", {"compress": "int8"}),
    "osgp-auto": ("osgp", {"compress": "auto"}),
    "osgp-warmup": ("osgp:warmup=5", {}),
    "sgp-int8-share": ("sgp", {"compress": "int8", "share": 0.5}),
    "sgp-rounds": ("sgp:rounds=2", {}),
}
#: Algorithms of which there is also a run whose trainers call all that a trainer can call: see `Attended`.
ATTENDED = {f"{name}-attended": name for name in ("adpsgd", "choco", "dpsgd", "osgp", "sgp")}
#: Virtual seconds after which a transcript ends: whoever averages with a peer that has finished waits for ever.
HORIZON = 9.0
#: Runs of which only the digest is kept, for each algorithm and variant.
SEEDS = range(1, 4)


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the algorithm and the settings of each transcript, by its name."""
    # Short runs: those that exchange now and then do so with every second step.
    often = {"easgd": "tau=2", "gossip-pull": "tau=2", "gossip-push": "tau=2", "local": "h=2", "noloco": "h=2"}
    often |= {"slowmo": "h=2", "ssd": "k=2,warmup=4"}
    plain = {name: (f"{name}:{often[name]}" if name in often else name, {}) for name in names()}
    return {**plain, **VARIANTS, **{name: (algorithm, {}) for name, algorithm in ATTENDED.items()}}


def scenario(name: str, seed: int = 0) -> Scenario:
    """Return a small swarm to which everything happens once; odd seeds watch each other, even ones are told."""
    algorithm, settings = cases()[name]
    large = seed > 0
    n = 8 if large else 4
    base = "0.6s" if large else "0.35s"
    return Scenario(
        peers=n,
        steps=60 if large else 10,
        topology="exponential" if name in ("osgp", "sgp") else parse(algorithm).default_topology,
        algorithm=algorithm,
        seed=seed,
        size=24 if large else 8,
        shards=3 if large else 2,
        loss=0.1,
        duplicate=0.05,
        corrupt=0.03,
        delay=(0.005, 0.05),
        bandwidth=50_000.0 if seed % 3 == 2 else None,
        detect=0.3,
        watch=MembershipSettings() if seed % 2 else None,
        stragglers=(parse_straggler("2=3x"),),
        kills=(parse_incident("1@0.4s"),),
        restarts=(parse_incident("1@0.8s"),),
        joins=(parse_incident(f"{n}@{base}"),),
        leaves=(parse_incident(f"{n - 1}@0.9s"),),
        pauses=(parse_pause("0@0.7s+150ms"),),
        cuts=(parse_cut("0|2@0.2s+200ms"),),
        settings=Settings(**settings),
    )


class Transcribed(Swarm):
    """A simulated swarm that writes down what happens."""

    def __init__(self, scenario: Scenario) -> None:
        self.lines: list[str] = []
        super().__init__(scenario)

    def _record(self, rank: int, event: Event, effects: list[Effect]) -> None:
        super()._record(rank, event, effects)
        happened = "; ".join(map(written, effects)) or "nothing"
        self.lines.append(f"{self.now:.6f} {rank} {written(event)} -> {happened} | {state(self.processes[rank].core)}")


class Attended(Transcribed):
    """As above, with trainers that merge before a step, publish, rest, measure and go on from another step."""

    def __init__(self, scenario: Scenario) -> None:
        self._calls: Counter[int] = Counter()
        super().__init__(scenario)

    def _finish(self, rank: int) -> None:
        self._calls[rank] += 1
        number = self._calls[rank]
        self.feed(rank, events.Merge())
        if number % 3 == 1:
            self.feed(rank, events.Publish(f"rank {rank}, call {number}".encode()))
        if number % 6 in (3, 5):
            self.feed(rank, events.Measure(number % 6 == 3))
        if number % 7 == 4:
            self.feed(rank, events.Advance(self.processes[rank].core.step + 1))
        if number % 5 == 2:
            process = self.processes[rank]
            self.feed(rank, events.Rest(merge=number % 2 == 0))
            self.at(self.now + 0.04, lambda: self._resume(rank, process))
        else:
            super()._finish(rank)

    def _resume(self, rank: int, process: Process) -> None:
        if self.runs(rank, process, lambda: self._resume(rank, process)) and not process.leaves:
            self.feed(rank, events.Resume())


class TranscribedCollective(Transcribed):
    """As above, for algorithms whose trainer has the core average a vector, or ask the centre, in every step."""

    trains = True

    def __init__(self, scenario: Scenario) -> None:
        self._vectors: dict[int, np.ndarray] = {}
        super().__init__(scenario)

    def _found(self) -> None:
        super()._found()
        for rank, process in self.processes.items():
            self.at(0.0, lambda rank=rank, process=process: self._begin(rank, process))

    def _begin(self, rank: int, process: Process) -> None:
        if not self.runs(rank, process, lambda: self._begin(rank, process)):
            return
        if self.scenario.algorithm == "parameter-server":
            self._reduce(rank)
        else:
            self.feed(rank, events.Synchronize(process.core.step, 0 if process.core.me.incarnation else 1))

    def _audit(self, core: Core) -> None:
        """Check the core alone: there is no mass to count, and whoever leaves hands none over."""
        core.validate_state()

    def _train(self, rank: int) -> None:
        """Wait for the core's word: the first step begins with what the others have."""

    def start(self, rank: int, *args: Any) -> Core:
        core = super().start(rank, *args)
        if self.now:
            self.at(self.now, lambda: self._begin(rank, self.processes[rank]))
        return core

    def _finish(self, rank: int) -> None:
        self._reduce(rank)

    def _reduce(self, rank: int) -> None:
        step = self.processes[rank].core.step
        self._vectors[rank] = np.linspace(rank, rank + step, self.scenario.size)
        self.feed(rank, events.Reduce(self._vectors[rank], self.scenario.size))

    def _heed(self, rank: int, process: Process, effect: Effect) -> None:
        match effect:
            case events.StateWanted(number):
                self.feed(rank, events.Offer(number, bytes(64)))
            case events.Synchronized():
                super()._train(rank)
            case events.Reduced():
                self.lines.append(f"{self.now:.6f} {rank} has {digest(self._vectors[rank].tobytes())}")
                self.feed(rank, events.StepFinished())
                super()._train(rank)
            case _:
                super()._heed(rank, process, effect)


def transcript(name: str, seed: int = 0) -> str:
    """Return the transcript of a case; what breaks a promise is its last line."""
    collective = cases()[name][0] in COLLECTIVE
    kind = TranscribedCollective if collective else Attended if name in ATTENDED else Transcribed
    swarm = kind(scenario(name, seed))
    try:
        while swarm.now < HORIZON and swarm.advance():
            pass
        counts = swarm.network.counts
        end = f"end: {counts.messages} messages, {counts.bytes} bytes, agreed: {swarm.agreed()}"
    except InvariantError as error:
        end = f"end: {error.message}"
    incidents = [f"{when:.6f} {what}" for when, what in swarm._incidents.log]
    return "\n".join([*swarm.lines, *incidents, end, ""])


def digests() -> dict[str, str]:
    """Return the digest of each longer run."""
    return {f"{name} {seed}": digest(transcript(name, seed).encode()) for name in cases() for seed in SEEDS}


def digest(data: bytes | memoryview) -> str:
    """Return enough of a hash to tell two values apart."""
    return xxhash.xxh3_64_hexdigest(data)[:10]


def state(core: Core) -> str:
    """Return what an event leaves behind: weights, values, turns, and when the core wants to be called again."""
    weights = " ".join(f"{weight:.12g}" for weight in core.mass.weights)
    due = "never" if core.deadline is None else f"{core.deadline:.6f}"
    return f"w {weights} z {digest(core.mass.values.tobytes())} turns {' '.join(map(str, core.turns))} due {due}"


def written(value: Any) -> str:
    """Return an event, an effect, or a part of one, in one line."""
    if isinstance(value, events.Received):
        return f"Received {_frames(value.frames)}"
    if isinstance(value, events.Send):
        where = f" at {value.endpoint}" if value.endpoint else ""
        return f"Send{where}{' insist' if value.insist else ''} {_frames(value.frames)}"
    if isinstance(value, events.RejectedFrame):  # how that is said in English may change
        return f"RejectedFrame {value.reason.value} {value.origin} {value.count} {value.log}"
    if isinstance(value, events.Donate | events.Adopted):  # and the annex, of which simulated peers have none
        return f"{type(value).__name__} {digest(b'')}"
    if isinstance(value, events.Publish):  # simulated peers say nothing of what is fresh
        return f"Publish {digest(value.body)} {value.at_once}"
    if isinstance(value, np.ndarray):
        return digest(np.ascontiguousarray(value).tobytes())
    if isinstance(value, bytes | bytearray | memoryview):
        return digest(bytes(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float):
        return f"{value:.12g}"
    if dataclasses.is_dataclass(value):
        fields = [written(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return " ".join([type(value).__name__, *fields])
    if isinstance(value, tuple | list):
        return f"({' '.join(map(written, value))})"
    return str(value)


def _frames(frames: Sequence[Any]) -> str:
    """Return a message as it is on the wire; one that was damaged, as a digest of what is left of it."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(bytes(frames[0]))
    try:
        fields = unpacker.unpack()
    except (ValueError, msgpack.exceptions.UnpackException):
        fields = None
    if not isinstance(fields, list):
        return f"[damaged {' '.join(digest(bytes(frame)) for frame in frames)}]"
    body = "".join(f" {digest(bytes(frame))}" for frame in frames[1:])
    return f"[{' '.join(written(field) for field in fields[2:])}{body}]"


def write() -> None:
    """Write all transcripts and digests."""
    for name in cases():
        (FOLDER / f"{name}.txt").write_text(transcript(name))
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/support/transcripts.py --write")
    write()
