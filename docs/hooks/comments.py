"""Lets the API reference show comments that begin with ``#:`` as the docstrings of the attributes below them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension
from setting_tables import comment_above  # found since generate.py, which MkDocs loads first, has imported it

__all__ = ["Comments"]


class Comments(Extension):
    """Reads the comments of attributes that have no docstring."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Give an attribute the comment above it."""
        if attr.docstring is None and attr.lineno is not None and isinstance(attr.filepath, Path):
            comment = comment_above(attr.filepath.read_text().splitlines(), attr.lineno - 1)
            if comment:
                attr.docstring = Docstring(comment, parent=attr, lineno=attr.lineno)
