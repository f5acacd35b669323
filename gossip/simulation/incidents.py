"""The incidents of a simulated swarm: kills, pauses, joins, leaves, restarts, cuts.

Peers do not learn of an incident at once. If the peers watch each other, they have to detect it. Otherwise the
simulator tells them what a failure detector would find: `detect` seconds after the fact, only peers that are alive
then, and only if it is still true.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gossip import events
from gossip.events import Event
from gossip.faults import Cut, Incident, Moment, Pause
from gossip.wire.messages import Address
from topologies.draws import draw

if TYPE_CHECKING:
    from gossip.simulation.swarm import Process, Swarm

__all__ = ["Incidents"]

News = Callable[[], "list[tuple[int, Event]]"]


class Incidents:
    """Carries out the faults of a scenario on a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._happened: set[int] = set()  #: the ids of incidents at a peer's own step that have happened
        #: The incidents that happened, each with its time in virtual seconds.
        self.log: list[tuple[float, str]] = []
        scenario = swarm.scenario
        for kill in scenario.kills:
            if not kill.at.in_steps:
                swarm.at(kill.at.value, partial(self._kill, kill.rank))
        for pause in scenario.pauses:
            if not pause.at.in_steps:
                swarm.at(pause.at.value, partial(self._pause, pause))
        for incident in (*scenario.joins, *scenario.restarts):
            swarm.at(self._seconds(incident.at), partial(self._join, incident))
        for leave in scenario.leaves:
            if not leave.at.in_steps:
                swarm.at(leave.at.value, partial(self._leave, leave.rank))
        for cut in scenario.cuts:
            swarm.at(self._seconds(cut.at), partial(self._cut, cut))

    def before_step(self, rank: int, process: Process) -> bool:
        """Run the incidents that are due at this step of this peer; return whether it can still take the step."""
        for kill in self._swarm.scenario.kills:
            if self._is_due(kill, rank, process.core.step + 1):
                self._kill(rank)
                return False
        for pause in self._swarm.scenario.pauses:
            if self._is_due(pause, rank, process.core.step + 1):
                self._pause(pause)
                return False
        for leave in self._swarm.scenario.leaves:
            if self._is_due(leave, rank, process.core.step + 1):
                self._leave(rank)
                return False
        return True

    def _is_due(self, what: Incident | Pause, rank: int, step: int) -> bool:
        """Whether an incident is due at this step of this peer, and has not happened yet."""
        due = what.rank == rank and what.at.in_steps and what.at.value <= step and id(what) not in self._happened
        if due:
            self._happened.add(id(what))
        return due

    def _seconds(self, moment: Moment) -> float:
        return moment.seconds(self._swarm.scenario.step_seconds)

    def _tell(self, news: News) -> None:
        if self._swarm.scenario.watch is not None:
            return

        def tell() -> None:
            for rank, event in news():
                hear(rank, event)

        def hear(rank: int, event: Event) -> None:
            process = self._swarm.processes.get(rank)
            if process is not None and self._swarm.runs(rank, process, partial(hear, rank, event)):
                self._swarm.feed(rank, event)

        self._swarm.at(self._swarm.now + self._swarm.scenario.detect, tell)

    def announce(self, address: Address) -> None:
        """Tell the others of a new incarnation, as a failure detector would."""

        def news() -> list[tuple[int, Event]]:
            return [(other, events.PeerAlive(address)) for other in self._swarm.processes if other != address.rank]

        self._tell(news)

    def _kill(self, rank: int) -> None:
        process = self._swarm.processes.get(rank)
        if process is None or not process.alive:
            return
        process.alive = False
        self._note(f"kill {rank}")
        self._swarm.accounts.end(process.core)
        dead = process.core.me
        self._tell(lambda: [(other, events.PeerDied(dead)) for other in self._swarm.processes if other != rank])

    def _leave(self, rank: int) -> None:
        process = self._swarm.processes.get(rank)
        if process is None or process.leaves or not self._swarm.runs(rank, process, partial(self._leave, rank)):
            return  # a paused peer leaves after its pause
        process.leaves = True
        self._note(f"leave {rank}")
        self._swarm.feed(rank, events.Leave())

    def left(self, rank: int) -> None:
        """End a process that has handed over all its mass."""
        process = self._swarm.processes[rank]
        process.alive = False
        self._note(f"left {rank}")
        self._swarm.accounts.end(process.core)
        gone = process.core.me
        self._tell(lambda: [(other, events.PeerDied(gone)) for other in self._swarm.processes if other != rank])

    def _pause(self, pause: Pause) -> None:
        process = self._swarm.processes.get(pause.rank)
        if process is None or not process.alive:
            return
        process.paused_until = until = max(process.paused_until, self._swarm.now + self._seconds(pause.span))
        stopped = process.core.me
        self._note(f"pause {pause.rank}")

        def news() -> list[tuple[int, Event]]:
            others = [other for other in self._swarm.processes if other != pause.rank]
            return [(other, events.PeerDied(stopped)) for other in others if self._swarm.now < until]

        self._tell(news)

    def _join(self, incident: Incident) -> None:
        """Start or restart a peer, with the values of a donor and a new weight of 1."""
        before = self._swarm.processes.get(incident.rank)
        if before is not None and before.alive and not before.finished:
            # A kill counts the peer's own steps, so it may come later than a restart, which counts nominal steps.
            self._swarm.at(self._swarm.now + self._swarm.scenario.step_seconds, partial(self._join, incident))
        donors = [
            rank
            for rank, process in self._swarm.processes.items()
            if process.alive and self._swarm.now >= process.paused_until
        ]
        if (before is not None and before.alive) or not donors:
            return
        chosen = draw(self._swarm.scenario.seed, 7, incident.rank) % len(donors)
        donor = self._swarm.processes[donors[chosen]].core
        incarnation = 0 if before is None else before.core.me.incarnation + 1
        if self._swarm.scenario.watch is not None:
            self._note(f"{'join' if before is None else 'restart'} {incident.rank}")
            if self._swarm.scenario.fixed_hosts is not None and before is not None:
                self._swarm.enter_again(incident.rank)
                return
            self._swarm.enter(incident.rank, incarnation, [*donors[chosen:], *donors[:chosen]])
            return
        core = self._swarm.start(incident.rank, incarnation, donor.mass.values.copy(), donor.view.roster, donor)
        self._swarm.accounts.mint(core)
        self._note(f"{'join' if before is None else 'restart'} {incident.rank}")
        self.announce(core.me)

    def _note(self, what: str) -> None:
        self.log.append((self._swarm.now, what))

    def _cut(self, cut: Cut) -> None:
        separates = cut.separates
        self._swarm.network.cut(separates)
        self._note("cut")
        until = self._swarm.now + self._seconds(cut.span)

        def apart(event: type[events.PeerDied] | type[events.PeerAlive]) -> list[tuple[int, Event]]:
            living = {rank: process.core.me for rank, process in self._swarm.processes.items() if process.alive}
            return [(a, event(living[b])) for a in living for b in living if separates(a, b)]

        def heal() -> None:
            self._swarm.network.heal(separates)
            self._note("heal")
            self._tell(lambda: apart(events.PeerAlive))

        self._tell(lambda: apart(events.PeerDied) if self._swarm.now < until else [])
        self._swarm.at(until, heal)
