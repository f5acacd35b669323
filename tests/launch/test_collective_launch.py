"""What goes with algorithms that push no mass, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Capture, failure, said

SCRIPT = str(Path(__file__).parents[1] / "peers" / "peer_script.py")


@pytest.mark.parametrize("algorithm", ["allreduce", "parameter-server"])
@pytest.mark.parametrize("wrong", [["--share", "50%"], ["--compress", "int8"]])
def test_settings_for_the_pushing_of_mass_are_refused(algorithm: str, wrong: list[str], capsys: Capture) -> None:
    error = failure(capsys, "launch", "-n", "2", "--dry-run", "--algorithm", algorithm, *wrong, SCRIPT)
    assert error == f"{algorithm} moves no mass: share and compress are for algorithms that push it\n"


def test_stragglers_and_faults_are_fine(capsys: Capture, tmp_path: Path) -> None:
    arguments = ["-n", "3", "--straggler", "1=2x", "--fault", "kill:1@5", "--run-dir", str(tmp_path / "run")]
    assert said(capsys, "launch", "--dry-run", "--algorithm", "allreduce:plan=tree", *arguments, SCRIPT)
    error = failure(capsys, "launch", "-n", "2", "--dry-run", "--algorithm", "allreduce:plan=star", SCRIPT)
    assert error == "allreduce: plan is one of auto, halving, ring, tree, not 'star'\n"


def test_there_is_no_mass_to_simulate(capsys: Capture) -> None:
    error = failure(capsys, "simulate", "--peers", "4", "--algorithm", "allreduce")
    assert error == "allreduce moves no mass, and what is simulated is how mass moves; take sgp\n"
