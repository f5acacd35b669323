"""The examples of frameworks run alone, as stock scripts do. Swarms of them are what `benchmarks.frameworks` runs."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from repeats import some
from swarms import clean_environment

EXAMPLES = Path(__file__).parents[3] / "examples"
# What the frameworks themselves are warned of is not ours.
pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize(
    ("script", "options", "loss", "most"),
    some(
        [
            ("accelerate_loop", ["--epochs", "2", "--accumulate", "2"], r"held out: loss ([\d.]+)", 1.0),
            ("lightning_module", ["--epochs", "2", "--output", "OUTPUT"], r"\bval_loss\D+([\d.]+)", 1.0),
            ("hf_trainer", ["--max_steps", "30", "--output_dir", "OUTPUT"], r"\beval_loss\s+=\s+([\d.]+)", 3.5),
        ],
        1,
    ),
)
def test_an_example_trains_alone(
    script: str,
    options: list[str],
    loss: str,
    most: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    path = EXAMPLES / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [str(path), *(str(tmp_path) if one == "OUTPUT" else one for one in options)])
    torch.set_num_threads(1)
    runpy.run_path(str(path), run_name="__main__")
    (*_, found) = re.findall(loss, capfd.readouterr().out)
    assert float(found) < most, "an untrained model has the log of the number of classes: 2.3 and 4.9"
