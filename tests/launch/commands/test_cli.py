"""The command itself: exit codes, one-line errors, closed pipes, and what it does not import."""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest
from commands import Capture, failure, said

import topologies
from gossip import policies
from gossip.version import CHECKPOINT, WIRE, __version__
from gossip.wire import frames as wire
from launch import cli
from launch.commands import topologies_command
from peers.checkpoints import manifest


def test_help_lists_the_commands_and_succeeds(capsys: Capture) -> None:
    assert cli.main(["--help"]) == 0
    assert "topologies" in capsys.readouterr().out


def test_the_help_of_a_command_has_examples(capsys: Capture) -> None:
    assert cli.main(["topologies", "--help"]) == 0
    assert "gossip topologies base:k=2 -n 33" in capsys.readouterr().out


def test_the_help_of_launch_and_simulate_names_every_algorithm(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # nothing is broken at a hyphen
    averaging = [name for name in policies.names() if not policies.get(name).collective]
    for command, names in (("launch", policies.names()), ("simulate", averaging)):
        assert cli.main([command, "--help"]) == 0
        told = re.search(r"--algorithm NAME\S*\s+(.*) \(default: \w+\)", capsys.readouterr().out)
        assert told is not None
        assert sorted(told[1].split(", ")) == names


def test_version_names_all_that_must_be_the_same_in_a_swarm(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")  # it is one line for scripts, however narrow the terminal
    here = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    expected = f"gossip {__version__} (wire {WIRE}, checkpoint format {CHECKPOINT}, {here})\n"
    assert said(capsys, "--version") == expected
    assert (WIRE, CHECKPOINT) == (wire.VERSION, manifest.VERSION), "the numbers that peers and checkpoints have"


def test_version_without_torch(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert said(capsys, "--version").endswith(", no torch)\n")


def test_no_command_prints_the_help_to_stderr_and_fails(capsys: Capture) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "COMMAND" in err


NINES = "9" * 400


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nonsense"], "nonsense"),
        (["topologies", "--nonsense"], "unknown option --nonsense; see gossip topologies --help"),
        (
            ["launch", "--topolgy", "ring", "train.py"],
            "unknown option --topolgy; did you mean --topology? See gossip launch",
        ),
        (
            ["launch", "-n", "2", "--topolgy=ring", "t.py", "--x"],
            "unknown option --topolgy; did you mean --topology? See",
        ),
        (["simulate", "--peer", "3"], "unknown option --peer; did you mean --peers? See gossip simulate --help"),
        (["simulate", "3"], "unexpected argument 3; see gossip simulate --help"),
        (["--versoin"], "unknown option --versoin; did you mean --version? See gossip --help"),
        (["topologies", "-n", "abc"], "a whole number, not 'abc'; see gossip topologies --help"),
        (["topologies", "-n", "0"], "at least 1, not '0'"),
        (["topologies", "-n", "-3"], "at least 1, not '-3'"),
        (["topologies", "--seed", "x"], "a whole number, not 'x'"),
        (["topologies", "base", "--steps", "0"], "at least 1, not '0'"),
        (["topologies", "--steps", "3"], "--steps 3 needs the NAME"),
        (["topologies", "rign"], "did you mean ring"),
        (["topologies", "base:q=1"], "base has no parameter 'q'; its parameters: k"),
        (["topologies", "base:k=0"], "at least 1, not 0"),
        (["topologies", "base:k=many"], "k takes an integer, not 'many'"),
        (["topologies", "hypercube", "-n", "6"], "the nearest supported sizes: n = 4 and 8"),
        (["topologies", "@no/such.json"], "no/such.json: cannot be read: No such file"),
        (["topologies", "base", "--plot", "picture.jpg"], "picture.jpg: the file name must end in .svg or .png"),
        (["topologies", "base", "--plot", "picture"], "the file name must end in .svg or .png"),
        (["topologies", "--plot", "no/such/p.svg"], "the directory no/such does not exist"),
        # Numbers that nobody means: each once took all memory, all time, or ended in a traceback.
        (["topologies", "base", "-n", NINES], "n, the number of peers, must be at most 1000000, not 999"),
        (["topologies", "hypercube", "-n", "5000000000"], "must be at most 1000000, not 5000000000"),
        (["simulate", "--peers", NINES], "peers must be at most 100000"),
        (["simulate", "--peers", "2", "--steps", NINES], "steps at most 1000000000"),
        (["simulate", "--peers", "2", "--size", "99999999999"], "size must be at most 67108864 for 2 peers"),
        (["launch", "-n", NINES, "train.py"], "peers are more than one launcher starts: ask for at most 100000"),
        (["status", "x" * 5000], "xxx: File name too long"),
        (["report", "x" * 5000], "xxx: File name too long"),
    ],
)
def test_a_users_mistake_is_told_in_one_line(capsys: Capture, argv: list[str], said: str) -> None:
    assert said in failure(capsys, *argv)


def test_a_message_of_several_lines_becomes_one(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.json"
    assert "two lines.json" in failure(capsys, "topologies", f"@{path}")


def test_a_file_with_another_number_of_peers_than_asked_for(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "three.edges"
    path.write_text("0 1\n1 2\n2 0\n")
    assert "a graph of 3 peers, but the run has 4" in failure(capsys, "topologies", f"@{path}", "-n", "4")


def with_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Add a command that raises, in the one line that the module promises."""

    def run(args: argparse.Namespace) -> int:
        raise error if args else AssertionError

    module = types.SimpleNamespace(add_parser=lambda subparsers: subparsers.add_parser("raise").set_defaults(run=run))
    monkeypatch.setattr(cli, "COMMANDS", (topologies_command, module))


def test_ctrl_c_is_quiet(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with_command(monkeypatch, KeyboardInterrupt())
    assert cli.main(["raise"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError(9, "a bug")])
def test_a_bug_is_not_taken_for_a_users_mistake(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with_command(monkeypatch, error)
    with pytest.raises(type(error), match="a bug"):
        cli.main(["raise"])


#: argparse swallows a failed write, which only an unbuffered stdout gives it.
BUFFERED = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


def python(*argv: str, stdout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *argv]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=50, env=BUFFERED)


@pytest.mark.parametrize("argv", [["topologies", "-n", "4"], ["topologies", "-n", "4", "--json"], ["--help"]])
def test_a_closed_pipe_ends_it_quietly(argv: list[str]) -> None:
    # A reader that is gone before the first byte, which `| head -1` only is now and then.
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = python("-m", "launch.cli", *argv, stdout=writing)
    finally:
        os.close(writing)
    assert result.stderr == ""
    assert result.returncode == 141


def test_head_gets_its_line() -> None:
    result = subprocess.run(
        f"{sys.executable} -m launch.cli topologies -n 4 | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{len(topologies.names())} topologies for 4 peers\n"


def test_slow_libraries_stay_out_until_needed() -> None:
    script = (
        "import sys; from launch import cli; cli.main(['--help']); cli.main(['--version']);"
        "print(sorted({'torch', 'matplotlib', 'networkx', 'rich'} & set(sys.modules)), file=sys.stderr);"
        "cli.main(['topologies', '-n', '4']); cli.main(['topologies', 'base']);"
        "print(sorted({'torch', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    assert python("-c", script, stdout=subprocess.DEVNULL).stderr == "[]\n[]\n"
