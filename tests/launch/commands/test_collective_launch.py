"""What goes with algorithms that push no mass, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Capture, failure, said

from gossip import codecs
from launch import cli

SCRIPT = str(Path(__file__).parents[2] / "support" / "peer_script.py")


@pytest.mark.parametrize(
    ("algorithm", "wrong", "says"),
    [
        ("allreduce", ["--share", "50%"], "allreduce moves no mass, so share=0.5 cannot apply"),
        (
            "parameter-server",
            ["--share", "50%"],
            "parameter-server moves no mass, so share=0.5 cannot apply",
        ),
        (
            "parameter-server",
            ["--compress", "int8"],
            "parameter-server does not compress moves and models; leave compress=int8 out",
        ),
        ("allreduce", ["--compress", "auto"], "set compress to a codec, such as int8"),
        ("allreduce", ["--compress", "topk-pair"], "codec"),
        ("allreduce:plan=ring", ["--compress", "int8"], "leave plan=ring out"),
        ("allreduce:correction=0.9", [], "set compress to topk or adacomp"),
        ("allreduce:correction=0.9", ["--compress", "int8"], "momentum correction needs a sparse codec"),
        ("allreduce:correction=1", ["--compress", "topk"], "from 0 to below 1"),
    ],
)
def test_what_does_not_go_together_is_refused(algorithm: str, wrong: list[str], says: str, capsys: Capture) -> None:
    error = failure(capsys, "launch", "-n", "2", "--dry-run", "--algorithm", algorithm, *wrong, SCRIPT)
    assert says in error


@pytest.mark.parametrize("codec", codecs.names())
def test_gradients_go_through_any_codec(codec: str, capsys: Capture, tmp_path: Path) -> None:
    arguments = ["-n", "2", "--algorithm", "allreduce", "--compress", codec, "--run-dir", str(tmp_path / "run")]
    assert said(capsys, "launch", "--dry-run", *arguments, SCRIPT)


def test_stragglers_and_faults_are_fine(capsys: Capture, tmp_path: Path) -> None:
    arguments = ["-n", "3", "--straggler", "1=2x", "--fault", "kill:1@5", "--run-dir", str(tmp_path / "run")]
    assert said(capsys, "launch", "--dry-run", "--algorithm", "allreduce:plan=tree", *arguments, SCRIPT)
    error = failure(capsys, "launch", "-n", "2", "--dry-run", "--algorithm", "allreduce:plan=star", SCRIPT)
    assert error == "allreduce: plan must be one of auto, halving, ring, tree, not 'star'\n"


def test_that_there_is_a_centre_is_said_before_anything_starts(capsys: Capture, tmp_path: Path) -> None:
    arguments = ["-n", "2", "--algorithm", "parameter-server", "--run-dir", str(tmp_path / "run")]
    assert cli.main(["launch", "--dry-run", *arguments, SCRIPT]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 peers run: ")
    assert err.startswith("gossip: warning: parameter-server has a centre: rank 0 holds the model")
    assert err.count("\n") == 1


def test_there_is_no_mass_to_simulate(capsys: Capture) -> None:
    error = failure(capsys, "simulate", "--peers", "4", "--algorithm", "allreduce")
    assert error == "allreduce moves no mass, and only the movement of mass is simulated; use sgp, for example\n"
