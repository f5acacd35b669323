"""Records: lines with their time, whole lines only, and TensorBoard for who asks for it."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import peers
from gossip.errors import SettingsError
from launch import cli
from peers.reporting.records import Records

_LINE = {"seconds": 0.5, "wait_seconds": 0.125, "weight": 1.0, "bytes_sent": 3, "bytes_received": 4}


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_have_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    monkeypatch.setattr("time.monotonic", lambda: 50.0)
    records = Records(str(tmp_path), 0, pytest.fail)
    monkeypatch.setattr("time.time", lambda: 0.0)  # somebody sets the clock
    monkeypatch.setattr("time.monotonic", lambda: 52.5)
    records.step(records.time(), step=1, **_LINE)
    records.event(event="x")
    records.close()
    assert [line["time"] for line in recorded(tmp_path / "rank-0" / "metrics.jsonl")] == [1002.5]
    assert recorded(tmp_path / "rank-0" / "events.jsonl") == [{"time": 1002.5, "event": "x"}]


@pytest.mark.parametrize("length", [0, 5, 4095, 4096, 10_000])
def test_a_later_life_takes_half_a_line_back(tmp_path: Path, length: int) -> None:
    home = tmp_path / "rank-0"
    home.mkdir()
    (home / "metrics.jsonl").write_text('{"step": 1}\n' + "{" * length)
    (home / "events.jsonl").write_text("{" * length)
    (home / "summary.json").write_text("{}")
    records = Records(str(tmp_path), 0, pytest.fail, append=True)
    records.step(records.time(), step=2, **_LINE)
    records.event(event="x")
    records.close()
    assert [line["step"] for line in recorded(home / "metrics.jsonl")] == [1, 2]
    assert len(recorded(home / "events.jsonl")) == 1
    assert not (home / "summary.json").exists(), "it was a former life's"


def test_a_new_run_starts_anew(tmp_path: Path) -> None:
    said: list[str] = []
    for number in range(3):
        records = Records(str(tmp_path), 0, said.append)
        assert len(said) == number
        records.step(records.time(), step=number, **_LINE)
        records.close()
    home = tmp_path / "rank-0"
    places = [home / "former-1", home / "former-2", home]
    found = [[line["step"] for line in recorded(place / "metrics.jsonl")] for place in places]
    assert found == [[0], [1], [2]], "nothing is lost"
    assert "has the records of another run already; they are kept in former-2" in said[1]


class Writer:
    """Stands for torch's SummaryWriter."""

    made: list[Writer]

    def __init__(self, directory: str) -> None:
        self.directory, self.scalars, self.closed = directory, [], False  # type: ignore[var-annotated]
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int, walltime: float) -> None:
        assert walltime > 0
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.closed = True


def test_tensorboard_gets_the_numbers_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer.made = []
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    records = Records(str(tmp_path), 3, pytest.fail, tensorboard=True)
    records.step(records.time(), step=7, **_LINE, loss=0.25, word="x", huge=10**400)
    records.close()
    (writer,) = Writer.made
    assert writer.directory == str(tmp_path / "rank-3" / "tensorboard")
    assert set(writer.scalars) == {
        ("seconds", 0.5, 7), ("wait_share", 0.25, 7), ("weight", 1.0, 7), ("bytes_sent", 3.0, 7),
        ("bytes_received", 4.0, 7), ("loss", 0.25, 7),
    }  # fmt: skip
    assert writer.closed


def test_without_the_package_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match="pip install tensorboard"):
        peers.join({}, tensorboard=True, run_dir=str(tmp_path / "a"))
    (tmp_path / "train.py").touch()
    run_dir, script = str(tmp_path / "b"), str(tmp_path / "train.py")
    assert cli.main(["launch", "-n", "2", "--tensorboard", "--run-dir", run_dir, script]) == 2
    assert "pip install tensorboard" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["train.py"]


def test_tensorboard_needs_a_place() -> None:
    with pytest.raises(SettingsError, match="set run_dir"):
        peers.join({}, tensorboard=True)
