"""The examples run: each option of a script for a few steps, as a swarm of one."""

from __future__ import annotations

import logging
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from repeats import some

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


@pytest.mark.parametrize("script", some(["fsdp", "tensor"], 1))
def test_an_example_of_a_grid_trains_alone(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--lines", "1024", "--epochs", "1"])
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    runpy.run_path(str(path), run_name="__main__")
    (loss,) = re.findall(r"^replica 0, row 0: validation loss ([\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    assert float(loss) < 2.2, "13 characters: a model that knows nothing has log 13 = 2.56"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("script", "grid", "options"),
    some([("tensor", "4x1", ["--fsdp", "2"]), ("fsdp", "2x2", []), ("tensor", "2x2", [])], 1),
    ids=["both", "fsdp", "tensor"],
)
def test_an_example_of_a_grid_trains_as_one_replica_for_each_crew(
    script: str, grid: str, options: list[str], tmp_path: Path
) -> None:
    run, path = tmp_path / "run", EXAMPLES / f"{script}.py"
    command = [sys.executable, "-m", "launch.cli", "launch", "--grid", grid, "--quiet", "--run-dir", str(run)]
    command += ["--start-timeout", "200s", str(path), "--lines", "256", "--epochs", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gossip: 4 of 4 peers finished" in done.stdout
    losses: dict[str, set[str]] = {}
    for rank in range(4):
        text = (run / f"rank-{rank}" / "log.txt").read_text()
        (found,) = re.findall(r"replica (\d), row (\d): validation loss ([\d.]+)", text)
        losses.setdefault(found[0], set()).add(found[2])
        assert "Warning" not in text
    assert len(losses) == int(grid[-1])
    assert all(len(one) == 1 for one in losses.values()), "the rows of a crew compute one loss"
    assert all(float(one) < 2.5 for both in losses.values() for one in both)
