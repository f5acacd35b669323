"""Arguments that several subcommands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossip.errors import SettingsError
from launch.user_errors import CommandError

__all__ = ["AVERAGING", "COLLECTIVE", "check_plot", "fault_reader", "integer", "port", "positive", "seconds"]

_KINDS = (".svg", ".png")
#: The algorithms of `gossip.policies`, which is too slow to import at each start: those that move mass, and the others.
AVERAGING = (
    "sgp",
    "osgp",
    "dpsgd",
    "adpsgd",
    "easgd",
    "choco",
    "gossip-push",
    "gossip-pull",
    "local",
    "slowmo",
    "noloco",
    "ssd",
)
COLLECTIVE = ("allreduce", "outer", "parameter-server")


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    number = integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return number


def integer(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def port(text: str) -> int:
    """Read the number of a port."""
    number = integer(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, not {text!r}")
    return number


def seconds(text: str) -> float:
    """Read a time, as in ``2.5s`` or ``300ms``; a bare number is seconds."""
    for unit, factor in (("ms", 1e-3), ("s", 1.0), ("", 1.0)):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * factor
            except ValueError:
                break
            if 0 <= value < float("inf"):
                return value
            break
    raise argparse.ArgumentTypeError(f"must be a time such as 2.5s or 300ms, not {text!r}")


def fault_reader(kind: str) -> Callable[[str], Any]:
    """Return the reader of one kind of fault, ``parse_KIND`` of `gossip.faults`."""

    def read(text: str) -> Any:
        from gossip import faults

        try:
            return getattr(faults, f"parse_{kind}")(text)
        except SettingsError as error:  # of any other error argparse would swallow the message
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def check_plot(path: Path) -> None:
    """Raise an error, before anything is computed, if a picture cannot be written."""
    if path.suffix.lower() not in _KINDS:
        raise CommandError(f"--plot {path}: the file name must end in {' or '.join(_KINDS)}")
    if not path.parent.is_dir():
        raise CommandError(f"--plot {path}: the directory {path.parent} does not exist")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise CommandError(
            f"--plot {path} needs matplotlib, which is not installed: pip install 'gossip-runtime[plot]'"
        ) from error
