"""topologies -> gossip -> peers -> launch: each package imports only those before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["topologies", "gossip", "peers", "launch"]
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def imported(source: str, package: str) -> set[str]:
    """Return the top-level names that a module imports, wherever in the file, relative imports resolved."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(package if node.level else (node.module or "").split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {arg.value.split(".")[0] for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def forbidden(layer: str) -> set[str]:
    """Return what the layer must not import: the layers above it, and what belongs to those alone."""
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    libraries = {
        "topologies": {
            "torch",
            "zmq",
            "msgpack",
            "rich",
            "matplotlib",
            "random",
            "time",
            "socket",
            "threading",
        },
        "gossip": {"torch", "rich", "matplotlib", "random"},
        "peers": {"zmq", "rich", "matplotlib"},
        "launch": {"zmq"},
    }
    return above | libraries[layer]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_downwards(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    wrong = imported(path.read_text(), layer) & forbidden(layer)
    assert not wrong, f"{path.relative_to(ROOT)} is in the layer {layer} and imports {sorted(wrong)}"


def test_every_layer_is_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(LAYERS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import peers.join", {"peers"}),
        ("def f():\n    from launch import cli", {"launch"}),
        ("from . import x", {"gossip"}),
        ("import importlib\nimportlib.import_module('peers.x')", {"importlib", "peers"}),
    ],
)
def test_the_rule_sees_every_form_of_import(source: str, expected: set[str]) -> None:
    assert imported(source, "gossip") == expected
