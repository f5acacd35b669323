"""A field of an option table is all that an option needs: the flag, the key of a file, the checks, what is told."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import pytest

from launch.options.arguments import integer
from launch.options.option_table import OptionTable, option
from launch.options.options import JoinOptions, LaunchOptions, SharedOptions
from launch.parser import Parser
from launch.user_errors import CommandError
from peers.setup import Setup


@dataclass(frozen=True)
class Example(OptionTable):
    GROUPS: ClassVar[tuple[str, ...]] = ("first", "second")

    late: float = option(1.5, "a figure", group="second", read=float, metavar="F", above=0)
    seed: int = option(0, "of all", group="first", short="-s", read=integer, metavar="S", setup="seed", least=0)
    names: tuple[str, ...] = option((), "some", setup="faults")
    loud: bool = option(False, "more lines", in_file=False)
    place: str = option("here", "where", positional=True)


def parsed(*argv: str, text: str | None = None, path: Path | None = None) -> Example:
    parser = Parser(prog="example")
    Example.add_to(parser)
    Example.add_positional(parser, "place", "PLACE", nargs="?")
    if path is not None and text is not None:
        path.write_text(text)
    return Example.gathered(parser.parse_args(argv), path)


def test_the_command_line_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    assert parsed() == Example()
    assert parsed("-s", "3", "--names", "a", "--names", "b", "--loud", "there") == Example(
        seed=3, names=("a", "b"), loud=True, place="there"
    )
    told = 'seed = 7\nlate = 2\nnames = "a"\nplace = "away"'
    assert parsed(text=told, path=file) == Example(seed=7, late=2, names=("a",), place="away")
    assert parsed("--seed", "0", text=told, path=file).seed == 0, "a flag wins, also with the default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sede = 1", "unknown option 'sede'; the options are: late, names, place, seed"),
        ("loud = true", "unknown option 'loud'"),
        ("seed = 1.5", "seed must be a number"),
        ("seed = true", "seed must be a number"),
        ("late = 'x'", "late must be a number"),
        ("names = [1]", "names must be a list of strings"),
        ("place = 1", "place must be a string"),
        ("seed = -1", "seed must be 0 or more, not -1"),
        ("late = 0", "late must be above 0 seconds, not 0"),
        ("late = inf", "late must be above 0 seconds, not inf"),
    ],
)
def test_what_a_file_must_not_say(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        parsed(text=text, path=tmp_path / "options.toml")


def test_what_peers_are_told_and_what_a_file_keeps() -> None:
    example = Example(seed=3, names=("x",), loud=True)
    assert example.told() == {"seed": 3, "faults": ["x"]}
    assert example.for_file() == {"late": 1.5, "seed": 3, "names": ("x",), "place": "here"}


def test_the_help_has_the_groups_in_order() -> None:
    parser = Parser(prog="example")
    Example.add_to(parser)
    lines = parser.format_help().splitlines()
    assert lines.index("first:") < lines.index("second:")
    assert "  -s S, --seed S  of all" in lines


@pytest.mark.parametrize("table", [SharedOptions, LaunchOptions, JoinOptions])
def test_every_peer_can_be_told_what_the_options_say(table: type[SharedOptions]) -> None:
    told = table().told()
    assert told.keys() <= {one.name for one in fields(Setup)}
    assert {"device", "start_timeout", "stop_within"} <= told.keys()
    Setup().changed(**told)


def test_an_option_behind_the_script_is_not_swallowed_silently(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""parser.add_argument("--seed"); parser.add_argument("--name"); flags.DEFINE_bool("quiet")""")
    given = ("--dry-run", "--seed", "3", "--epochs", "--topology=ring", "-n", "--dry-run", "ring")
    warning = LaunchOptions.swallowed(given, str(script))
    assert warning.startswith(f"--dry-run, --topology, -n behind {script} are passed to the script; ")
    assert LaunchOptions.swallowed(("--epochs", "--seed=3", "--quiet"), str(script)) == ""
    assert JoinOptions.swallowed(("--rank", "--topology"), "a.module").startswith("--rank behind a.module is passed")
