"""`make` sets itself up with one line on the screen, and shows all that pip said if that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import SHORT

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone whose environment has a Python that says much and installs nothing."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nfor i in $(seq 500); do echo "Collecting package $i"; done\nexit "$PIP_EXIT"\n')
    python.chmod(0o755)
    return tmp_path


def make(clone: Path, pip_exit: int, target: str = ".venv/.ready") -> subprocess.CompletedProcess[str]:
    command = ["make", f"PYTHON={sys.executable}", target]
    # Not as a part of the make that may run the tests.
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    environment = {**outside, "PIP_EXIT": str(pip_exit)}
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=50, env=environment, check=False)


def test_setting_up_is_one_line(clone: Path) -> None:
    done = make(clone, 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Setting up .venv: installing constraints.txt, once; a few minutes, for torch is large ..."
    ]
    assert done.stderr == ""
    assert make(clone, 1).returncode == 0, "a second call installs nothing"


def test_what_the_documents_need_is_installed_by_those_who_build_them(clone: Path) -> None:
    done = make(clone, 0, ".venv/.ready-docs")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Setting up .venv: installing constraints.txt, once; a few minutes, for torch is large ...",
        "Setting up .venv for the documents, once; some seconds ...",
    ]
    assert make(clone, 1, ".venv/.ready-docs").returncode == 0, "a second call installs nothing"
    rules = (ROOT / "Makefile").read_text()
    needing = {line.partition(":")[0] for line in rules.splitlines() if "$(DOCS)" in line.partition("#")[0]}
    assert needing == {"$(DOCS)", "docs"}, "a demo is no slower for them"


def test_frameworks_are_installed_by_those_who_run_the_tests(clone: Path) -> None:
    done = make(clone, 0, ".venv/.ready-test")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Setting up .venv: installing constraints.txt, once; a few minutes, for torch is large ...",
        "Setting up .venv for the tests, once; a minute, for transformers, lightning and ray are large ...",
    ]
    assert make(clone, 1, ".venv/.ready-test").returncode == 0, "a second call installs nothing"
    rules = (ROOT / "Makefile").read_text()
    needing = {line.partition(":")[0] for line in rules.splitlines() if "$(TEST)" in line.partition("#")[0]}
    assert needing == {"$(TEST)", "test", "slow"}, "a demo is no slower for them"


def test_a_broken_link_of_the_documents_fails_the_check() -> None:
    """Warnings are errors; those that --quiet hides would not be counted."""
    rules = (ROOT / "Makefile").read_text()
    assert "\ncheck: $(READY) docs ##" in rules
    assert rules.partition("\ndocs:")[2].splitlines()[1].endswith("mkdocs build --strict")
    checked = (ROOT / "mkdocs.yml").read_text().partition("validation:")[2]
    assert {"omitted_files: warn", "not_found: warn", "anchors: warn", "unrecognized_links: warn"} <= {
        line.strip() for line in checked.splitlines()
    }


def test_an_error_is_shown_in_full_and_the_next_call_tries_again(clone: Path) -> None:
    failed = make(clone, 1)
    assert failed.returncode != 0
    assert failed.stderr.count("Collecting package") == 500
    assert "Setting up .venv failed; what pip said stands above" in failed.stderr
    assert "Collecting" not in make(clone, 0).stdout
    assert (clone / ".venv" / ".ready").exists()


def test_make_bench_runs_what_the_guide_and_the_help_say() -> None:
    help_line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("bench:"))
    names = "planning, command_line, codecs, simulator, engine"
    assert ", ".join(SHORT) == names
    assert help_line.endswith(f": {names}")
    assert f"with their bars: {names} |" in (ROOT / "docs" / "guide" / "install.md").read_text()
