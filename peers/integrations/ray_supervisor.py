"""The driver's part of a swarm on Ray: it starts the peers, introduces them to each other, and starts the dead again.

It is no coordinator. It hands settings, keys and addresses over once, and from then on it listens. What it does is what
the launcher does on hosts without Ray (`launch.swarm.controller`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from gossip.faults import parse_faults
from gossip.keys import KeyPair
from gossip.net.zmq_transport import new_keys
from peers.integrations.ray_member import NODE, OVER, STOPPED, TALK, VALUE, Member
from peers.integrations.ray_placement import Placement
from peers.integrations.ray_results import LostPeer, PeerResult
from peers.invitations import JOIN, WATCH, write_invitations
from peers.setup import Setup
from peers.table.lives import LIVES_APART

__all__ = ["Supervisor", "why"]

_log = logging.getLogger("gossip")
#: Seconds between two looks at the clock while nothing happens.
_GLANCE = 1.0
#: Seconds to wait for the last words of a peer whose function is over.
_LAST_WORDS = 10.0


@dataclass
class _Place:
    """What the driver knows of one rank: how its present life runs, or how the last one ended."""

    rank: int
    keys: KeyPair | None
    lives: int = 0
    kills: int = 0
    #: The actor of the present life, and the calls that are under way; None if none runs.
    actor: Any = None
    running: Any = None
    hearing: Any = None
    #: Where the peer is, whether it has trained, and whether it has come to its end, in this life.
    card: list[Any] | None = None
    trained: bool = False
    finished: bool = False
    over: bool = False
    #: Whether this life comes into a swarm that trains.
    returns: bool = False
    node: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    value: Any = None
    error: BaseException | None = None
    #: When the last life ended.
    ended: float = 0.0

    def result(self) -> PeerResult:
        hidden = ("rank", "state")
        metrics = {name: value for name, value in self.row.items() if name not in hidden} if self.row else {}
        return PeerResult(self.rank, self.value, self.error, max(self.lives - 1, 0), metrics, self.node)


class Supervisor:
    """Runs the peers of one swarm, from the first to the last."""

    def __init__(
        self,
        function: Callable[..., Any],
        config: Mapping[str, Any],
        setup: Setup,
        told: Mapping[str, Any],
        placement: Placement,
        *,
        restarts: int,
        stop_timeout: float,
    ) -> None:
        """Prepare; no actor is started yet.

        Args:
            function: of the user, or a reference to it.
            config: for the function.
            setup: the settings of all peers.
            told: those of them that peers are told.
            placement: room for all peers.
            restarts: how often a rank is started again.
            stop_timeout: seconds from a request to stop until peers are killed.
        """
        self._function, self._config = function, config
        self._setup, self._told, self._placement = setup, told, placement
        self._restarts, self._stop_timeout = restarts, stop_timeout
        n = setup.world_size
        self._places = [_Place(rank, None if setup.insecure else new_keys()) for rank in range(n)]
        self._local_ranks = placement.local_ranks()
        #: The key pairs of those who may join or watch, by the files that they are left in.
        self._invitations = {name: None if setup.insecure else new_keys() for name in (JOIN, WATCH)}
        faults = parse_faults(setup.faults, n, setup.seed)
        self._planned_kills = {rank: sum(kill.rank == rank for kill in faults.kills) for rank in range(n)}
        self._introduced = self._aborted = False
        self._began = time.monotonic()
        #: When the first peer began to wait for the others.
        self._first_card: float | None = None
        self._interrupted: BaseException | None = None
        self._kill_at = self._insist_at = float("inf")

    def run(self) -> tuple[PeerResult, ...]:
        """Start all peers, and return how they ended once all have."""
        try:
            for place in self._places:
                self._start(place)
            while self._live():
                try:
                    self._turn()
                except (KeyboardInterrupt, SystemExit) as request:
                    if self._interrupted is not None:
                        raise
                    self._interrupted = request
                    self._ask_to_stop()
        finally:
            for place in self._live():
                ray.kill(place.actor)
        if self._interrupted is not None:
            raise self._interrupted
        return tuple(place.result() for place in self._places)

    @property
    def first_lost(self) -> int:
        """The rank that ended first: if none finished, the others may have ended because of it."""
        return min(self._places, key=lambda place: place.ended).rank

    def _live(self) -> list[_Place]:
        return [place for place in self._places if place.actor is not None]

    # One life

    def _start(self, place: _Place) -> None:
        place.lives += 1
        place.card, place.trained, place.finished, place.over = None, False, False, False
        place.returns = self._introduced
        actor = ray.remote(concurrency_groups=TALK)(Member)
        place.actor = actor.options(max_restarts=0, **self._placement.options(place.rank)).remote()
        place.running = place.actor.run.remote(self._function, self._config, self._setup_of(place))
        self._listen(place)

    def _setup_of(self, place: _Place) -> dict[str, Any]:
        """Return what a life is told. Secret keys go with the call, and so by Ray's own connection to the actor."""
        told = {**self._told, "rank": place.rank, "local_rank": self._local_ranks[place.rank]}
        told["stop_within"] = self._stop_timeout
        if place.keys is not None:
            told["keys"] = [place.keys.public.decode(), place.keys.secret.decode()]
            for name, setting in ((JOIN, "join_key"), (WATCH, "watch_key")):
                pair = self._invitations[name]
                assert pair is not None
                told[setting] = pair.public.decode()
        if place.lives > 1:
            elapsed = time.monotonic() - self._began
            told |= {"killed": place.kills, "elapsed": elapsed}
            if place.returns:
                told |= {"incarnation": LIVES_APART * (place.lives - 1), "resume": False}
        return told

    def _listen(self, place: _Place) -> None:
        place.hearing = place.actor.hear.options(concurrency_group="talk").remote()

    def _tell(self, place: _Place, message: Mapping[str, Any]) -> None:
        place.actor.tell.options(concurrency_group="talk").remote(message)

    def _end(self, place: _Place) -> None:
        """Free what a life has held."""
        ray.kill(place.actor)
        place.actor = place.running = place.hearing = None
        place.ended = time.monotonic()

    # What happens

    def _turn(self) -> None:
        calls = {call: place for place in self._live() for call in (place.running, place.hearing) if call is not None}
        ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        ready = ready or ray.wait(list(calls), num_returns=1, timeout=_GLANCE)[0]
        for call in ready:
            place = calls[call]
            if call == place.hearing:
                self._hear(place)
            elif call == place.running:
                self._over(place)
        self._check_time()

    def _hear(self, place: _Place) -> None:
        try:
            messages = ray.get(place.hearing)
        except ray.exceptions.RayError:
            place.hearing = None  # the end of the other call says why
            return
        for message in messages:
            self._handle(place, message)
        place.hearing = None
        if not place.over:
            self._listen(place)

    def _handle(self, place: _Place, message: Mapping[str, Any]) -> None:
        if NODE in message:
            place.node = message[NODE]
        elif "card" in message:
            place.card = message["card"]
            self._first_card = self._first_card or time.monotonic()
            self._introduce(place)
        elif "status" in message:
            place.row = {**place.row, **message["status"]}
            place.trained |= message["status"].get("state") == "training"
        elif "ended" in message:
            place.finished = message["ended"] == "finished"
        elif OVER in message:
            place.over = True

    def _introduce(self, place: _Place) -> None:
        """Give everybody all cards once they are there; one that comes later gets them at once."""
        cards = [one.card for one in self._places if one.card is not None]
        if self._introduced:
            self._tell(place, {"cards": cards})
        elif len(cards) == len(self._places) and not self._aborted:
            self._introduced = True
            if self._setup.run_dir:
                members = {str(card[1]): str(card[2] or "") for card in cards}
                write_invitations(Path(self._setup.run_dir), members, self._invitations, _log.warning)
            for one in self._live():
                self._tell(one, {"cards": cards})

    def _over(self, place: _Place) -> None:
        """Take in that the life of a rank is over, and how."""
        error: BaseException | None = None
        value: Mapping[str, Any] = {}
        died = False
        try:
            value = ray.get(place.running)
        except Exception as caught:  # noqa: BLE001 - whatever the function raised
            error, died = caught, _died(caught)
        if not died:
            self._hear_out(place)
        if STOPPED in value:
            error = LostPeer(f"rank {place.rank} stopped as it was asked to")
        elif error is None and place.card is None:
            error = LostPeer(f"rank {place.rank} is lost: its function returned without a call of peers.join()")
        place.kills += died and place.kills < self._planned_kills[place.rank]
        self._end(place)
        if error is None:
            place.value, place.error = value[VALUE], None
        else:
            place.error = error
            self._lost(place, died=died)
        self._stop_the_late()

    def _hear_out(self, place: _Place) -> None:
        """Hear the last words of a peer whose function is over."""
        deadline = time.monotonic() + _LAST_WORDS
        while place.hearing is not None and not place.over and time.monotonic() < deadline:
            if ray.wait([place.hearing], timeout=max(0.0, deadline - time.monotonic()))[0]:
                self._hear(place)

    def _lost(self, place: _Place, *, died: bool) -> None:
        """Start a rank again whose life ended early, or tell those who wait for it that it does not come."""
        assert place.error is not None
        what = why(place.error)
        trained = place.trained
        # A function that raises before it trains would raise again. An actor that dies may have been on a lost node.
        worth_it = died or (trained and not place.finished)
        swarm_goes_on = any(not one.finished for one in self._live()) or (died and not self._introduced)
        if worth_it and swarm_goes_on and not self._stopping and place.lives <= self._restarts:
            again = f"it is started again, {place.lives} of {self._restarts}"
            _log.warning("rank %d %s; %s", place.rank, what, again)
            self._start(place)
            return
        if self._interrupted is None:
            _log.warning("rank %d %s", place.rank, what)
        if not trained:
            self._tell_waiting(place.rank, what)
        if not self._introduced:
            self._aborted = True

    @property
    def _stopping(self) -> bool:
        return self._aborted or self._interrupted is not None

    def _tell_waiting(self, rank: int, what: str) -> None:
        """Tell those who have not attached a model that they wait in vain for a rank; they end with an error."""
        for other in self._live():
            if other.card is not None and not other.trained:
                self._tell(other, {"failed": [rank, what]})

    # The clock

    def _check_time(self) -> None:
        now = time.monotonic()
        if not self._introduced and self._first_card is not None and not self._stopping:
            late = [place for place in self._places if place.card is None]
            if late and now - self._first_card > self._setup.start_timeout:
                self._give_up(late)
        if now > self._insist_at:
            self._insist_at = float("inf")
            self._stop_all(at_once=True)
        if now > self._kill_at:
            for place in self._live():
                self._lose(place, f"did not stop within {self._stop_timeout:g} s")

    def _give_up(self, late: list[_Place]) -> None:
        """End the run before it has begun: some peers have not come."""
        self._aborted = True
        seconds = f"{self._setup.start_timeout:g} s"
        for place in late:
            what = f"did not call peers.join() within {seconds} after the first peer did"
            self._lose(place, what)
            self._tell_waiting(place.rank, what)

    def _stop_the_late(self) -> None:
        """End restarted peers that find nobody any more to get the model from: also one that was never placed again."""
        live = self._live()
        if live and all(place.returns and not place.trained for place in live):
            for place in live:
                self._lose(place, "was started again, and the others had finished by then")

    def _lose(self, place: _Place, what: str) -> None:
        """Kill a life; what the former one died of stays the reason, if there is one."""
        error = LostPeer(f"rank {place.rank} is lost: it {what}")
        _log.warning("%s", error)
        self._end(place)
        place.error = place.error or error

    # Stopping

    def _ask_to_stop(self) -> None:
        _log.warning("stopping within %g s; press Ctrl-C again to stop at once", self._stop_timeout)
        now = time.monotonic()
        self._insist_at, self._kill_at = now + self._stop_timeout / 2, now + self._stop_timeout
        self._stop_all(at_once=False)

    def _stop_all(self, *, at_once: bool) -> None:
        for place in self._live():
            place.actor.stop.options(concurrency_group="talk").remote(at_once)


def _died(error: Exception) -> bool:
    """Whether the process is gone, and not the function failed, or Ray could not load what it is to run."""
    failed = isinstance(error, ray.exceptions.RayTaskError) or getattr(error, "actor_init_failed", False)
    return isinstance(error, ray.exceptions.RayError) and not failed


def why(error: BaseException) -> str:
    """Return what happened to a peer, in a line that goes behind its rank."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    if isinstance(error, LostPeer):
        return str(error).partition(" ")[2].partition(" ")[2]  # it begins with the rank
    if isinstance(error, ray.exceptions.RayTaskError):
        return f"failed: {error.cause!r:.300}"
    if getattr(error, "actor_init_failed", False):
        return f"could not start, is gossip installed on its node? {lines[-1]:.300}"
    reason = next((line for line in lines if line.startswith("The actor died because")), lines[0])
    return f"died: {reason.rstrip('.'):.300}"
