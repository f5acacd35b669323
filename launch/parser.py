"""The parser of the command line: an error is one line, and suggests the right spelling of a misspelt option."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from launch.user_errors import CommandError

__all__ = ["Parser", "complaint"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Raise the error as one line, which names the help."""
        raise CommandError(complaint(message, self.prog))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse unknown arguments here: the parser of the whole command does not know the options."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(_unknown(left, self._option_string_actions))
        return found, left


def complaint(message: str, program: str) -> str:
    """Return the message with a pointer to the help of a program."""
    return f"{message}{' See' if message.endswith('?') else '; see'} {program} --help"


def _unknown(left: Sequence[str], options: Iterable[str]) -> str:
    unknown = next((one.partition("=")[0] for one in left if one.startswith("-") and one != "-"), None)
    if unknown is None:
        return f"unexpected argument {' '.join(left)}"
    near = difflib.get_close_matches(unknown, list(options), n=1, cutoff=0.7)
    return f"unknown option {unknown}" + (f"; did you mean {near[0]}?" if near else "")
