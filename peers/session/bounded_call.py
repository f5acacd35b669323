"""Calls that neither a signal nor their own time limit ends: a look-up of a host name, a store that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Overdue", "call_within"]

Result = TypeVar("Result")


class Overdue(Exception):
    """The call did not return in time."""


def call_within(seconds: float, act: Callable[[], Result]) -> Result:
    """Return what a call returns, or raise what it raises; raise `Overdue` if it takes too long.

    The call runs in a thread of its own, so that Ctrl-C is heard meanwhile. A call that is given up goes on in its
    thread, which holds up nobody: not even the end of the process.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            results.append(act())
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)
        over.set()

    threading.Thread(target=run, name="gossip-start", daemon=True).start()
    if not over.wait(seconds):
        raise Overdue
    if errors:
        raise errors[0]
    return results[0]
