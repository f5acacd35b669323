"""Ctrl-C, and what means the same: a request to stop, which arrives as a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from launch.user_errors import Interrupted

__all__ = ["interruptible"]


def _interrupt(number: int) -> NoReturn:
    raise Interrupted(number)


@contextmanager
def interruptible(request: Callable[[int], None] = _interrupt) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP be requests to stop here, and have their defaults in what is started here.

    A shell starts what it puts into the background with SIGINT ignored, and that is inherited: without this neither
    a launcher in a script nor its peers could be asked to stop. SIGHUP stays ignored where nohup did that.

    Args:
        request: is called with the signal of each request, between any two instructions of the main thread. It raises
            `Interrupted` unless something else is given.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        kinds.append(signal.SIGHUP)
    before = {kind: signal.signal(kind, lambda number, _: request(number)) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
