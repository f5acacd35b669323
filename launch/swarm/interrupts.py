"""Ctrl-C, and what means the same: a request to stop that arrives as `KeyboardInterrupt`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt` here, and have their defaults in what is started here.

    A shell starts what it puts into the background with SIGINT ignored, and that is inherited: without this neither
    a launcher in a script nor its peers could be asked to stop. SIGHUP stays ignored where nohup did that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        kinds.append(signal.SIGHUP)
    before = {kind: signal.signal(kind, _interrupt) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
