"""The parser of the command line: complaints are one line, and where an option is misspelt they name the right one."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from launch.user_errors import CommandError

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, like all others; subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Complain, and say where the usage is."""
        raise CommandError(f"{message}{' See' if message.endswith('?') else '; see'} {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse what is left over here: the parser of the whole command would not know the options."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(_complaint(left, self._option_string_actions))
        return found, left


def _complaint(left: Sequence[str], options: Iterable[str]) -> str:
    unknown = next((one.partition("=")[0] for one in left if one.startswith("-") and one != "-"), None)
    if unknown is None:
        return f"unexpected {' '.join(left)}"
    near = difflib.get_close_matches(unknown, list(options), n=1, cutoff=0.7)
    return f"unknown option {unknown}" + (f"; did you mean {near[0]}?" if near else "")
