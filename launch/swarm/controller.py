"""Starts the peers, introduces them to each other, watches their output and exits, and restarts them.

It decides nothing that the training depends on. Once the peers have each other's cards they need it no more, and
if it dies they continue.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from gossip.faults import Faults
from gossip.keys import KeyPair
from gossip.net.zmq_transport import new_keys
from launch.swarm.host import Host
from launch.swarm.interrupts import interruptible
from launch.swarm.launch_plan import LaunchPlan
from launch.swarm.launched_peer import LaunchedPeer
from launch.swarm.replicas import LaunchedReplica
from launch.user_errors import Interrupted
from launch.watch.display import CUT_OFF, Display, how
from peers.endings import LEAVING
from peers.invitations import JOIN, WATCH, write_invitations
from peers.table.lives import LIVES_APART

__all__ = ["FAILED", "SOME_FAILED", "Controller"]

#: Exit codes: some peers failed while others finished; none finished. `Interrupted` has that of a stopped launch.
SOME_FAILED, FAILED = 1, 3
#: Seconds of silence after which no message is in flight, and the most messages that are waited for.
_SILENCE, _WORDS = 0.3, 1000
#: The end of a process that was well, but never became a peer: no exit code of a process.
_NEVER_JOINED = 1000


class Controller:
    """One launch."""

    def __init__(
        self,
        plan: LaunchPlan,
        hosts: Callable[[Callable[[int, dict[str, Any]], None]], Mapping[int, Host]],
        faults: Faults,
        display: Display,
        clock: Callable[[], float] = time.monotonic,
        overridden: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        """Prepare.

        Args:
            plan: what to launch.
            hosts: returns the host of each rank, given where they emit what happens.
            faults: the injected ones: kills are the peers' own business, restarts are done here.
            display: shows what happens.
            clock: monotonic seconds.
            overridden: is called with all settings that the script has overridden so far, when there is one more.
        """
        self._overrides: dict[str, Any] = {}
        self._overridden = overridden
        self._plan = plan
        self._display = display
        self._clock = clock
        self._grace = float(plan.common["stop_within"])
        self._queue: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        by_rank = hosts(lambda rank, message: self._queue.put((rank, message)))
        self._peers = {seat.rank: LaunchedPeer(seat, by_rank[seat.rank]) for seat in plan.seats}
        self._hosts = list({id(host): host for host in by_rank.values()}.values())
        self._kills = {rank: sum(1 for kill in faults.kills if kill.rank == rank) for rank in self._peers}
        self._replicas = self._crewed()
        for restart in faults.restarts:
            self._replicas[restart.rank].restarts.append(restart.at)
        #: A swarm that is joined was introduced when it started.
        self._introduced = plan.swarm > 0
        #: Key pairs by which others may join or look, by the file that they are left in.
        self._invitations: dict[str, KeyPair | None] = {JOIN: None, WATCH: None}
        #: Requests to stop: those that came, and those that were followed.
        self._requests = self._followed = 0
        #: The first of them.
        self._first: Interrupted | None = None
        self._aborted = False
        #: When the first peer began to wait for the others.
        self._first_card: float | None = None
        #: When those who were asked to stop are killed.
        self._kill_at: float | None = None
        self._began = clock()

    def run(self) -> int:
        """Launch, and return the exit code when all peers have ended."""
        try:
            with interruptible(self._request):
                if self._plan.spread and not self._plan.insecure:
                    for peer in self._peers.values():
                        pair = new_keys()
                        peer.keys = [pair.public.decode(), pair.secret.decode()]
                    self._invitations = {JOIN: new_keys(), WATCH: new_keys()}
                for peer in self._peers.values():
                    self._start(peer)
                while self._unfinished():
                    try:
                        self._turn()
                    except KeyboardInterrupt:  # of `_request`
                        if self._followed > 1 or self._requests - self._followed > 1:
                            raise
                self._tell_missed()
        finally:
            if self._unfinished():
                self._signal_all(signal.SIGKILL)
            for host in self._hosts:
                host.close()
        return self._exit_code()

    def _crewed(self) -> dict[int, LaunchedReplica]:
        """Return the replica of each rank: the rows of a crew share one."""
        found: dict[int, LaunchedReplica] = {}
        for rank in self._peers:
            if rank not in found:
                crew = self._plan.crew(rank)
                found |= dict.fromkeys(crew, LaunchedReplica([self._peers[one] for one in crew], self._grace))
        return found

    @property
    def _units(self) -> list[LaunchedReplica]:
        return list({id(one): one for one in self._replicas.values()}.values())

    def results(self) -> dict[int, int | None]:
        """Return the exit code of every rank."""
        return {rank: peer.code for rank, peer in self._peers.items()}

    def endings(self) -> dict[int, str]:
        """Return how every rank ended, in its own words; empty if it said nothing."""
        return {rank: peer.ending for rank, peer in self._peers.items()}

    @property
    def rank_taken(self) -> bool:
        """Whether a peer had to stop because another process has its rank."""
        return any(peer.rank_taken for peer in self._peers.values())

    def _tell_missed(self) -> None:
        """Say which injected restarts never came. What peers inject themselves, they tell themselves."""
        furthest = max(peer.step for peer in self._peers.values())
        for replica in self._units:
            for moment in () if self.interrupted or self._aborted else replica.restarts:
                self._display.event(
                    f"the restart of {replica.name} at {moment} never came: training ended at step {furthest}"
                )

    def _exit_code(self) -> int:
        if self.interrupted and self._first is not None:
            return self._first.exit_code
        expected = [row for replica in self._units if not replica.on_purpose for row in replica.rows]
        good = [peer for peer in self._peers.values() if peer.code == 0]
        if all(peer.code == 0 for peer in expected) and good:
            return 0
        return SOME_FAILED if good else FAILED

    def _unfinished(self) -> bool:
        return any(replica.runs or self._will_return(replica) for replica in self._units)

    def _will_return(self, replica: LaunchedReplica) -> bool:
        """Whether a dead replica is still to be started again: only into a swarm that is there."""
        return bool(replica.restarts) and not replica.runs and self._swarm_goes_on() and not self._aborted

    def _request(self, number: int) -> None:
        """Note a request to stop, in a signal handler: it is followed in the next turn.

        An exception from here could come between any two instructions, and what was just taken from the queue would be
        lost: a peer's word that it listens, or its exit, which would be waited for without end. Only what the display
        writes is cut short, for that hangs when nobody reads it. And a second request does not wait for whatever holds
        up the first: it ends the run.
        """
        self._requests += 1
        self._first = self._first or Interrupted(number)
        if self._requests - self._followed > 1:
            raise self._first
        self._display.cut_short()

    @property
    def interrupted(self) -> bool:
        """Whether a request to stop was followed."""
        return self._followed > 0

    def _turn(self) -> None:
        if self._requests > self._followed:
            self._followed += 1
            self._stop()
        elif not self._hear(0.1):
            self._display.refresh()
        for replica in self._units:
            if self._will_return(replica) and self._reached(replica.restarts[0]):
                replica.restarts.pop(0)
                self._restart(replica)
            for row, number in replica.due(self._clock()):
                row.host.signal(row.seat.rank, number)
        self._check_arrivals()
        if self._aborted and self._kill_at is None:
            self._ask_to_stop()
            self._kill_at = self._clock() + self._grace
        if self._kill_at is not None and self._clock() > self._kill_at:
            self._signal_all(signal.SIGKILL)

    def _stop(self) -> None:
        """Follow a request to stop: the first asks all peers, and the second ends them."""
        if self._followed > 1:
            self._signal_all(signal.SIGKILL)
            self._display.event("stopping at once")
        else:
            self._ask_to_stop()
            self._kill_at = self._kill_at or self._clock() + self._grace
            self._display.event(f"stopping within {self._grace:g} s; press Ctrl-C again to stop at once")

    def _hear(self, seconds: float) -> bool:
        """Wait so long for what happens next, and handle it; return whether anything came."""
        try:
            rank, message = self._queue.get(timeout=seconds)
        except queue.Empty:
            return False
        self._handle(self._peers[rank], message)
        return True

    def _reached(self, moment: Any) -> bool:
        step = max(peer.step for peer in self._peers.values())
        return bool(moment.reached(step, self._clock() - self._began))

    def _handle(self, peer: LaunchedPeer, message: dict[str, Any]) -> None:
        rank = peer.seat.rank
        if "line" in message:
            self._display.line(rank, message["line"])
        elif "card" in message:
            peer.card, peer.fresh = message["card"], True
            if self._first_card is None:
                self._first_card = self._clock()
            self._introduce(peer)
        elif "status" in message:
            peer.listens = True
            peer.step = max(peer.step, int(message["status"].get("step", 0)))
            peer.trains = peer.trains or message["status"].get("state") == "training"
            if message["status"].get("state") == LEAVING:
                self._replicas[rank].leaves(rank)
            self._display.status(rank, message["status"])
        elif "override" in message:
            self._note_override(rank, message["override"])
        elif "ended" in message:
            # For an error, that begins with the name of its class.
            peer.ending = str(message["ended"])
            peer.rank_taken = peer.ending.startswith("failed: RankTaken:")
        elif "exit" in message:
            self._ended(peer, message["exit"], lost=message.get("lost", False))

    def _note_override(self, rank: int, settings: Mapping[str, Any]) -> None:
        """Take in that the script has its own value of a setting: say it once, and let it be recorded."""
        for name, value in settings.items():
            if name not in self._overrides:
                launched = self._plan.common.get(name)
                self._display.event(f"the script overrides the command line: {name}={value!r} instead of {launched!r}")
            elif self._overrides[name] != value:
                self._display.event(f"rank {rank} has another {name}: {value!r}, and not {self._overrides[name]!r}")
            self._overrides.setdefault(name, value)
        self._overridden(self._overrides)

    def _start(self, peer: LaunchedPeer, **extra: Any) -> None:
        if peer.keys is not None:
            extra["keys"] = peer.keys
            join, watch = self._invitations[JOIN], self._invitations[WATCH]
            assert join is not None
            assert watch is not None
            extra |= {"join_key": join.public.decode(), "watch_key": watch.public.decode()}
        peer.lives += 1
        peer.running, peer.code, peer.on_purpose, peer.listens, peer.trains = True, None, False, False, False
        peer.ending, peer.fresh = "", False
        peer.host.start(self._plan.process(peer.seat, extra))
        self._display.started(peer.seat.rank, peer.host.name, peer.lives)

    def _introduce(self, peer: LaunchedPeer) -> None:
        """Give everybody all cards, once they are there; one that comes later gets them as soon as its crew is there.

        The card of a lead row says where its crew meets, which is elsewhere in each life.
        """
        if self._aborted:
            return
        cards = {"cards": [one.card for one in self._peers.values() if one.card is not None]}
        if self._introduced:
            replica = self._replicas[peer.seat.rank]
            for row in replica.rows if replica.introduced else ():
                row.host.tell(row.seat.rank, cards)
        elif len(cards["cards"]) == len(self._peers):
            self._introduced = True
            self._invite(cards["cards"])
            for one in self._peers.values():
                one.host.tell(one.seat.rank, cards)

    def _invite(self, cards: list[list[Any]]) -> None:
        """Leave in the run directory what it takes to join, and to look."""
        members = {str(card[1]): str(card[2] or "") for card in cards}
        write_invitations(self._plan.run_dir, members, self._invitations, self._display.event)

    def _ended(self, peer: LaunchedPeer, code: int, *, lost: bool) -> None:
        """Note the exit of a peer; it may run on, if only the connection to its host is lost."""
        rank = peer.seat.rank
        if code == 0 and peer.joined and not peer.ending:
            code = CUT_OFF  # a peer says how it ended, whatever its script does, unless its process is cut off
        peer.running, peer.code = False, code
        if code == -signal.SIGKILL and peer.kills < self._kills[rank]:
            peer.kills += 1
            peer.on_purpose = True
        self._display.ended(rank, code, peer.ending, asked=self.interrupted or self._aborted)
        self._stop_the_late()
        replica = self._replicas[rank]
        if code != 0 and not (self.interrupted or self._aborted or lost):
            replica.died(self._clock())
        what = how(code)
        if code == 0 and not peer.joined:
            peer.code, what = _NEVER_JOINED, "ended without a call of peers.join()"
            self._display.event(f"rank {rank} {what}: the script has to call it once")
        if not self._introduced and peer.code != 0 and not self.interrupted:
            self._abort(rank, what)  # the other peers cannot start without its card
        elif self._is_started_again(replica):
            self._restart(replica)
        elif not (peer.trains or replica.restarts or lost or self.interrupted):
            self._tell_waiting(rank, what)

    def _is_started_again(self, replica: LaunchedReplica) -> bool:
        """Whether a replica whose last process has just ended is started again at once, with its ranks."""
        rows = replica.rows
        joined = all(row.card is not None and not row.rank_taken for row in rows)
        may = replica.failed and joined and not replica.restarts
        # The others of a swarm that was joined are not seen from here: it was there if this peer has trained in it.
        trained = all(row.trains for row in rows)
        goes_on = trained and not self.interrupted if self._plan.swarm else self._swarm_goes_on()
        return may and rows[0].lives <= self._plan.restarts and goes_on

    def _abort(self, rank: int, what: str) -> None:
        """End the launch before the swarm has begun; who waits for a rank is told what happened to it."""
        if not self._aborted:
            self._aborted = True
            self._tell_waiting(rank, what)
            self._display.event(
                f"rank {rank} {what} before the swarm could start, so all peers are stopped; see its log"
            )

    def _tell_waiting(self, rank: int, what: str) -> None:
        """Tell those who have not attached a model that they wait in vain for a rank; they end with an error."""
        for other in self._peers.values():
            if other.running and not other.trains and other.card is not None:
                other.host.tell(other.seat.rank, {"failed": [rank, what]})

    def _check_arrivals(self) -> None:
        """End the launch if some ranks have not shown their cards in time."""
        if self._introduced or self._aborted or self._first_card is None:
            return
        if self._clock() - self._first_card > float(self._plan.common["start_timeout"]):
            late = [rank for rank, peer in self._peers.items() if peer.card is None]
            seconds = f"{self._plan.common['start_timeout']:g} s"
            others = f" (nor did ranks {', '.join(map(str, late[1:]))})" if late[1:] else ""
            self._abort(late[0], f"did not call peers.join within {seconds}{others}")

    def _stop_the_late(self) -> None:
        """Stop restarted peers that no longer find a peer to get the model from."""
        running = [peer for peer in self._peers.values() if peer.running]
        if not self._plan.swarm and all(peer.lives > 1 and not peer.trains for peer in running):
            for peer in running:
                peer.on_purpose = True
                self._display.event(
                    f"rank {peer.seat.rank} restarted too late and is stopped: the other peers have finished"
                )
                peer.host.signal(peer.seat.rank, signal.SIGKILL)

    def _swarm_goes_on(self) -> bool:
        return not self.interrupted and any(peer.running for peer in self._peers.values())

    def _restart(self, replica: LaunchedReplica) -> None:
        replica.starts()
        for row in replica.rows:
            self._start_again(row)

    def _start_again(self, peer: LaunchedPeer) -> None:
        assert peer.card is not None
        # At its old address, where the others look for it.
        port = int(peer.card[1].rpartition(":")[2])
        bind = self._plan.bind(peer.seat, port) if self._plan.spread else peer.card[1]
        self._start(
            peer,
            bind=bind,
            incarnation=int(self._plan.common.get("incarnation", 0)) + LIVES_APART * peer.lives,
            killed=peer.kills,
            elapsed=self._clock() - self._began,
            resume=False,
        )

    def _ask_to_stop(self) -> None:
        """Ask all peers to end by themselves; end those that do not listen yet, and would only print a traceback.

        Those who wait for the cards of an aborted launch have been told why, and end with an error that says so.
        """
        if self._aborted and not self.interrupted:
            for rank, peer in self._peers.items():
                if peer.running and peer.card is None:
                    peer.host.signal(rank, signal.SIGTERM)
            return
        asked = {rank for rank, peer in self._peers.items() if peer.running and peer.listens}
        for rank in asked:
            self._peers[rank].host.signal(rank, signal.SIGINT)
        self._hear_out()
        for rank, peer in self._peers.items():
            if peer.running and rank not in asked:
                peer.host.signal(rank, signal.SIGINT if peer.listens else signal.SIGTERM)

    def _hear_out(self) -> None:
        """Handle the messages in flight while some peer has not said that it listens: it may have just said so."""
        for _ in range(_WORDS):
            if all(peer.listens for peer in self._peers.values() if peer.running):
                return
            if self._requests > self._followed or not self._hear(_SILENCE):
                return

    def _signal_all(self, number: int) -> None:
        for peer in self._peers.values():
            if peer.running:
                peer.host.signal(peer.seat.rank, number)
