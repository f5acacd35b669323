"""Which errors are the user's to mend, and so get one line instead of a traceback."""

from __future__ import annotations

__all__ = ["CommandError", "user_errors"]


class CommandError(Exception):
    """The command line asks for something that cannot be done; the message says what to do instead."""


def user_errors() -> tuple[type[Exception], ...]:
    """Return the error types of all packages that tell users what they got wrong.

    A function, because ``except user_errors()`` is evaluated only once something was raised: a command that
    goes well never imports a package for its errors' sake.
    """
    from gossip.errors import SettingsError
    from topologies import TopologyError

    return (CommandError, TopologyError, SettingsError)
