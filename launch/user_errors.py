"""The errors that the user can correct: each is shown as one line instead of a traceback."""

from __future__ import annotations

__all__ = ["CommandError", "user_errors"]


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
