"""A name means one thing: no two modules and no two public classes of the packages share one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("topologies", "gossip", "peers", "launch")

#: Names that are still shared. A name that is renamed leaves the list.
SHARED_MODULES: set[str] = set()
#: A swarm is a swarm: the simulator's own, which nobody imports from outside, and the one that a user starts on Ray.
SHARED_CLASSES: set[str] = {"Swarm"}


def modules(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each module's name and where it is."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if path.stem not in ("__init__", "__main__"):
                yield path.stem, str(path.relative_to(root))


def classes(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each public class's name and where it is defined."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, str(path.relative_to(root))


def shared(named: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Return where a name is, for those that are in several places."""
    found: dict[str, list[str]] = {}
    for name, place in named:
        found.setdefault(name, []).append(place)
    return {name: places for name, places in found.items() if len(places) > 1}


@pytest.mark.parametrize(("look", "allowed"), [(modules, SHARED_MODULES), (classes, SHARED_CLASSES)])
def test_no_name_means_two_things(look: object, allowed: set[str]) -> None:
    assert callable(look)
    found = shared(look(ROOT))
    assert {name: places for name, places in found.items() if name not in allowed} == {}, "rename one of them"
    assert allowed - found.keys() == set(), "these are unique now: take them off the list"


def test_every_kind_of_double_is_found(tmp_path: Path) -> None:
    for path, text in {
        "gossip/net/one.py": "class Same: pass\nclass _Private: pass\nclass Alone: pass",
        "launch/one.py": "def function():\n    class Same: pass\nclass _Private: pass",
        "peers/__init__.py": "class Other: pass",
        "topologies/__init__.py": "class Other: pass",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert shared(modules(tmp_path)) == {"one": ["gossip/net/one.py", "launch/one.py"]}
    assert shared(classes(tmp_path)) == {
        "Same": ["gossip/net/one.py", "launch/one.py"],
        "Other": ["topologies/__init__.py", "peers/__init__.py"],
    }


def test_all_packages_are_looked_at() -> None:
    assert {place.split("/")[0] for _, place in modules(ROOT)} == set(PACKAGES)
