"""The documents as tests read them: every page, the code in it, and the commands that it may name."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from launch.cli import command_parser

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def shell_lines(page: Path) -> list[str]:
    """Return the lines of shell in a page, those that go on in the next line joined."""
    shown = "\n".join(block.text for block in blocks(page) if block.language in ("", "sh", "bash"))
    return [line.strip() for line in re.sub(r"\\\n\s*", " ", shown).splitlines() if line.strip()]


def inline_code(page: Path) -> list[str]:
    """Return what stands between backticks in a page's prose and tables."""
    prose = _BLOCK.sub("", page.read_text())
    return [found.replace(r"\|", "|") for found in _INLINE.findall(prose)]


def words(line: str) -> list[str]:
    """Return a line of shell as the words of its command, without the comment."""
    return shlex.split(line, comments=True)


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each subcommand."""
    actions = command_parser()._actions
    (subparsers,) = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    return dict(subparsers.choices)
