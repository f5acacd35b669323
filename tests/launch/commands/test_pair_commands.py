"""`--compress topk-pair` on the command line: simulated, planned, and refused where it cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Capture, failure, said

from launch import cli

SCRIPT = str(Path(__file__).parents[2] / "support" / "peer_script.py")
PAIRS = "topk-pair:share=10%,told=none"


def test_it_can_be_simulated(capsys: Capture) -> None:
    arguments = ["--peers", "4", "--steps", "300", "--size", "50", "--loss", "1%", "--json"]
    assert cli.main(["simulate", "--algorithm", "adpsgd", "--compress", PAIRS, *arguments]) == 0
    found = json.loads(capsys.readouterr().out)  # how far it is may be said beside it
    assert found["mass_error"] < 1e-12
    assert found["disagreement"] < 0.1


@pytest.mark.parametrize("algorithm", ["adpsgd", "easgd:alpha=0.1"])
def test_it_can_be_planned(algorithm: str, capsys: Capture, tmp_path: Path) -> None:
    arguments = ["-n", "2", "--algorithm", algorithm, "--compress", PAIRS, "--run-dir", str(tmp_path / "run")]
    assert said(capsys, "launch", "--dry-run", *arguments, SCRIPT)


@pytest.mark.parametrize("algorithm", ["adpsgd", "easgd:alpha=0.1"])
def test_that_edges_go_one_way_is_said_with_what_suits_better(algorithm: str, capsys: Capture, tmp_path: Path) -> None:
    name = algorithm.partition(":")[0]
    launched = ["launch", "-n", "4", "--dry-run", "--run-dir", str(tmp_path / "run")]
    simulated = ["simulate", "--peers", "4", "--steps", "5"]
    for topology in ("ring", "one-peer-exponential"):
        for command, rest in ((launched, [SCRIPT]), (simulated, [])):
            assert cli.main([*command, "--topology", topology, "--algorithm", algorithm, *rest]) == 0
            err = capsys.readouterr().err
            assert err.startswith(
                f"gossip: warning: edges of {topology} go one way, so under {name} a peer begins and "
            )
            assert "random-matching, or one-peer-hypercube for 2, 4, 8, ... peers, suits better" in err
            assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("algorithm", "topology"),
    [("adpsgd", "random-matching"), ("easgd:alpha=0.1", "star"), ("adpsgd", "one-peer-hypercube"), ("osgp", "ring")],
)
def test_where_edges_go_both_ways_or_nobody_answers_nothing_is_said(
    algorithm: str, topology: str, capsys: Capture, tmp_path: Path
) -> None:
    how = ["--topology", topology, "--algorithm", algorithm]
    assert said(capsys, "launch", "-n", "4", "--dry-run", "--run-dir", str(tmp_path / "run"), *how, SCRIPT)
    assert said(capsys, "simulate", "--peers", "4", "--steps", "5", *how)


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "gossip-pull", "allreduce", "parameter-server"])
def test_where_nobody_averages_in_pairs_it_is_refused_before_anything_starts(algorithm: str, capsys: Capture) -> None:
    wrong = ["--algorithm", algorithm, "--compress", "topk-pair"]
    error = failure(capsys, "launch", "-n", "2", "--dry-run", *wrong, SCRIPT)
    assert f"{algorithm} does not average in pairs; use it with adpsgd or easgd" in error


def test_a_parameter_that_there_is_not_is_refused(capsys: Capture) -> None:
    wrong = ["--algorithm", "adpsgd", "--compress", "topk-pair:values=sign"]
    assert failure(capsys, "launch", "-n", "2", "--dry-run", *wrong, SCRIPT).startswith(
        "topk-pair: values must be one of"
    )
