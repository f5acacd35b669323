"""`gossip launch --grid auto`: the planner reads the script, and its choice is printed, recorded and carried out."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib
from commands import failure, said

from launch.swarm import auto_grid

Capture = pytest.CaptureFixture[str]

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import TensorDataset
import peers
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH = int(sys.argv[1])

if __name__ == "__main__":
    print("a script may say what it wants")
    with peers.join() as peer:
        model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
        SPREAD
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        peer.attach(model, optimizer)
        data = TensorDataset(torch.zeros(64, WIDTH))
        for (x,) in peer.batches(data, 4 * peer.crew.rows, 1, split="none"):
            loss = CALLED.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
TENSOR = 'parallelize_module(model, peer.crew.mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})'
FSDP = "fully_shard(model, mesh=peer.crew.mesh)"


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(script(TENSOR))
    return path


def script(spread: str, called: str = "model(x)") -> str:
    return SCRIPT.replace("SPREAD", spread).replace("CALLED", called)


def test_the_choice_is_printed_with_its_reason_and_carried_out(train: Path, capsys: Capture) -> None:
    # Slow links between replicas on two hosts, and little to compute: a replica on each host exchanges least.
    (train.parent / "hosts").write_text("alpha slots=2\nbeta slots=2\n")
    arguments = ("--grid", "auto", "--hostfile", "hosts", "--algorithm", "sgp", "--link", "1Mbit,1ms")
    told = said(capsys, "launch", "--dry-run", *arguments, str(train), "256")
    first, *rest = told.splitlines()
    assert first.startswith("gossip: --grid auto chose 2x2: 2x2 tensor has the shortest step, ")
    assert first.endswith("(525,568 weights spread by parallelize_module, 4 samples a step for each process)")
    assert "grid: 2 replicas, each of 2 processes" in rest
    assert "grid: 2x2" in rest


def test_a_model_that_is_not_spread_stays_whole_and_the_record_says_why(train: Path, capsys: Capture) -> None:
    train.write_text(script("pass"))
    told = said(capsys, "launch", "-n", "2", "--grid", "auto", "--quiet", "--run-dir", "run", str(train), "8")
    why = "--grid auto chose 1x2: the script does not spread its model over a crew, so each process holds a replica"
    assert f"gossip: {why}" in told.splitlines()
    written = (train.parent / "run" / "config.toml").read_text()
    assert tomllib.loads(written)["grid"] == "1x2"
    assert f"# {why}" in written.splitlines()


def test_algorithms_of_all_processes_have_whole_replicas(train: Path, capsys: Capture) -> None:
    told = said(capsys, "launch", "-n", "4", "--grid", "auto", "--algorithm", "allreduce", "--dry-run", str(train))
    assert told.startswith("gossip: --grid auto chose 1x4: allreduce exchanges with all processes at once\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("raise ValueError('no data here')", "failed before its model computed (ValueError: no data here)"),
        ("sys.exit(3)", "ended before its model computed (exit code 3)"),
        ("import os; os._exit(4)", "ended the planner with it"),
        (f"{FSDP}; {TENSOR}", "spreads its model by fully_shard and parallelize_module, which the planner cannot"),
    ],
)
def test_a_script_that_cannot_be_planned_is_refused_with_what_to_do(
    change: str, why: str, train: Path, capsys: Capture
) -> None:
    train.write_text(script(change))
    told = failure(capsys, "launch", "-n", "4", "--grid", "auto", "--dry-run", str(train), "8")
    assert why in told
    assert "name the grid, as in --grid 2x4" in told


def test_a_model_of_which_only_parts_are_called_is_refused(train: Path, capsys: Capture) -> None:
    train.write_text(script(TENSOR, "model[2](model[0](x))"))
    told = failure(capsys, "launch", "-n", "4", "--grid", "auto", "--dry-run", str(train), "8")
    assert "makes a step, but its model was not called with a tensor, so it cannot be planned: name the grid" in told


def test_the_number_of_processes_is_needed(train: Path, capsys: Capture) -> None:
    told = failure(capsys, "launch", "--grid", "auto", str(train))
    assert "nothing says how many there are: give -n or --hostfile" in told


def test_a_program_has_no_model_to_read(capsys: Capture) -> None:
    told = failure(capsys, "launch", "-n", "2", "--grid", "auto", "true")
    assert "reads the model of a Python script, and true is a program: name the grid" in told


def test_memory_rules_out_what_does_not_fit(train: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_grid, "_memory", lambda: 2 * 12e6)  # less than a whole replica takes
    told = said(capsys, "launch", "-n", "2", "--grid", "auto", "--dry-run", str(train), "256")
    assert told.startswith("gossip: --grid auto chose 2x1: 2x1 tensor has the shortest step, ")
    assert "1x2 data needs " in told.splitlines()[0]
    monkeypatch.setattr(auto_grid, "_memory", lambda: 2e6)
    told = failure(capsys, "launch", "-n", "2", "--grid", "auto", "--dry-run", str(train), "256")
    assert "no split fits: 1x2 data needs " in told
