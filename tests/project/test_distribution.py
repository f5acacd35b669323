"""Wheel and source distribution: built, looked into, and installed where there is no clone. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from gossip.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ("gossip", "launch", "peers", "topologies")
NAME = f"gossip_runtime-{__version__}"
#: What only exists where somebody has worked: environments, caches, builds and runs.
UNTRACKED = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "runs")

pytestmark = pytest.mark.timeout(400)


def run(*command: str | Path, cwd: Path) -> str:
    """Return what a command prints; it must succeed, and sees neither the clone nor an index of packages."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    environment = {**outside, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Built:
    """The two archives of a release, and the tree that they were built from."""

    tree: Path
    wheel: Path
    sdist: Path

    @property
    def in_wheel(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    @property
    def in_sdist(self) -> set[str]:
        with tarfile.open(self.sdist) as archive:
            return {name.removeprefix(f"{NAME}/") for name in archive.getnames()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build in a copy of the clone: setuptools leaves files there, and takes in what an earlier build has left."""
    tree, out = tmp_path_factory.mktemp("tree") / "clone", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*UNTRACKED))
    for hook in ("build_sdist", "build_wheel"):
        run(sys.executable, "-c", f"from setuptools import build_meta; build_meta.{hook}({str(out)!r})", cwd=tree)
    return Built(tree, out / f"{NAME}-py3-none-any.whl", out / f"{NAME}.tar.gz")


def files(tree: Path, *directories: str) -> set[str]:
    found = (path for name in directories for path in (tree / name).rglob("*") if path.is_file())
    return {str(path.relative_to(tree)) for path in found}


def test_the_wheel_has_the_packages_whole_and_nothing_else(built: Built) -> None:
    metadata = f"{NAME}.dist-info/"
    sources = {name for name in files(built.tree, *PACKAGES) if name.endswith((".py", "py.typed"))}
    assert {name for name in built.in_wheel if not name.startswith(metadata)} == sources
    assert {f"{package}/py.typed" for package in PACKAGES} <= built.in_wheel
    assert f"{metadata}licenses/LICENSE" in built.in_wheel


def test_the_source_distribution_has_what_make_needs(built: Built) -> None:
    assert files(built.tree, *PACKAGES, ".ci", ".github", "benchmarks", "docs", "examples", "tests") <= built.in_sdist
    assert {path.name for path in built.tree.glob("*.md")} <= built.in_sdist
    assert {"CITATION.cff", "LICENSE", "Makefile", "constraints.txt", "pyproject.toml"} <= built.in_sdist
    assert {".gitignore", ".pre-commit-config.yaml"} <= built.in_sdist


def test_the_source_distribution_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    run(sys.executable, "-m", "pip", "wheel", *options, built.sdist, cwd=tmp_path)
    again = Built(built.tree, tmp_path / built.wheel.name, built.sdist)
    assert again.in_wheel == built.in_wheel


def test_the_wheel_works_where_there_is_no_clone(built: Built, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "fresh", cwd=tmp_path)
    python, command = tmp_path / "fresh/bin/python", tmp_path / "fresh/bin/gossip"
    run(python, "-m", "pip", "install", "--no-deps", built.wheel, cwd=tmp_path)
    # The dependencies are those of this environment. A path in a .pth file brings no .pth files of its own with it, so
    # an editable installation stays out.
    here = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    paths = [path for path in sys.path if Path(path).name == Path(sysconfig.get_path("purelib")).name]
    (here / "dependencies.pth").write_text("\n".join(paths) + "\n")

    where = f"import {', '.join(PACKAGES)}; print(*(m.__file__ for m in ({', '.join(PACKAGES)})))"
    assert run(python, "-W", "error", "-c", where, cwd=tmp_path).split() == [
        str(here / package / "__init__.py") for package in PACKAGES
    ]
    assert run(command, "--version", cwd=tmp_path).startswith(f"gossip {__version__} (wire ")
    assert "simulate" in run(command, "--help", cwd=tmp_path)
    result = run(command, "simulate", "--peers", "3", "--steps", "4", "--json", cwd=tmp_path)
    assert result.startswith("{")
