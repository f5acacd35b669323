"""A request to stop, as a launcher makes it: SIGINT, and SIGKILL if the peer takes too long to follow.

A step that is cut in half leaves nothing worth saving. So the first request only sets a flag, and the peer ends at its
next step boundary, where a checkpoint can be taken. In three cases the peer ends at once: if no boundary is ahead,
which is before a model is attached and while mixing; if no boundary came in half of its time, say in a long evaluation,
since the other half is for saying goodbye and writing the summary; and at a second request.

The launcher kills a peer whose interpreter is held for longer than that, such as by one huge matrix product.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["STOPPED", "StopRequest", "Stopped", "stop_notice"]

#: The exit code of a process that ended because it was asked to, as a shell has it for SIGINT.
STOPPED = 130


class Stopped(KeyboardInterrupt):
    """The peer ends because it was asked to. A user's ``except KeyboardInterrupt`` means this too."""


class StopRequest:
    """Whether this process was asked to stop, and the signal handler that finds out.

    The signal is handled only if a launcher asks in this way (``within`` is above 0), and only if the training script
    neither ignores nor handles SIGINT itself.
    """

    def __init__(self, within: float) -> None:
        """Prepare.

        Args:
            within: seconds from the request until the process is killed; 0 if there is no launcher that asks.
        """
        self._within = within
        #: Whether a request came, and whether it was followed by raising `Stopped`.
        self.asked = self.raised = False
        #: Whether a step boundary is to be waited for: one is ahead.
        self.patient = False
        self._rang, self._over = threading.Event(), threading.Event()
        self._process = 0
        self._before: Any = None
        self._watch: threading.Thread | None = None

    def listen(self) -> None:
        """Begin to handle the signal; a thread other than the main one cannot."""
        if self._within <= 0 or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        self._process = os.getpid()
        # Started beforehand: a signal handler may have interrupted the very code that starts threads.
        self._watch = threading.Thread(target=self._wait, name="gossip-stop", daemon=True)
        self._watch.start()
        self._before = signal.signal(signal.SIGINT, self._handle)

    def now(self) -> None:
        """Stop here, where nothing is lost, if that was asked for."""
        if self.asked:
            self.raised = True
            raise Stopped

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Do something during which there is no boundary to wait for."""
        before, self.patient = self.patient, False
        try:
            self.now()
            yield
        finally:
            self.patient = before

    def ending(self) -> None:
        """Note that the peer is ending, for whatever reason: nothing may interrupt it from now on."""
        self._over.set()

    def close(self) -> None:
        """Leave the signal as it was."""
        self._over.set()
        self._rang.set()
        if self._watch is not None:
            signal.signal(signal.SIGINT, self._before)
            self._watch.join()
            self._watch = None

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._over.is_set() or os.getpid() != self._process:
            # Workers of a data loader are forked with this handler, and get the signal too. They serve on until the
            # peer itself ends: it may wait for the batch with which its step, and so its boundary, comes.
            return
        again, self.asked = self.asked, True
        if again or not self.patient:
            self.now()
        self._rang.set()

    def _wait(self) -> None:
        self._rang.wait()
        if not self._over.wait(self._within / 2):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def stop_notice(step: int, saved: int | None) -> str:
    """Return a sentence about a peer that stopped as asked: after which step, and which checkpoint is left of it."""
    kept = "without a checkpoint" if saved is None else f"the last checkpoint is of step {saved}"
    if saved == step:
        kept = "and saved that as a checkpoint"
    return f"stopped after step {step} as asked, {kept}"
