"""Lets the API reference show comments that begin with ``#:`` as the docstrings of the attributes below them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension

__all__ = ["Comments", "comment_above"]

_MARK = "#:"


def comment_above(lines: list[str], line: int) -> str:
    """Return the marked comment that ends above a line, counted from 0; empty if there is none."""
    start = line
    while start and lines[start - 1].strip().startswith(_MARK):
        start -= 1
    return " ".join(one.strip().removeprefix(_MARK).strip() for one in lines[start:line])


class Comments(Extension):
    """Reads the comments of attributes that have no docstring."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Give an attribute the comment above it."""
        if attr.docstring is None and attr.lineno is not None and isinstance(attr.filepath, Path):
            comment = comment_above(attr.filepath.read_text().splitlines(), attr.lineno - 1)
            if comment:
                attr.docstring = Docstring(comment, parent=attr, lineno=attr.lineno)
