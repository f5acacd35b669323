"""Reading TOML, and writing as much of it as a flat list of options needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.user_errors import CommandError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read_toml", "to_toml"]


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file says; an error names file, line and column."""
    try:
        with path.open("rb") as file:
            found: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: not valid TOML: {error}") from error
    return found


def to_toml(values: Mapping[str, Any], comment: str = "") -> str:
    """Return texts, numbers, booleans and lists of texts as TOML."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for name, value in values.items():
        # JSON writes each of these as TOML does, once everything beyond ASCII is escaped.
        lines.append(f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}")
    return "\n".join(lines) + "\n"
