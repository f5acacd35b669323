"""The errors that the user can correct: each is shown as one line instead of a traceback."""

from __future__ import annotations

import signal

__all__ = ["CommandError", "Interrupted", "user_errors"]


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to stop."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        #: As a shell has it: 130 for Ctrl-C, 143 for SIGTERM.
        self.exit_code = 128 + number


class CommandError(Exception):
    """The command cannot do what was asked; the message says what to do instead."""


def user_errors() -> tuple[type[Exception], ...]:
    """Return the error types of all packages that the user can correct.

    A function, because ``except user_errors()`` is evaluated only after something was raised: a command that succeeds
    does not import packages just for their errors.
    """
    from gossip.errors import SettingsError
    from topologies import TopologyError

    return (CommandError, TopologyError, SettingsError)
