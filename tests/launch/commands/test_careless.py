"""Commands as a careless user types them: each mistake is one line, and nothing is silently something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Capture, failure

from launch.swarm.hostfile import read_hostfile


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("program").touch()
    for name in ("directory", "directory.py"):
        Path(name).mkdir()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("directory", "directory is a directory: name the script in it, or a module with -m"),
        ("directory.py", "directory.py is a directory"),
        ("./program", "the program ./program cannot be executed: name it with a path (./program), and allow it with"),
        ("program", "the program program cannot be executed: name it with a path (./program)"),
        ("nowhere.py", "the script nowhere.py does not exist"),
        ("", "no script given"),
    ],
)
def test_what_cannot_be_run_is_named_with_the_reason(capsys: Capture, script: str, complaint: str) -> None:
    assert complaint in failure(capsys, "launch", script)


def test_a_hostfile_may_come_from_windows(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes("\ufeffnode1 slots=2\r\n\r\n# the other one\r\nnode2\r\n".encode())
    assert [(line.host, line.slots) for line in read_hostfile(path)] == [("node1", 2), ("node2", 1)]


@pytest.mark.parametrize("place", ["program", "program/below"])
def test_a_file_is_no_run_directory(capsys: Capture, place: str) -> None:
    said = failure(capsys, "launch", "--run-dir", place, "train.py")
    assert f"{place}: there is a file in its place; choose another --run-dir" in said
