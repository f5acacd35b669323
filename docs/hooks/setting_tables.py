"""Tables of settings, from the comments that stand beside them in the source."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from gossip import presets
from peers.environment_settings import variable_of

__all__ = ["comment_above", "preset_table", "setting_table"]

ROOT = Path(__file__).parents[2]
_MARK = "#:"


class Setting(NamedTuple):
    """One comment and the fields below it that share it."""

    names: list[str]
    defaults: list[str]
    comment: str


def setting_table(path: str, name: str) -> str:
    """Return the fields of a dataclass as a table: their names, defaults and comments."""
    source = (ROOT / path).read_text()
    lines = source.splitlines()
    (found,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    settings: list[Setting] = []
    for node in found.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        if isinstance(node.value, ast.Call):  # filled in by the program, not by users
            continue
        comment = comment_above(lines, node.lineno - 1).replace("|", r"\|")
        if comment or not settings:
            settings.append(Setting([], [], comment))
        settings[-1].names.append(node.target.id)
        settings[-1].defaults.append(ast.unparse(node.value).replace("'", '"'))
    rows = [[_codes(one.names), _codes(one.defaults), one.comment] for one in settings]
    head = ["setting", "default", "meaning"]
    if name == "Setup":  # which may be set by environment
        head.insert(1, "variable")
        for row, one in zip(rows, settings, strict=True):
            row.insert(1, _codes([variable_of(setting) for setting in one.names if variable_of(setting)]))
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def comment_above(lines: list[str], line: int) -> str:
    """Return the marked comment that ends above a line, counted from 0; empty if there is none."""
    start = line
    while start and lines[start - 1].strip().startswith(_MARK):
        start -= 1
    return " ".join(one.strip().removeprefix(_MARK).strip() for one in lines[start:line])


def _codes(texts: list[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def preset_table() -> str:
    """Return the settings in which presets differ, a column for each preset."""
    names = presets.names()
    kinds = [presets.preset(name) for name in names]
    rows = [["shard_bytes", *(f"{one.shard_bytes >> 20} MiB" for one in kinds)]]
    for part in ("settings", "link", "membership"):
        for field in fields(getattr(kinds[0], part)):
            values: list[Any] = [getattr(getattr(one, part), field.name) for one in kinds]
            if len(set(values)) > 1:
                rows.append([field.name, *(f"{value:g}" for value in values)])
    head = [f"| setting | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    return "\n".join([*head, *(f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in rows)])
