"""Docstrings, comments and texts are plain English: no phrase of `plain_english.BANNED` in any module."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_english import ROOT, banned, modules, prose, relative

#: Files, and folders with a slash behind, that are not held to the rule yet.
NOT_YET: tuple[str, ...] = ()

FILES = [
    path
    for path in modules("topologies", "gossip", "peers", "launch", "benchmarks", "examples", "docs", ".ci")
    if not relative(path).startswith(NOT_YET)
]


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_module_has_a_banned_phrase(path: Path) -> None:
    found = [f"line {line}: {complaint}" for line, text in prose(path.read_text()) for complaint in banned(text)]
    assert not found, f"{relative(path)}:\n" + "\n".join(found)


def test_every_exception_still_exists() -> None:
    assert not [name for name in NOT_YET if not (ROOT / name).exists()]


@pytest.mark.parametrize(
    "source",
    [
        '"""Waits so many steps."""',
        'def f():\n    """Bytes that are on\n    their way."""',
        "# The rank is held for\n# dead.",
        "print(f'{rank} is none of ours')",
        "print(f'Who asks {rank} waits.')",
        "print(f'rank {rank}: so' f' many steps')",
        '"""A fault. Who names none gets the default."""',
        "#: Waits after so\n#: many steps.\nx = 1",
    ],
)
def test_the_rule_sees_every_kind_of_text(source: str) -> None:
    assert [complaint for _, text in prose(source) for complaint in banned(text)]


@pytest.mark.parametrize(
    "text", ["Also many steps.", "Who is there?", "Peers who leave.", "If that cannot be read: stop"]
)
def test_the_rule_leaves_plain_sentences_alone(text: str) -> None:
    assert banned(text) == []
