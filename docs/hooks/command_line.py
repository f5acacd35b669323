"""The reference of the command line, from the parsers themselves."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator

from launch.cli import command_parser

__all__ = ["reference"]

_WIDTH = "100"


def reference() -> str:
    """Return all commands as Markdown."""
    os.environ["COLUMNS"] = _WIDTH  # argparse wraps the usage by it
    parser = command_parser()
    (subparsers,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    rows = [f"| [`gossip {one.dest}`](#gossip-{one.dest}) | {one.help} |" for one in subparsers._choices_actions]
    parts = ["| command | what it does |", "|---|---|", *rows, ""]
    for name, command in subparsers.choices.items():
        parts += [f"## gossip {name}", "", *_command(command)]
    return "\n".join(parts)


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    description = parser.description or ""
    yield from (" ".join(description.split()), "")
    yield from ("```text", parser.format_usage().strip(), "```", "")
    for group in parser._action_groups:
        actions = [one for one in group._group_actions if not isinstance(one, argparse._HelpAction)]
        if actions:
            yield from (f"**{(group.title or '').capitalize()}**", "", "| option | meaning |", "|---|---|")
            yield from (f"| {_name(one)} | {_cell(_help(one))} |" for one in actions)
            yield ""
    examples, _, rest = (parser.epilog or "").strip().partition("\n\n")
    if examples.startswith("examples:"):
        lines = [line.strip() for line in examples.splitlines()[1:]]
        yield from ("**Examples**", "", "```", *(re.sub(r" {2,}", "  # ", line, count=1) for line in lines), "```", "")
        examples = ""
    for paragraph in (examples, *rest.split("\n\n")):
        head, *lines = paragraph.splitlines() or [""]
        if lines and all(line.startswith("  ") for line in lines):  # a list of names and what they mean
            cells = [line.split(maxsplit=1) for line in lines]
            yield from (f"**{head.rstrip(':').capitalize()}**", "", "| name | meaning |", "|---|---|")
            yield from (f"| `{name}` | {_cell(meaning)} |" for name, meaning in cells)
            yield ""
        elif paragraph:
            yield from (" ".join(paragraph.split()), "")


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    metavar = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{option}{metavar}`" for option in action.option_strings)


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {"default": action.default, "prog": "gossip"}


def _cell(text: str) -> str:
    """Return a text that a cell of a table can hold: a choice of groups is written with a bar."""
    return text.replace("|", r"\|")
