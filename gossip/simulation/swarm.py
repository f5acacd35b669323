"""Runs a scenario: many cores, one heap of future events, virtual time.

Peers only see events: frames that went through the codec and the network, and, if they do not watch each other, the
reports of `Incidents`, which stand in for a failure detector. After every event the books of the whole swarm are
checked.

A peer stops after its steps. The run ends when all peers have stopped, or a quarter later than the median peer, so that
one straggler does not make a run ten times as long. Then the messages in flight are delivered.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import xxhash

from gossip import events
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.errors import InvariantError, SettingsError
from gossip.events import Effect, Event
from gossip.faults import Moment
from gossip.faults.weather import Network
from gossip.membership import Membership, Record
from gossip.policies import parse as parse_algorithm
from gossip.simulation.accounts import Accounts
from gossip.simulation.incidents import Incidents
from gossip.simulation.result import Result
from gossip.simulation.scenario import Scenario
from gossip.values.blocks import Values
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.view.planning import planner
from gossip.view.view import Roster
from gossip.wire.messages import Address
from topologies.draws import draw, draw_array

__all__ = ["Process", "Swarm", "simulate"]

#: The largest allowed error of the books, relative to all mass, in float64; rounding stays orders of magnitude below.
TOLERANCE = 1e-9
#: The run ends at the latest after this multiple of its median peer's time.
_GRACE = 1.25
#: Virtual seconds for messages in flight to arrive after the end.
_SETTLE = 60.0
_NEVER = float("inf")


@dataclass(eq=False)
class Process:
    """A simulated process: a core, and the state of its process."""

    core: Core
    alive: bool = True
    finished: bool = False
    #: Whether the process has no state yet: it does not train, and its values are replaced.
    adopts: bool = False
    leaves: bool = False
    paused_until: float = 0.0
    #: The time of the core's next tick on the heap.
    tick_at: float = _NEVER


def simulate(
    scenario: Scenario, *, check_every_event: bool = True, progress: Callable[[float], None] | None = None
) -> Result:
    """Run a scenario to its end, and check after every event that mass is conserved.

    Args:
        scenario: the run to simulate.
        check_every_event: also let every core check its own state after every event.
        progress: called now and then with the share of the steps that is done.

    Raises:
        InvariantError: If mass is not conserved.
    """
    return Swarm(scenario, check_every_event, progress).run()


class Swarm:
    """The state of a running simulation."""

    #: Whether peers train a model, as in a subclass. Then algorithms that exchange no mass are allowed.
    trains = False

    def __init__(
        self, scenario: Scenario, check_every_event: bool = True, progress: Callable[[float], None] | None = None
    ) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.network = Network(scenario.weather)
        self._layout = Layout.uniform(scenario.size, scenario.shards, np.dtype(np.float64))
        self.accounts = Accounts(self._layout)
        self._check = check_every_event
        self._progress = progress
        self._policy = parse_algorithm(scenario.algorithm)
        self._plan = planner(scenario.topology, self._policy, scenario.peers, scenario.seed)
        self._plan(scenario.peers)  # raises an error if the topology is not valid
        if self._policy.collective and not self.trains:
            raise SettingsError(
                f"{scenario.algorithm} moves no mass, and only the movement of mass is simulated; use sgp, for example"
            )
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._events = 0
        self._ends_at = _NEVER
        self._worst = 0.0
        self._weight_min = self._weight_max = 1.0
        self._trace = xxhash.xxh3_64()
        self._curve: list[tuple[float, float]] = []
        self._found()
        self._incidents = Incidents(self)
        self._measure()

    def _found(self) -> None:
        everybody = Roster(dict.fromkeys(range(self.scenario.peers), 0), self._plan)
        for rank in everybody.members:
            life = self.drawn_life(rank)
            roster = everybody.changed(rank, life) if life else everybody
            # Uniform on [-1, 1), from the seed alone.
            bits = draw_array((self.scenario.seed, 5, rank), np.arange(self.scenario.size))
            values = (bits >> np.uint64(11)).astype(np.float64) / (1 << 52) - 1.0
            self.accounts.begin(self.start(rank, life, values, roster, None))
            if self.scenario.watch is not None:
                for event in (events.Watch(), events.Donate()):
                    self.at(0.0, partial(self.feed, rank, event))
        stack = np.stack([process.core.mass.values for process in self.processes.values()])
        self._mean = stack.mean(axis=0)
        self._spread = float(np.sqrt(((stack - self._mean) ** 2).mean())) or 1.0

    # What Incidents use

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action. Of two actions at the same time, the one that was scheduled first runs first."""
        self._order += 1
        heapq.heappush(self._heap, (max(when, self.now), self._order, action))

    def start(self, rank: int, incarnation: int, values: Values, roster: Roster, donor: Core | None) -> Core:
        """Start a peer; a joining peer takes over its donor's turn and step."""
        core = Core(
            Address(rank, incarnation),
            Mass(self._layout, values),
            roster,
            self._policy,
            self.scenario.settings,
            turns=None if donor is None else donor.turns,
            now=self.now,
            membership=self._membership(rank, incarnation, roster),
        )
        core.step = 0 if donor is None else donor.step
        for address in [] if donor is None else donor.view.departing():
            # Its donor plans without them, but they still have mass to hand over, and this peer may be an heir.
            core.view.leave(address)
        self.processes[rank] = Process(core)
        self._train(rank)
        return core

    def enter(self, rank: int, incarnation: int, contacts: Sequence[int]) -> None:
        """Start a newcomer that knows only the endpoints of some members."""
        self._begin_without_state(rank, incarnation, Roster({rank: incarnation}, self._plan))
        self.feed(rank, events.Join([_record(other, 0) for other in contacts]))

    def _begin_without_state(self, rank: int, incarnation: int, roster: Roster) -> None:
        core = Core(
            Address(rank, incarnation),
            Mass(self._layout, np.zeros(self.scenario.size)),
            roster,
            self._policy,
            self.scenario.settings,
            now=self.now,
            membership=self._membership(rank, incarnation, roster),
        )
        self.processes[rank] = Process(core, adopts=True)
        self.accounts.mint(core)
        self.feed(rank, events.Rest(merge=False))

    def drawn_life(self, rank: int) -> int:
        """Return the life that a process draws from its clock when it starts; 0 where lives are counted."""
        if self.scenario.fixed_hosts is None:
            return 0
        error = self.scenario.fixed_hosts * (draw(self.scenario.seed, 8, rank, int(self.now * 1000)) / 2**64)
        return 1_000_000 + int(1000 * (self.now + error))

    def enter_again(self, rank: int) -> None:
        """Start a peer once more by the command of a founder: it knows where the others are, and not their lives."""
        life = self.drawn_life(rank)
        members = dict.fromkeys(range(self.scenario.peers), 0) | {rank: life}
        self._begin_without_state(rank, life, Roster(members, self._plan))
        self.feed(rank, events.Watch())
        self.feed(rank, events.Adopt([other for other in members if other != rank]))

    def _membership(self, rank: int, incarnation: int, roster: Roster) -> Membership | None:
        if self.scenario.watch is None:
            return None
        known = {other: _record(other, life) for other, life in roster.members.items()}
        return Membership(_record(rank, incarnation), self.scenario.watch, self.scenario.seed, self.now, known)

    def _advance_newcomer(self, rank: int, process: Process, effect: Effect) -> None:
        """Let an admitted newcomer ask for the state, and train once it has it."""
        if isinstance(effect, events.Welcomed):
            self.feed(rank, events.Adopt([other for other in process.core.view.members if other != rank]))
        elif isinstance(effect, events.Adopted):
            process.adopts = False
            process.core.step = max(one.step for one in self._living())
            self.feed(rank, events.Donate())
            self.feed(rank, events.Resume())

    def feed(self, rank: int, event: Event) -> None:
        """Let a peer handle an event, check the books, carry out the effects."""
        process = self.processes[rank]
        core = process.core
        try:
            effects = core.handle(event, self.now)
            self._events += 1
            self._record(rank, event, effects)
            if process.adopts:
                self.accounts.adopts(core)
            self.accounts.after(core, effects)
            self._audit(core)
        except InvariantError as error:
            where = f"seed {self.scenario.seed}, t = {self.now:.6f}, peer {rank}"
            raise InvariantError(f"{where}: {error.message}", error.history or core.history()) from error
        for effect in effects:
            if isinstance(effect, events.Send):
                for arrival, frames in self.network.carry(self.now, rank, effect.to.rank, effect.frames):
                    self.at(arrival, partial(self._deliver, effect.to.rank, frames))
            elif isinstance(effect, events.Proceed):
                self._note_weights(core)
                self._train(rank)
            elif isinstance(effect, events.Reincarnated):
                self._incidents.announce(effect.address)
            elif isinstance(effect, events.Left):
                self._incidents.left(rank)
            elif isinstance(effect, events.Expelled):
                raise InvariantError(f"peer {rank} is expelled: {effect.reason}", core.history())
            else:
                self._heed(rank, process, effect)
        self._arm(rank, process)

    def _heed(self, rank: int, process: Process, effect: Effect) -> None:
        """Handle the other effects."""
        if process.adopts:
            self._advance_newcomer(rank, process, effect)

    # The loop

    def run(self) -> Result:
        """Run to the end."""
        began = time.perf_counter()
        collecting = gc.isenabled()
        gc.disable()  # nothing here is cyclic, and the search for cycles takes a quarter of the time
        try:
            while self.advance():
                pass
        finally:
            if collecting:
                gc.enable()
        if self._progress is not None:
            self._progress(1.0)
        return self._result(time.perf_counter() - began)

    def advance(self) -> bool:
        """Run the next action; return False when the run has ended."""
        if not self._heap or self._heap[0][0] > self._ends_at + _SETTLE:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        action()
        return True

    def _audit(self, core: Core) -> None:
        error = self.accounts.error()
        if not error <= TOLERANCE:
            error = self.accounts.error_of_grown()
        self._worst = max(self._worst, error)
        if not error <= TOLERANCE:
            raise InvariantError(f"mass is not conserved: relative error {error:.3g}", core.history())
        if self._check:
            core.validate_state()

    def _record(self, rank: int, event: Event, effects: list[Effect]) -> None:
        kinds = ",".join([type(effect).__name__ for effect in effects])
        self._trace.update(f"{self.now!r} {rank} {type(event).__name__} {kinds}\n".encode())

    def _note_weights(self, core: Core) -> None:
        if self.now > 50 * self.scenario.step_seconds:
            self._weight_min = min(self._weight_min, *core.mass.weights)
            self._weight_max = max(self._weight_max, *core.mass.weights)

    def runs(self, rank: int, process: Process, again: Callable[[], None]) -> bool:
        """Whether the process can act now. If it is paused, ``again`` is called after the pause."""
        if not process.alive or self.processes.get(rank) is not process:
            return False
        if self.now < process.paused_until:
            self.at(process.paused_until, again)
            return False
        return True

    def _arm(self, rank: int, process: Process) -> None:
        """Schedule the core's next tick."""
        deadline = process.core.deadline
        if deadline is not None and deadline < process.tick_at:
            process.tick_at = deadline
            self.at(deadline, partial(self._tick, rank, process))

    def _tick(self, rank: int, process: Process) -> None:
        if self.runs(rank, process, partial(self._tick, rank, process)):
            process.tick_at = _NEVER
            deadline = process.core.deadline
            if deadline is not None and deadline <= self.now:
                self.feed(rank, events.Tick())
            else:
                self._arm(rank, process)

    def _deliver(self, rank: int, frames: Sequence[Buffer]) -> None:
        process = self.processes.get(rank)
        if process is not None and self.runs(rank, process, partial(self._deliver, rank, frames)):
            self.feed(rank, events.Received(frames))

    # Training

    def _train(self, rank: int) -> None:
        process = self.processes[rank]
        if process.leaves:
            return
        if process.core.step >= self.scenario.steps or self.now >= self._ends_at:
            process.finished = True
            return
        self.at(self.now + self.step_time(rank, process.core.step), partial(self._trained, rank, process))

    def _trained(self, rank: int, process: Process) -> None:
        if self.now > self._ends_at:
            process.finished = True
        elif not process.leaves and self.runs(rank, process, partial(self._trained, rank, process)):
            if self._incidents.before_step(rank, process):
                self._finish(rank)
            elif process.alive and not process.leaves:  # paused just now
                self.at(process.paused_until, partial(self._trained, rank, process))

    def _finish(self, rank: int) -> None:
        """Let a peer finish its step once the time of the step has passed."""
        self.feed(rank, events.StepFinished())

    def step_time(self, rank: int, step: int) -> float:
        """Return the seconds of a peer's step, with jitter and stragglers drawn by the seed."""
        scenario = self.scenario
        uniform = (draw(scenario.seed, 6, rank, step) >> 11) / (1 << 53)
        seconds = scenario.step_seconds * (1 + scenario.jitter * (2 * uniform - 1))
        extra = 0.0
        for straggler in scenario.stragglers:
            if straggler.slows(rank, scenario.seed) and self._lasts(straggler.start, straggler.stop, step):
                seconds *= straggler.factor(rank, scenario.seed)
                extra += straggler.extra
        return seconds + extra

    def _lasts(self, start: Moment | None, stop: Moment | None, step: int) -> bool:
        def passed(moment: Moment) -> bool:
            return (step if moment.in_steps else self.now) >= moment.value

        return (start is None or passed(start)) and (stop is None or not passed(stop))

    # Results

    def agreed(self) -> bool:
        """Whether the members in every living peer's view are exactly the living peers, in their present lives."""
        truth = {core.me.rank: core.me.incarnation for core in self._living()}
        return all(core.view.members == truth for core in self._living())

    def _living(self) -> list[Core]:
        return [process.core for process in self.processes.values() if process.alive]

    def _estimates(self) -> tuple[float, float]:
        """Return the living peers' disagreement and the bias of their mean, relative to the spread at the start."""
        living = self._living()
        if not living:
            return float("nan"), float("nan")
        stack = np.stack([core.mass.values for core in living])
        mean = stack.mean(axis=0)
        disagreement = float(np.sqrt(((stack - mean) ** 2).mean())) / self._spread
        return disagreement, float(np.sqrt(((mean - self._mean) ** 2).mean())) / self._spread

    def _measure(self) -> None:
        """Sample the curve, and check whether the run has ended, once per nominal step."""
        self._curve.append((self.now, self._estimates()[0]))
        # The run does not wait for peers without state: their donors may have finished, and then give nothing more.
        living = [process for process in self.processes.values() if process.alive and not process.adopts]
        finished = sum(process.finished for process in living)
        if self._progress is not None and living:
            self._progress(min(1.0, sum(process.core.step for process in living) / len(living) / self.scenario.steps))
        if self._ends_at == _NEVER:
            if finished == len(living):
                self._ends_at = self.now
            elif 2 * finished >= len(living):
                self._ends_at = _GRACE * self.now
        if finished < len(living):
            self.at(self.now + self.scenario.step_seconds, self._measure)

    def _result(self, wall: float) -> Result:
        steps = [core.step for core in self._living()] or [0]
        disagreement, bias = self._estimates()
        shards = self.scenario.shards
        return Result(
            scenario=self.scenario,
            weight_total=self.accounts.weight / shards,
            weight_written_off=self.accounts.written_off / shards,
            weight_minted=self.accounts.minted / shards,
            weight_contested=self.accounts.contested / shards,
            mass_error=self._worst,
            weight_min=self._weight_min,
            weight_max=self._weight_max,
            disagreement=disagreement,
            bias=bias,
            messages=self.network.counts.messages,
            bytes=self.network.counts.bytes,
            rejected=sum(core.rejections.total for core in self._living()),
            virtual_seconds=self.now,
            steps_per_peer={"min": min(steps), "median": float(np.median(steps)), "max": max(steps)},
            events=self._events,
            wall_seconds=wall,
            alive=bool(self._living()),
            agreed=self.agreed(),
            trace=self._trace.hexdigest(),
            curve=self._curve,
            incidents=self._incidents.log,
        )


def _record(rank: int, incarnation: int) -> Record:
    return Record(rank, incarnation, endpoint=f"peer-{rank}:5555")
