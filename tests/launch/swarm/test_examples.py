"""The examples run: each option of a script for a few steps, as a swarm of one."""

from __future__ import annotations

import logging
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("digits", []),
        ("large_batch", []),
        ("large_batch", ["--optimizer", "lars", "--lr", "0.1"]),
        ("large_batch", ["--optimizer", "lamb", "--lr", "0.003"]),
        ("large_batch", ["--precision", "amp"]),
        ("large_batch", ["--precision", "bf16"]),
        ("large_batch", ["--precision", "amp", "--optimizer", "lars", "--lr", "0.1", "--warmup-epochs", "0"]),
    ],
)
def test_an_example_trains(
    script: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--epochs", "3", *options])
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    torch.manual_seed(0)
    runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    assert re.search(r"^\d+ steps", out)
    (*_, best) = map(float, re.findall(r"([\d.]+)%", out))
    assert best > 50, "ten digits, so that it has learned something"
