"""Where stragglers and faults are injected into a real peer, so that a run can show what it survives.

Faults that are timed in steps, and a straggler's sleep, happen at the end of a step, in the trainer's thread. Faults
that are timed in seconds happen at that time, whether the trainer steps or not. Steps are counted from 1. As in the
simulator a straggler is slow in the steps that begin in its window, and a fault at step k comes before that step is
gossiped. Unlike in the simulator each peer counts its own steps for a cut too, for there is nothing else to count.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from gossip.errors import SettingsError
from gossip.faults import Cut, Faults, Moment, Pause, Straggler
from gossip.faults.weather import Network, Separates, Weather
from gossip.net.disturbed_transport import DisturbedTransport
from gossip.net.transport import Transport

__all__ = ["After", "Boundary", "disturbed"]

#: Does something after a number of seconds, in any thread; returns a function that cancels it.
After = Callable[[float, Callable[[], None]], Callable[[], None]]


def disturbed(
    transport: Transport, rank: int, faults: Faults, replica: int | None = None
) -> tuple[Transport, Network | None]:
    """Put a network that can be disturbed between a peer and its transport, if there is a need for one.

    Args:
        transport: what really sends; it belongs to the one that is returned.
        rank: of this peer.
        faults: of the whole run; each peer has its own part of the weather.
        replica: the number by which transports know this peer, if that is not its rank.

    Returns:
        The transport to use, and its network, for `Boundary`; the plain one and None if nothing disturbs this rank.
    """
    place = rank if replica is None else replica
    if faults.weather is None and not faults.cuts_off(place):
        return transport, None
    network = Network((faults.weather or Weather()).seen_by(rank))
    return DisturbedTransport(transport, place, network), network


def _after(seconds: float, action: Callable[[], None]) -> Callable[[], None]:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer.cancel


class Boundary:
    """What is injected into one peer. False if that is nothing, so that callers can leave it out.

    A peer that was started again leaves out its first ``killed`` kills, or it would die of the same fault again. It
    also leaves out faults whose time was before ``elapsed``, or whose step was before the first step of this life.
    """

    def __init__(
        self,
        rank: int,
        seed: int,
        stragglers: Sequence[Straggler],
        faults: Faults,
        network: Network | None,
        *,
        announce: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        after: After = _after,
        elapsed: float = 0.0,
        killed: int = 0,
        replica: int | None = None,
    ) -> None:
        """Begin: from now on timers run for the faults that are timed in seconds.

        Args:
            rank: of this peer.
            seed: of the run; it draws the random stragglers as in the simulator.
            stragglers: of all ranks.
            faults: of all ranks.
            network: of this peer's transport, from `disturbed`; None will do if no cut concerns it.
            announce: is called with a sentence before each injection, in any thread; keeps it before it returns.
            sleep: sleeps for a number of seconds.
            clock: monotonic seconds.
            after: does something after a number of seconds.
            elapsed: seconds since the start of the run, for a peer that was started again.
            killed: how many of this rank's kills have happened, in lives before this one.
            replica: the number by which cuts know this peer, if that is not its rank (see `Faults.in_row`).
        """
        self._place = place = rank if replica is None else replica
        self._others = "ranks" if replica is None else "replicas"
        for straggler in stragglers:
            if min(straggler.factors) < 1:
                raise SettingsError(
                    f"stragglers: a real peer can be slowed down, not sped up by {min(straggler.factors):g}x"
                )
        if network is None and faults.cuts_off(place):
            raise SettingsError(
                f"rank {rank} is to be cut off, and its transport has no network: make one with `disturbed`"
            )
        self._network = network
        self._announce, self._sleep, self._clock, self._after = announce, sleep, clock, after
        self._began = clock() - elapsed
        slow = [(one, one.factor(rank, seed)) for one in stragglers if one.slows(rank, seed)]
        self._slow = [(one, factor) for one, factor in slow if factor > 1 or one.extra > 0]
        self._slowing: list[tuple[Straggler, float]] = []
        #: Those that have slowed down no step yet.
        self._waiting = {one for one, _ in self._slow}
        self._step: int | None = None  #: the last that passed
        self._lock = threading.Lock()  #: of what follows, and of the step: timers have threads of their own
        #: The step at whose end something comes; its name, if a life that begins later leaves it out; and what to do.
        self._coming: list[tuple[int, str | None, Callable[[], None]]] = []
        self._timers: list[Callable[[], None]] = []
        #: The names of what comes at its second and has not come yet.
        self._timed: list[str] = []
        self._cuts: list[Separates] = []
        self._closed = False
        kills = sorted((one for one in faults.kills if one.rank == rank), key=lambda one: one.at.value)
        pauses = [one for one in faults.pauses if one.rank == rank]
        cuts = [one for one in faults.cuts if place in one.left | one.right]
        self._injects = bool(self._slow or kills or pauses or cuts)
        for cut in cuts:
            self._plan(cut.at, cut.span, f"cut at {cut.at}", partial(self._cut, cut), elapsed)
        for kill in kills[:killed]:
            self._miss(f"kill at {kill.at}")
        for kill in kills[killed:]:
            self._plan(kill.at, None, f"kill at {kill.at}", partial(self._kill, kill.at), elapsed)
        for pause in pauses:
            self._plan(pause.at, None, f"pause at {pause.at}", partial(self._pause, pause), elapsed)

    def __bool__(self) -> bool:
        return self._injects

    def passed(self, step: int, seconds: float) -> None:
        """Inject what is due at the end of a step, which took a number of seconds to compute."""
        if self._slow:
            self._straggle(step, seconds)
        with self._lock:
            begins = self._step is None
            self._step = step
            due = sorted((one for one in self._coming if one[0] <= step), key=lambda one: one[0])
            self._coming = [one for one in self._coming if one[0] > step]
        for at, name, action in due:
            if begins and at < step and name is not None:
                self._miss(name)
            else:
                action()

    def close(self, *, finished: bool = False) -> None:
        """Cancel what has not happened yet, and end cuts. Call it after the transport has sent its last message.

        Args:
            finished: whether training came to its end, so that the user expects everything to have happened.
        """
        with self._lock:
            self._closed = True
            missed = [name for _, name, _ in self._coming if name is not None] + self._timed
            self._coming, self._timed = [], []
            cuts = list(self._cuts)
        missed += [f"straggler from {one.start} on" for one, _ in self._slow if self._never_came(one)]
        self._waiting.clear()
        for cancel in self._timers:
            cancel()
        for name in missed if finished else ():
            self._announce(f"the {name} never came: training ended here after step {self._step or 0}")
        for separates in cuts:
            self._heal(separates)

    def _plan(self, at: Moment, span: Moment | None, name: str, action: Callable[[], None], elapsed: float) -> None:
        """Let something happen at its time; if that is over, announce that it is left out."""
        if at.in_steps:
            self._coming.append((max(1, math.ceil(at.value)), name, action))
        elif at.value >= elapsed or (span is not None and not span.in_steps and at.value + span.value > elapsed):
            self._timed.append(name)
            self._later(at.value - elapsed, partial(self._on_time, name, action))
        else:
            self._miss(name)

    def _on_time(self, name: str, action: Callable[[], None]) -> None:
        with self._lock:
            if name not in self._timed:
                return  # closed meanwhile
            self._timed.remove(name)
        action()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if not self._closed:  # the timer may have fired before it was cancelled
                action()

        self._timers.append(self._after(max(0.0, seconds), act))

    def _miss(self, name: str) -> None:
        self._announce(f"the {name} is not injected: it was before this life")

    def _never_came(self, straggler: Straggler) -> bool:
        """Whether a straggler has slowed down no step, and was not over before this life."""
        stop = straggler.stop
        over = stop is not None and stop.reached(self._step or 0, self._clock() - self._began)
        return straggler in self._waiting and straggler.start is not None and not over

    def _straggle(self, step: int, seconds: float) -> None:
        began = max(0.0, self._clock() - self._began - seconds)
        slowing = [
            one
            for one in self._slow
            if (one[0].start is None or one[0].start.reached(step - 1, began))
            and not (one[0].stop is not None and one[0].stop.reached(step - 1, began))
        ]
        factor = math.prod(factor for _, factor in slowing)
        extra = sum(straggler.extra for straggler, _ in slowing)
        self._waiting.difference_update(one for one, _ in slowing)
        if slowing != self._slowing:
            self._slowing = slowing
            slower = (
                f"{factor:.4g}x as long{f' and {extra:g} s more' if extra else ''}"
                if slowing
                else "no longer than by itself"
            )
            self._announce(f"from step {step} on each step is made to take {slower}")
        if slowing:
            self._sleep((factor - 1) * seconds + extra)

    def _kill(self, at: Moment) -> None:
        self._announce(f"a kill is injected at {at}")
        os.kill(os.getpid(), signal.SIGKILL)

    def _pause(self, pause: Pause) -> None:
        self._announce(f"a pause of {pause.span} is injected at {pause.at}")
        _stand_still(pause.span.value)

    def _cut(self, cut: Cut) -> None:
        assert self._network is not None
        others = cut.right if self._place in cut.left else cut.left
        length = f"{cut.span.value:g} steps" if cut.span.in_steps else str(cut.span)
        self._announce(f"a cut from the {self._others} {sorted(others)} is injected at {cut.at} for {length}")
        separates = cut.separates
        with self._lock:
            if self._closed:
                return
            self._network.cut(separates)
            self._cuts.append(separates)
            if cut.span.in_steps:
                end = (self._step or 0) + math.ceil(cut.span.value)
                self._coming.append((end, None, partial(self._heal, separates)))
        if not cut.span.in_steps:
            # In seconds throughout, it ends when it ends on the other side too, however late this one began.
            late = 0.0 if cut.at.in_steps else self._clock() - self._began - cut.at.value
            self._later(cut.span.value - late, partial(self._heal, separates))

    def _heal(self, separates: Separates) -> None:
        assert self._network is not None
        with self._lock:
            if separates not in self._cuts:
                return  # closed meanwhile
            self._cuts.remove(separates)
        self._announce("a cut that was injected ends")
        self._network.heal(separates)


def _stand_still(seconds: float) -> None:
    """Stop this process, with all its threads, for a number of seconds.

    Another process does both the stopping and the waking: if this one stopped itself, the signal to wake up from a
    short pause could come before that. The other process has its own session, or Ctrl-C would end it and leave this
    one stopped.
    """
    script = 'kill -STOP "$0" && sleep "$1"; kill -CONT "$0"'
    command = ["/bin/sh", "-c", script, str(os.getpid()), f"{seconds:.6f}"]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, check=True)  # noqa: S603
