"""The output of ``gossip --version``: the versions that decide whether two installations can train together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gossip.version import CHECKPOINT, WIRE, __version__

__all__ = ["ShowVersions", "versions"]


def versions() -> str:
    """Return one line with the versions of this installation; torch is looked up and not imported, which is slow."""
    import platform
    from importlib import metadata

    try:
        torch = f"torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        torch = "no torch"
    numbers = f"wire {WIRE}, checkpoint format {CHECKPOINT}"
    return f"gossip {__version__} ({numbers}, Python {platform.python_version()}, {torch})"


class ShowVersions(argparse.Action):
    """Print the line and end. argparse's own action would put it together at every start, and wrap it."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print, and leave the parser as --help does."""
        print(versions())
        parser.exit()
