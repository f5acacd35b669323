"""`.ci/run`: a test that fails is run once more, alone, and named as unsteady if it passes then; all else is red."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Some tests run pytest many times.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[1]
CLOSING = re.compile(r"^=+ .*\b(?:passed|failed|errors?)\b.* in [\d.]+s.* =+$", re.MULTILINE)

#: What the throw-away tests share: `first` tells whether this is the first time that it is called with a name.
HELPER = """
import os
import random
import signal
from pathlib import Path

import pytest


def first(name):
    marker = Path(__file__).with_name(name + ".marker")
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

"""
#: What tests start does not write to the file of the run that they are a part of.
GOOD = 'def test_good():\n    assert "CI_OUTCOME" not in os.environ\n'
ONCE = 'def test_once():\n    assert not first("once")\n'
ALWAYS = "def test_always():\n    assert False\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project without tests, with this one's settings of pytest."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def write(project: Path, **files: str) -> None:
    for name, source in files.items():
        (project / "tests" / f"test_{name}.py").write_text(HELPER + source)


def run(project: Path, *command: str) -> tuple[int, str]:
    # Not as a part of the make and the pytest that run this test.
    ours = ("MAKE", "MFLAGS", "PYTEST_")
    outside = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment = {**outside, "CI": "true", "PYTEST_XDIST_AUTO_NUM_WORKERS": "1"}
    done = subprocess.run(
        command or [sys.executable, str(ROOT / ".ci" / "retry.py"), sys.executable, "-m", "pytest"],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def unsteady(out: str) -> list[str]:
    """Return the names in the lines at the end."""
    lines = out.splitlines()
    named = [line for line in lines if line.startswith("unsteady: ")]
    assert lines[len(lines) - len(named) :] == named, "they are the last lines"
    return [line.removeprefix("unsteady: ") for line in named]


def test_tests_that_pass_are_run_once(project: Path) -> None:
    write(project, good=GOOD)
    code, out = run(project)
    assert code == 0, out
    assert [line.strip("= ").split(" in ")[0] for line in CLOSING.findall(out)] == ["1 passed"]
    assert "once more" not in out
    assert unsteady(out) == []


def test_whatever_fails_once_is_unsteady(project: Path) -> None:
    """A test fails in itself, in a fixture before or after it, in both, and by a crash of the worker that runs it."""
    fixtures = """
@pytest.fixture
def before():
    assert not first("before")

@pytest.fixture
def after():
    yield
    assert not first("after")

def test_before(before):
    pass

def test_after(after):
    pass

@pytest.fixture
def after_both():
    yield
    assert not first("after both")

def test_both(after_both):
    assert not first("both")

@pytest.mark.parametrize("word", ["a - b", "[c]::d", "@é ü", ""])
def test_named(word):
    assert not first(f"{len(word)} {word[-1:]}")
"""
    crash = 'def test_crash():\n    if first("crash"):\n        os.kill(os.getpid(), signal.SIGKILL)\n'
    write(project, good=GOOD, once=ONCE, fixtures=fixtures, crash=crash)
    code, out = run(project)
    assert code == 0, out
    assert sorted(unsteady(out)) == [
        "tests/test_crash.py::test_crash",
        "tests/test_fixtures.py::test_after",
        "tests/test_fixtures.py::test_before",
        "tests/test_fixtures.py::test_both",
        "tests/test_fixtures.py::test_named[@\\xe9 \\xfc]",
        "tests/test_fixtures.py::test_named[[c]::d]",
        "tests/test_fixtures.py::test_named[]",
        "tests/test_fixtures.py::test_named[a - b]",
        "tests/test_once.py::test_once",
    ]
    assert [line.strip("= ").split(" in ")[0] for line in CLOSING.findall(out)] == ["7 failed, 2 passed, 3 errors"]
    assert out.count("once more, alone: ") == 9, "each is run again once"


def test_whatever_fails_twice_is_red(project: Path) -> None:
    write(project, good=GOOD, once=ONCE, always=ALWAYS)
    code, out = run(project)
    assert code == 1
    assert "failed twice: tests/test_always.py::test_always\n" in out
    assert "failed twice: tests/test_once.py" not in out
    assert out.count("def test_always") == 2, "both failures are shown"


def test_the_second_run_is_alone_and_has_the_same_random_numbers(project: Path) -> None:
    write(
        project,
        good=GOOD,
        seeded="""
def test_seeded():
    with Path(__file__).with_name("seen").open("a") as file:
        print(random.random(), os.environ.get("PYTEST_XDIST_WORKER"), file=file)
    assert not first("seeded")
""",
    )
    code, out = run(project)
    assert code == 0, out
    (number, worker), (again, alone) = (line.split() for line in (project / "tests" / "seen").read_text().splitlines())
    assert number == again
    assert worker.startswith("gw")
    assert alone == "None"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module\n", "not only tests failed: tests/test_more.py"),
        ('@pytest.mark.skip(reason="no")\ndef test_skipped():\n    pass\n', "tests were skipped: tests/test_more.py"),
        ('pytest.skip("no", allow_module_level=True)\n', "tests were skipped: tests/test_more.py"),
        (
            '@pytest.mark.parametrize("n", range(10))\ndef test_many(n):\n    assert not first(str(n))\n',
            "11 tests failed, and more than 10 mean that something is broken",
        ),
    ],
    ids=["does not import", "skipped", "skipped as a whole", "too many"],
)
def test_beside_other_trouble_a_failed_test_is_not_run_again(project: Path, source: str, reason: str) -> None:
    write(project, once=ONCE, more=source)
    code, out = run(project)
    assert code == 1
    assert f"no test is run again: {reason}" in out
    assert unsteady(out) == []


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("def pytest_runtest_logreport(report):\n    1 / 0\n", "pytest ended with exit code 3"),
        ("def pytest_runtest_logreport(report):\n    os._exit(1)\n", "pytest did not come to its end"),
        ("def pytest_collection_modifyitems(items):\n    items.clear()\n", "pytest ended with exit code 5"),
    ],
    ids=["internal error", "crash", "no tests"],
)
def test_a_run_that_does_not_come_to_its_end_is_red(project: Path, hook: str, reason: str) -> None:
    (project / "tests" / "conftest.py").write_text(f"import os\n\n\n{hook}")
    write(project, once=ONCE)
    code, out = run(project)
    assert code == 1
    assert f"no test is run again: {reason}" in out


@pytest.mark.parametrize(
    ("command", "source", "expected"),
    [("-m pytest; true", ALWAYS, 1), ("-m pytest; true", ONCE, 0), ("-c pass", GOOD, 1)],
    ids=["failed", "unsteady", "never run"],
)
def test_a_command_that_hides_how_pytest_ended_is_seen_through(
    project: Path, command: str, source: str, expected: int
) -> None:
    """As ``pytest | tee log`` does."""
    write(project, all=source)
    code, out = run(
        project, sys.executable, str(ROOT / ".ci" / "retry.py"), "sh", "-c", f"'{sys.executable}' {command}"
    )
    assert code == expected, out
    assert unsteady(out) == (["tests/test_all.py::test_once"] if source == ONCE else [])


def test_who_skips_the_second_time_has_not_passed(project: Path) -> None:
    write(project, skips='def test_skips():\n    assert not first("skips")\n    pytest.skip("not now")\n')
    code, out = run(project)
    assert code == 1
    assert "failed twice: tests/test_skips.py::test_skips\n" in out


@pytest.mark.parametrize(
    ("check", "source", "expected"),
    [("true", GOOD, 0), ("true", ONCE, 0), ("true", ALWAYS, 1), ("false", GOOD, 2)],
    ids=["well", "unsteady", "failed", "not checked"],
)
def test_the_whole_of_it(project: Path, check: str, source: str, expected: int) -> None:
    """With a Makefile whose check does nothing, and whose tests are those of the project."""
    shutil.copytree(ROOT / ".ci", project / ".ci")
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (project / "Makefile").write_text(f"check:\n\t{check}\n\ntest:\n\t.venv/bin/python -m pytest\n")
    write(project, all=source)
    code, out = run(project, "bash", ".ci/run")
    assert code == expected, out
    assert len(CLOSING.findall(out)) == (0 if check == "false" else 2 if expected else 1)
    assert unsteady(out) == (["tests/test_all.py::test_once"] if source == ONCE else [])
