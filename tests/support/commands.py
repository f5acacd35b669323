"""Commands run in this process, as a shell would see them."""

from __future__ import annotations

import pytest

from launch import cli

Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *argv: str) -> str:
    """Run a command that must succeed, and return what it prints."""
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def failure(capsys: Capture, *argv: str) -> str:
    """Run a command that must fail as the user's mistake, and return what it says."""
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gossip: error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, "one line, no traceback"
    return err.removeprefix("gossip: error: ")
