"""Runs a core on a transport: the one thread, and the one loop, that touches either.

The trainer's side is a few calls. `step` hands the values over and returns when the core says `Proceed`, with whatever
had arrived merged in; `merge`, `rest` and `resume` lend the values without pushing; `reduce` replaces a vector by what
all get of all, and `synchronize` and `withdraw` say from when to when this peer takes part in that; `post` raises any
other event; `leave` hands everything over to the others; `close` ends everything. They go through a queue, and the loop
is woken for them, so a trainer never waits for a socket.

A peer is connected to when the first message for it is sent; `introduce` says where it is, and so does membership
when somebody joins or moves. A peer that is no member, a newcomer or a guest, is written to by its endpoint.

Should the loop fail, nothing is swallowed: the next call of the trainer raises what happened.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from gossip import events
from gossip.core.core import Core
from gossip.core.status import Status
from gossip.endpoint import Endpoint
from gossip.errors import GossipError
from gossip.events import Effect, Event
from gossip.membership import Record, State
from gossip.net.promise import Promise
from gossip.net.transport import Transport
from gossip.values.blocks import Values
from gossip.values.buffers import Buffer

__all__ = ["Driver", "DriverError"]

#: Messages taken in before the loop looks at the trainer's calls again.
_BATCH = 64
#: For how long, and how often, a message is tried again that finds no connection and that nobody sends again soon; and
#: how many of them are kept.
_INSIST, _RETRY, _KEPT = 1.0, 0.01, 256
#: How often whoever waits for others looks whether it still makes sense.
_GLANCE = 0.2
#: Seconds between two new connections to the same peer: at least, and as long as nothing it is sent is answered.
_RENEWED, _RENEWED_CEILING = 1.0, 8.0
#: Connections to those who are no members.
_GUESTS = 16


class DriverError(GossipError):
    """The driver is closed, or its loop failed."""


class Driver:
    """A core, a transport, and the thread that joins them."""

    def __init__(
        self,
        core: Core,
        transport: Transport,
        *,
        listen: Callable[[Effect], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a core and a transport over; nobody else may touch them until `close`.

        Args:
            core: the protocol of this peer.
            transport: connected to the peers already.
            listen: is called, in the driver's thread, with each effect that is not a message.
            clock: monotonic seconds.
        """
        self._core = core
        core.outlet.sink = self._carry_out
        #: What the trainer's thread and all others may know of the core: published here, in this thread.
        self._status = core.status()
        self._stale = False
        self._transport = transport
        self._listen = listen
        self._clock = clock
        self._posted: deque[Event] = deque()
        self._introduced: deque[tuple[int, Endpoint, bytes | None]] = deque()
        #: What the trainer waits for, or will, and what of it has come about with the present event.
        self._promises: list[Promise] = []
        self._kept: list[Promise] = []
        #: Is held during a call: two threads would take each other's answers, and wait for ever.
        self._calling = threading.Lock()
        #: Whether the core has left: it answers nothing but `Leave` any more.
        self._left = False
        self._directory: dict[int, tuple[Endpoint, bytes | None]] = {}
        #: Where members are said to be.
        self._homes: dict[int, tuple[str, str]] = {}
        #: When a rank was last connected to anew, and the pause until it may be again.
        self._renewed: dict[int, tuple[float, float]] = {}
        #: Where those were who are dead: they are greeted now and then, and have no connection of their own.
        self._dead: dict[int, tuple[str, str]] = {}
        #: What the transport calls those who are no members, by endpoint and key: numbers below 0, oldest first.
        self._guests: dict[tuple[str, str], int] = {}
        self._guest_count = 0
        #: Messages to try again: until when, to whom, what.
        self._insisted: deque[tuple[float, int, Sequence[Buffer]]] = deque(maxlen=_KEPT)
        #: Bytes that were handed to the transport and came from it, and messages that it did not take.
        self.bytes_sent = self.bytes_received = self.dropped = 0
        self._idle = threading.Event()
        self._stop = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"gossip-{core.me.rank}", daemon=True)

    def __enter__(self) -> Driver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def step(self, timeout: float | None = None) -> None:
        """Hand a finished step over; return when the next one may start."""
        self._call(events.StepFinished(), events.Proceed, timeout)

    def merge(self, timeout: float | None = None) -> None:
        """Merge what has arrived into the values; nothing is pushed."""
        self._call(events.Merge(), events.Merged, timeout)

    def rest(self, timeout: float | None = None, *, merge: bool = True) -> None:
        """Hand the values over until `resume`; what arrives is merged at once, or waits for the next step."""
        self._call(events.Rest(merge), events.Rested, timeout)

    def resume(self, timeout: float | None = None) -> None:
        """Take the values back after a `rest`."""
        self._call(events.Resume(), events.Proceed, timeout)

    def synchronize(self, number: int, seal: int, check: Callable[[], None]) -> events.Synchronized:
        """Take part in a collective exchange from now on; return when this peer has the state of the others.

        Args:
            number: where this peer is, if it has been there before.
            seal: a hash of its state.
            check: is called now and then, and may raise.
        """
        answer = self._call(events.Synchronize(number, seal), events.Synchronized, None, check)
        assert isinstance(answer, events.Synchronized)
        return answer

    def reduce(self, values: Values, check: Callable[[], None], lossy: int = 0) -> events.Reduced:
        """Replace a vector by what everybody gets of everybody's; whoever takes part is waited for."""
        return self.reduced(self.begin_reduce(values, lossy), check)

    def begin_reduce(self, values: Values, lossy: int = 0) -> Promise:
        """Begin to replace a vector, which is the core's until the promise is kept; the trainer may go on meanwhile."""
        return self._expect(events.Reduce(values, lossy), events.Reduced)

    def wait(self, promise: Promise, seconds: float, check: Callable[[], None]) -> bool:
        """Wait for a promise for some time; return whether it is kept, or never will be."""
        deadline = self._clock() + seconds
        while not promise.done and (left := deadline - self._clock()) > 0:
            promise.wait(min(left, _GLANCE))
            self._raise_failure()
            check()
        return promise.done

    def reduced(self, promise: Promise, check: Callable[[], None]) -> events.Reduced:
        """Wait for the outcome of `begin_reduce`."""
        answer = self._kept_promise(promise, None, check)
        if not isinstance(answer, events.Reduced):
            raise DriverError(f"{type(promise.event).__name__} was not answered: this peer has left the swarm")
        return answer

    def withdraw(self, check: Callable[[], None]) -> None:
        """Take no part in collective exchanges until the next `synchronize`; return when nobody lacks our results."""
        self._call(events.Withdraw(), events.Withdrawn, None, check)

    def leave(self, timeout: float) -> bool:
        """Hand all mass over to those who stay, and go; return whether that came about in time."""
        finished = True
        if timeout > 0:
            try:
                self._call(events.Leave(), events.Left, timeout)
            except DriverError:
                self._raise_failure()
                finished = False
        if not finished or timeout <= 0:
            self._call(events.Leave(at_once=True), events.Left, None)
        return finished

    def _call(
        self, event: Event, awaited: type[Effect], timeout: float | None, check: Callable[[], None] | None = None
    ) -> Effect:
        if isinstance(event, events.Leave):  # ends whatever another thread waits for
            return self._answered_call(event, awaited, timeout, check)
        if not self._calling.acquire(blocking=False):
            raise DriverError(
                f"{type(event).__name__} comes from a second thread, while another one is in a step or in consensus(): "
                "let one thread train"
            )
        try:
            return self._answered_call(event, awaited, timeout, check)
        finally:
            self._calling.release()

    def _answered_call(
        self, event: Event, awaited: type[Effect], timeout: float | None, check: Callable[[], None] | None
    ) -> Effect:
        return self._kept_promise(self._expect(event, awaited), timeout, check)

    def _expect(self, event: Event, awaited: type[Effect]) -> Promise:
        if self._left and not isinstance(event, events.Leave):
            raise DriverError(f"{type(event).__name__} cannot be handled any more: this peer has left the swarm")
        promise = Promise(event, awaited)
        self._promises.append(promise)
        self.post(event)
        return promise

    def _kept_promise(self, promise: Promise, timeout: float | None, check: Callable[[], None] | None = None) -> Effect:
        name = type(promise.event).__name__
        finished = promise.wait(timeout if check is None else _GLANCE)
        while check is not None and not finished:
            self._raise_failure()
            check()
            finished = promise.wait(_GLANCE)
        self._raise_failure()
        if not finished:
            with suppress(ValueError):  # it came about just now
                self._promises.remove(promise)
            raise DriverError(f"{name} was not answered within {timeout} seconds")
        if promise.answer is None:
            raise DriverError(f"{name} was not answered: the driver was closed meanwhile")
        return promise.answer

    def introduce(self, rank: int, endpoint: Endpoint, key: bytes | None = None, *, now: bool = False) -> None:
        """Say where a rank is to be found; connect at once, or with the first message for it."""
        self._directory[rank] = endpoint, key
        self._homes[rank] = str(endpoint), "" if key is None else key.decode()
        if now:
            self._introduced.append((rank, endpoint, key))
            self._transport.wake()

    def post(self, event: Event) -> None:
        """Raise an event in the core, from any thread."""
        self._raise_failure()
        if self._stop:
            raise DriverError(f"{type(event).__name__} cannot be handled any more: the driver is closed")
        self._posted.append(event)
        self._transport.wake()

    def check(self) -> None:
        """Raise if the loop has failed."""
        self._raise_failure()

    def status(self) -> Status:
        """Return a picture of the core, from any thread: as of the last call that was answered, or later."""
        return self._status

    def measure(self, on: bool) -> None:
        """Let the steps from now on only mix and measure how far others are, or let them train again."""
        self.post(events.Measure(on))

    def advance(self, step: int) -> None:
        """Go on from a step that was adopted from others."""
        self.post(events.Advance(step))

    def records(self) -> list[Record]:
        """Return what membership knows of everybody; only for `listen`, which runs in the driver's own thread."""
        assert threading.current_thread() is self._thread, "only the driver's thread reads the core"
        return [] if self._core.membership is None else list(self._core.membership.records())

    def flush(self, timeout: float) -> bool:
        """Wait until every parcel that was sent is answered; return whether that came about in time."""
        deadline = self._clock() + timeout
        while not self._idle.wait(0.05):
            self._raise_failure()
            if self._clock() > deadline:
                return False
        return True

    def close(self) -> None:
        """End the loop and the transport; the core is the caller's again. What is in flight stays in its outbox."""
        self._stop = True
        self._transport.wake()
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._transport.close()
        self._core.outlet.sink = None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise DriverError(f"the gossip thread failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            while not self._stop:
                self._turn()
            while self._posted:  # such as a farewell
                self._handle(self._posted.popleft())
        except BaseException as failure:  # noqa: BLE001 - whatever it is, the trainer's thread raises it
            self._failure = failure
        finally:
            for last in (self._publish, self._transport.close):
                try:
                    last()
                except BaseException as failure:  # noqa: BLE001 - as above; what failed first is the cause
                    self._failure = self._failure or failure
            for promise in (*self._promises, *self._kept):
                promise.end()

    def _turn(self) -> None:
        """Take in what there is to take in, then wait for more."""
        while self._introduced:
            rank, endpoint, key = self._introduced.popleft()
            self._directory.pop(rank, None)
            self._transport.connect(rank, endpoint, key)
        while self._posted:
            self._handle(self._posted.popleft())
        for _ in range(_BATCH):
            frames = self._transport.receive()
            if frames is None:
                break
            self.bytes_received += sum(map(len, frames))
            self._handle(events.Received(frames, self._transport.looks_only))
        else:
            self._publish()
            return  # there may be more, and the trainer may have called
        deadline = self._core.deadline
        if deadline is not None and deadline <= self._clock():
            self._handle(events.Tick())
            deadline = self._core.deadline
        if self._posted:
            return
        if self._insisted:
            self._try_again()
            if self._insisted:
                again = self._clock() + _RETRY
                deadline = again if deadline is None else min(deadline, again)
        self._publish()
        (self._idle.clear if len(self._core.outbox) else self._idle.set)()
        self._transport.wait(None if deadline is None else deadline - self._clock())

    def _handle(self, event: Event) -> None:
        if not isinstance(event, events.Received):
            self._idle.clear()
        self._core.handle(event, self._clock())
        self._stale = True
        if self._kept:
            self._publish()
            while self._kept:
                self._kept.pop().end()

    def _publish(self) -> None:
        """Let other threads see the core as it is now: with every answer, and before every wait."""
        if self._stale:
            self._stale = False
            self._status = self._core.status()

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, events.Send):
            rank = effect.to.rank
            elsewhere = (effect.endpoint, effect.key) if effect.endpoint else self._dead.get(rank)
            if elsewhere is not None:
                rank = self._guest(*elsewhere)
            if not self._send(rank, effect.frames, effect.ordered):
                if effect.insist:
                    self._insisted.append((self._clock() + _INSIST, rank, effect.frames))
                else:
                    self.dropped += 1
            return
        if isinstance(effect, events.MemberChanged):
            self._find(effect.record)
        elif isinstance(effect, events.Unanswered):
            self._renew(effect.to.rank)
        elif isinstance(effect, events.Released) and (rank := effect.parcel.destination.rank) in self._renewed:
            self._renewed[rank] = self._renewed[rank][0], _RENEWED  # it gets what is sent
        if self._listen is not None and not isinstance(effect, events.Proceed | events.Merged | events.Rested):
            self._listen(effect)
        if isinstance(effect, events.Left):
            self._left = True
        for promise in list(self._promises):
            if isinstance(effect, (promise.awaited, events.Left)):
                promise.answer = effect
                self._promises.remove(promise)
                self._kept.append(promise)  # and ends once the status is published

    def _send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        if rank in self._directory:
            place = self._directory.pop(rank)
            try:
                self._transport.connect(rank, *place)
            except GossipError:  # an address that others told us and that is not valid here, or too few descriptors
                self._directory.setdefault(rank, place)  # unless it was introduced anew meanwhile
                return False
        taken = self._transport.send(rank, frames, ordered)
        if taken:
            self.bytes_sent += sum(map(len, frames))
        return taken

    def _renew(self, rank: int) -> None:
        """Connect anew to one that seems not to get what is sent.

        A byte that was damaged on the way can make the other side wait for a message that never ends, over a connection
        that looks well. What is in flight over the former connection is lost, so whoever is only slow is given twice
        the time before the next one: else nothing would ever get through to it.
        """
        now = self._clock()
        last, pause = self._renewed.get(rank, (-math.inf, _RENEWED))
        if now - last >= pause:
            self._renewed[rank] = now, min(2 * pause, _RENEWED_CEILING)
            with suppress(GossipError):  # then the former connection stays
                self._transport.reconnect(rank)

    def _try_again(self) -> None:
        for _ in range(len(self._insisted)):
            until, rank, frames = self._insisted.popleft()
            if not self._send(rank, frames):
                if self._clock() < until:
                    self._insisted.append((until, rank, frames))
                else:
                    self.dropped += 1

    def _find(self, record: Record) -> None:
        """Know where a member is from now on, and let it in."""
        home = record.endpoint, record.key
        if record.final:
            # A connection for each that ever was would be too many some day.
            self._homes.pop(record.rank, None)
            self._directory.pop(record.rank, None)
            self._transport.disconnect(record.rank)
        self._dead.pop(record.rank, None)
        if record.state is State.DEAD:
            self._dead[record.rank] = home
        elif not record.final and self._homes.get(record.rank) != home:
            self._homes[record.rank] = home
            key = record.key.encode() or None
            if key is not None:
                self._transport.admit(key)
            self._directory[record.rank] = Endpoint.parse(record.endpoint), key

    def _guest(self, endpoint: str, key: str) -> int:
        """Return what the transport calls somebody who is no member; the one that was written to longest ago goes."""
        number = self._guests.pop((endpoint, key), None)
        if number is None:
            if len(self._guests) >= _GUESTS:
                gone = self._guests.pop(next(iter(self._guests)))
                self._directory.pop(gone, None)
                self._transport.disconnect(gone)
            self._guest_count += 1
            number = -self._guest_count
            self._directory[number] = Endpoint.parse(endpoint), key.encode() or None
        self._guests[endpoint, key] = number
        return number
