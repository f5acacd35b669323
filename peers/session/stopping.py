"""A request to stop: SIGTERM, as schedulers send it, or SIGINT, as a launcher does; SIGKILL follows some time later.

A step that is cut in half leaves nothing worth saving. So a request only sets a flag, and the peer ends at its next
boundary, where a checkpoint can be taken: between two steps, or between two rounds of mixing. In three cases the peer
ends at once: if no boundary is ahead, which is before a model is attached; if no boundary came in half of its time, say
in a long evaluation, since the other half is for saying goodbye and writing the summary; and at a second request.

Slurm, Kubernetes and torchrun wait 30 seconds between SIGTERM and SIGKILL. A launcher says how long it waits. A peer
whose interpreter is held for longer than that, such as by one huge matrix product, is killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["StopRequest", "Stopped", "stop_notice"]

#: Seconds between SIGTERM and SIGKILL where nobody says otherwise: Slurm's KillWait, and the grace of Kubernetes.
_SCHEDULERS = 30.0
#: Requests within this number of seconds are one: a scheduler, torchrun and a launcher may each pass on the same one.
_SAME = 1.0
#: What a signal does to a process that does nothing about it.
_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Stopped(KeyboardInterrupt):
    """The peer ends because it was asked to. A user's ``except KeyboardInterrupt`` means this too."""


class StopRequest:
    """Whether this process was asked to stop, and the signal handler that finds out.

    SIGTERM is handled always, SIGINT only if a launcher asks in this way (``within`` is above 0): Ctrl-C in a script or
    in a notebook is `KeyboardInterrupt`, as ever. A signal that the training script handles or ignores is left to it.
    """

    def __init__(self, within: float) -> None:
        """Prepare.

        Args:
            within: seconds from the request until the process is killed; 0 if there is no launcher that asks.
        """
        self._within = within or _SCHEDULERS
        self._kinds = (signal.SIGINT, signal.SIGTERM) if within > 0 else (signal.SIGTERM,)
        #: The signal of the first request, and whether it was followed by raising `Stopped`.
        self.number = 0
        self.raised = False
        #: Whether a boundary is to be waited for: one is ahead.
        self.patient = False
        self._since = 0.0
        self._overdue = False
        self._rang, self._over, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._rings = False
        self._process = 0
        #: The signals that are handled here, and what was done about each before.
        self._before: dict[int, Any] = {}
        self._watch: threading.Thread | None = None

    @property
    def asked(self) -> bool:
        """Whether a request came."""
        return self.number != 0

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends because it was asked to, as a shell has it: 143 for SIGTERM."""
        return 128 + self.number

    @property
    def seconds_left(self) -> float:
        """The seconds until the process is killed; infinity while nobody asks."""
        return max(0.0, self._since + self._within - time.monotonic()) if self.asked else float("inf")

    def listen(self) -> str:
        """Begin to handle the signals; return a sentence about those that are not handled here, if there are any."""
        if threading.current_thread() is not threading.main_thread():
            return (
                "this peer does not run in the main thread, so it cannot handle signals: SIGTERM ends the process "
                "without a checkpoint and a goodbye"
            )
        kinds = [kind for kind in self._kinds if signal.getsignal(kind) is _DEFAULTS[kind]]
        if kinds:
            self._process = os.getpid()
            # Started beforehand: a signal handler may have interrupted the very code that starts threads.
            self._watch = threading.Thread(target=self._wait, name="gossip-stop", daemon=True)
            self._watch.start()
            _listening.append(self)
            self._before = {kind: signal.signal(kind, self._handle) for kind in kinds}
        others = [signal.Signals(kind).name for kind in self._kinds if kind not in kinds]
        if not others:
            return ""
        return (
            f"the script handles {' and '.join(others)} itself: this peer saves no checkpoint then, and says goodbye "
            "when the script leaves the with statement or calls peer.close()"
        )

    def follow(self) -> None:
        """Take it that this process was asked to stop: another one of its crew was, or a program says so.

        For any thread, unlike a signal.
        """
        if not self.asked:
            self._since, self.number = time.monotonic(), signal.SIGTERM

    def now(self) -> None:
        """Stop here, where nothing is lost, if that was asked for."""
        if self.asked:
            self.raised = True
            raise Stopped

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Do something that must not be cut in half; what was asked meanwhile is followed after it."""
        before, self.patient = self.patient, True
        try:
            yield
        finally:
            self.patient = before
        if not before:
            self.now()

    def ending(self) -> None:
        """Note that the peer is ending, for whatever reason: only a second request interrupts it from now on."""
        self._over.set()

    def close(self) -> None:
        """Leave the signals as they were; what the script has put in place meanwhile stays."""
        self._over.set()
        self._closed.set()
        self._rang.set()
        if self in _listening:
            _listening.remove(self)
        # In another thread this cannot be done: the handler does it, should a signal come.
        if threading.current_thread() is threading.main_thread():
            for number in list(self._before):
                self._restore(number)
        if self._watch is not None:
            self._watch.join()
            self._watch = None

    def _restore(self, number: int) -> None:
        if signal.getsignal(number) == self._handle:
            signal.signal(number, self._before[number])

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a forked worker, which gets Ctrl-C too: it serves on until the peer itself ends
        if self._closed.is_set():
            self._end_by(number)
            return
        first, again = not self.asked, self.asked and time.monotonic() - self._since >= _SAME
        if first:
            self._since, self.number = time.monotonic(), number
        if self._over.is_set():
            if again:
                self._end_by(number)
        elif again or self._overdue or (first and not self.patient):
            self.now()
        elif self.patient and not self._rings:
            # Once: a second signal may come while the handler of the first holds the lock of the event.
            self._rings = True
            self._rang.set()

    def _end_by(self, number: int) -> None:
        """Let a signal do what it did before this peer handled it."""
        self._restore(number)
        signal.raise_signal(number)

    def _wait(self) -> None:
        self._rang.wait()
        if not self._over.wait(self._within / 2) and signal.getsignal(self.number) == self._handle:
            self._overdue = True
            signal.pthread_kill(threading.main_thread().ident or 0, self.number)


#: Those of this process that handle signals.
_listening: list[StopRequest] = []


def _before_fork() -> None:
    # A SIGTERM for the new process waits until the process does what is usual with it.
    if _listening:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork_here() -> None:
    if _listening:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _after_fork_there() -> None:
    """Let SIGTERM end a forked process as usual: whoever forked it may want to terminate it."""
    for request in _listening:
        if signal.SIGTERM in request._before:
            request._restore(signal.SIGTERM)
    _after_fork_here()
    _listening.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_here, after_in_child=_after_fork_there)


def stop_notice(step: int, saved: int | None) -> str:
    """Return a sentence about a peer that stopped as asked: after which step, and which checkpoint is left of it."""
    kept = "without a checkpoint" if saved is None else f"the last checkpoint is of step {saved}"
    if saved == step:
        kept = "and saved that as a checkpoint"
    return f"stopped after step {step} as asked, {kept}"
