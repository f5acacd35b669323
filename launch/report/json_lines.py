"""Reading files of JSON objects, one per line, of any length, while a peer may still write to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch.user_errors import CommandError

__all__ = ["read_json", "read_lines"]

_BLOCK = 1 << 20
_MALFORMED = (ValueError, RecursionError)


def read_lines(path: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the lines, many at a time, with the number of the first; there are none if there is no file.

    The last line may be torn, where a peer was killed or is just writing it; it is left out. Any other that cannot be
    read is an error that names it.
    """
    number, rest = 1, b""
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                if len(rest) > _BLOCK:
                    raise CommandError(
                        f"{path}: line {number + len(lines)} is longer than a million characters: no peer wrote it"
                    )
                if lines:
                    yield number, _parsed(path, number, lines)
                number += len(lines)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        last = json.loads(rest)
    except _MALFORMED:
        return
    if isinstance(last, dict):
        yield number, [last]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, or None if there is no file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except _MALFORMED as error:
        raise CommandError(f"{path}: the file is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{path}: the file does not contain a JSON object")
    return found


def _parsed(path: Path, number: int, lines: list[bytes]) -> list[dict[str, Any]]:
    try:  # all at once, which is faster
        found = json.loads(b"[" + b",".join(lines) + b"]")
    except _MALFORMED:
        found = []
    if len(found) == len(lines) and all(isinstance(one, dict) for one in found):
        return list(found)
    return [_line(path, number + index, line) for index, line in enumerate(lines)]


def _line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except _MALFORMED as error:
        raise CommandError(f"{path}: line {number} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{path}: line {number} is not a JSON object")
    return found
