"""docs/results/study.md: written by hand, save what stands between two marks of a section."""

from __future__ import annotations

import re

__all__ = ["Missing", "insert"]


class Missing(ValueError):
    """The document has no place for a section."""


def insert(document: str, section: str, text: str) -> str:
    """Return the document with another text between the marks of a section."""
    begin, end = f"<!-- study {section} -->", f"<!-- /study {section} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(document)) != 1:
        raise Missing(f"there is no single place for the section {section}: it is between {begin} and {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", document)
