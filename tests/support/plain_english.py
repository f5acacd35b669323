"""Phrases that the project's prose does not use, and the prose of a module: for the tests of messages and of prose.

Each of these phrases has to be read twice. The right column says what to write instead.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LAYERS = ("topologies", "gossip", "peers", "launch")

#: A regular expression, matched without regard to case against text whose white space is single spaces, and its cure.
BANNED = {
    r"so many": "name the number: 'the number of peers', 'after this number of steps'",
    r"so (often|seldom)": "name the number or the rate",
    r"on (its|their) way": "in flight",
    r"neither so nor so": "say which values are allowed",
    r"held for dead": "declared dead",
    r"(that|which) is none": "say what it is, and what was expected",
    r"is none of": "is not one of, or: does not belong to",
    r"(texts|they) are none": "say what they are, and what was expected",
    r"for it is not": "because it is not; or a sentence of its own",
    r"as cannot be": "say what is impossible and why",
    r"that cannot be(?= ?([.:;,]|$))": "say what is impossible and why",
    r"cannot be (said|meant)": "is not valid, and why",
    r"how (it does|they do)": "status",
    r"such as are": "those that are",
    r"it is told": "name who tells it: 'the core tells the inbox'",
    r"and so (is|are)": "repeat the verb, or: as well",
    r"befalls?": "happens to",
    r"makes? no sense": "is not valid, and why",
    r"one's own": "name the owner",
    r"of whom": "name them",
    r"all of a sudden": "suddenly, or name the step",
    r"thrown away": "rejected, dropped or discarded",
    r"(?<![\w-])(?:(?<=^)|(?<=[.] ))who [^?.]*[.]": "name the subject: 'a peer that ...'",
    r"looks after nobody": "has no membership",
}
_PATTERNS = [(re.compile(rf"(?<!\w)(?:{phrase})(?!\w)", re.IGNORECASE), cure) for phrase, cure in BANNED.items()]


def banned(text: str) -> list[str]:
    """Return a complaint for each banned phrase in the text."""
    plain = " ".join(text.split())
    found = [(match, cure) for pattern, cure in _PATTERNS for match in pattern.finditer(plain)]
    return [f"{plain[max(m.start() - 40, 0) : m.end() + 40]!r} has {m[0]!r}; write: {cure}" for m, cure in found]


def modules(*folders: str) -> list[Path]:
    """Return the Python files in these folders of the project."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def relative(path: Path) -> str:
    """Return the path as the tests write it: from the project's directory, with slashes."""
    return path.relative_to(ROOT).as_posix()


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring, other string and block of comments of a module."""
    nodes = list(ast.walk(ast.parse(source)))
    # An f-string is one text: a phrase may stand on both sides of what is filled in.
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "..." for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.lineno, node.value
    yield from _comments(source)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment; lines that follow each other are one comment, since a sentence runs on over them."""
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != block[-1][0] + 1:
            yield block[0][0], " ".join(text for _, text in block)
            block = []
        block.append((token.start[0], token.string.lstrip("#: ")))
    if block:
        yield block[0][0], " ".join(text for _, text in block)
