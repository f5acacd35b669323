"""The architecture, enforced: which layer and which room may import which, and who may touch the outside world.

The rules are those of docs/architecture.md, and decision 33 names the exceptions.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Each layer imports only those before it.
LAYERS = ["topologies", "gossip", "peers", "launch"]
#: The rooms of each layer, and the modules beside them: each imports only those before it, and itself.
ROOMS = {
    "gossip": [
        *("version", "errors", "shares", "endpoint", "keys", "arrivals", "settings", "link"),
        *("values", "codecs", "wire", "membership", "books", "policies", "view", "events"),
        *("exchange", "collective", "core", "presets", "faults", "net", "simulation"),
    ],
    "peers": [
        *("setup", "device", "optimizers", "data", "table", "state", "model", "methods", "checkpoints"),
        *("session", "steps", "reporting", "evaluation", "endings", "attachment", "peer", "joining"),
    ],
    "launch": [
        *("user_errors", "terminal", "parser", "versions", "options", "watch", "swarm", "report", "catalog", "plots"),
        *("commands", "cli", "demo"),
    ],
}
#: What belongs to other layers alone.
LIBRARIES = {
    "topologies": {"torch", "zmq", "msgpack", "rich", "matplotlib", "random", "time", "socket", "threading"},
    "gossip": {"torch", "rich", "matplotlib", "random"},
    "peers": {"zmq", "rich", "matplotlib"},
    "launch": {"zmq"},
}
#: What reaches the outside world, or depends on it: only `gossip.net` may import it, directly or by way of others.
OUTSIDE = {"time", "os", "socket", "select", "selectors", "threading", "mmap", "fcntl", "random", "zmq", "secrets"}
OUTSIDE |= {"asyncio", "multiprocessing", "queue", "signal", "ssl", "subprocess", "tempfile", "uuid", "datetime"}
#: The exceptions, each with its reason in decision 33.
EXCEPTIONS = {
    "gossip.values.blocks": {"threading"},
    "gossip.faults.weather": {"threading"},
    "gossip.simulation.swarm": {"time"},
}


def name_of(path: Path) -> str:
    """Return the dotted name of a module; of a package, that of its __init__."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))}


def imported(source: str, module: str, *, package: bool = False, typing: bool = True) -> set[str]:
    """Return the dotted names that a module imports, wherever in the file; of ``from a import b``, a and a.b.

    Args:
        source: its text.
        module: its dotted name, which relative imports are relative to.
        package: whether it is the __init__ of one.
        typing: whether what is imported for type checkers alone counts as well.
    """
    tree = ast.parse(source)
    skipped: set[ast.AST] = set()
    if not typing:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                skipped |= {inner for statement in node.body for inner in ast.walk(statement)}
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


@cache
def imports(module: str, typing: bool = True) -> frozenset[str]:
    """Return what a module of ours imports: modules of ours in full, of others the first name."""
    path = FILES[module]
    found = set()
    for name in imported(path.read_text(), module, package=path.name == "__init__.py", typing=typing):
        parts = name.split(".")
        if parts[0] not in LAYERS:
            found.add(parts[0])
        elif name in FILES:
            # Python also runs the __init__ of every package on the way.
            found |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return frozenset(found - {module})


def closure(module: str) -> dict[str, str]:
    """Return all that is imported by importing a module, and by whom each was found first."""
    found = {module: ""}
    todo = [module]
    while todo:
        one = todo.pop()
        for name in imports(one, typing=False):
            if name not in found:
                found[name] = one
                if name in FILES:
                    todo.append(name)
    return found


def room(module: str) -> str:
    """Return the room of a module: the second part of its name."""
    return [*module.split("."), ""][1]


def test_every_layer_is_looked_at() -> None:
    assert {name.split(".")[0] for name in FILES} == set(LAYERS)


@pytest.mark.parametrize("module", FILES)
def test_imports_only_point_downwards(module: str) -> None:
    layer = module.split(".")[0]
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | LIBRARIES[layer]
    wrong = {name for name in imports(module) if name.split(".")[0] in above}
    assert not wrong, f"{module} is in the layer {layer} and imports {sorted(wrong)}"


@pytest.mark.parametrize("layer", ROOMS)
def test_every_room_has_its_place_in_the_order(layer: str) -> None:
    assert sorted(ROOMS[layer]) == sorted({room(name) for name in FILES if name.startswith(f"{layer}.")})


@pytest.mark.parametrize("module", [name for name in FILES if name.split(".")[0] in ROOMS and room(name)])
def test_rooms_only_import_rooms_before_them(module: str) -> None:
    layer = module.split(".")[0]
    order = ROOMS[layer]
    place = order.index(room(module))
    wrong = {name for name in imports(module) if name.startswith(f"{layer}.") and order.index(room(name)) > place}
    assert not wrong, f"{module} is in {room(module)} and imports {sorted(wrong)}, which come after it"


@pytest.mark.parametrize("module", [name for name in FILES if name.startswith("gossip.") and room(name) != "net"])
def test_nothing_but_the_net_reaches_the_outside_world(module: str) -> None:
    found = closure(module)
    named = {name for allowed, names in EXCEPTIONS.items() if allowed in found for name in names}
    wrong = {
        f"{name}, imported by {found[name]}"
        for name in OUTSIDE & found.keys()
        if any(name not in EXCEPTIONS.get(one, ()) for one in importers(name, found))
    }
    assert not wrong, f"importing {module} reaches {sorted(wrong)}; named in decision 33: {sorted(named)}"
    reached = {name for name in found if name.startswith("gossip.net")}
    assert not reached or module.startswith("gossip.simulation"), f"importing {module} runs {sorted(reached)}"


def importers(library: str, among: dict[str, str]) -> list[str]:
    """Return who of these imports a library itself."""
    return [name for name in among if name in FILES and library in imports(name, typing=False)]


def test_the_exceptions_are_needed() -> None:
    assert {module: set(imports(module)) & names for module, names in EXCEPTIONS.items()} == EXCEPTIONS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import peers.join", {"peers.join"}),
        ("def f():\n    from launch import cli", {"launch", "launch.cli"}),
        ("from . import x", {"gossip.core", "gossip.core.x"}),
        ("from ..wire import x", {"gossip.wire", "gossip.wire.x"}),
        ("import importlib\nimportlib.import_module('peers.x')", {"importlib", "peers.x"}),
        ("if TYPE_CHECKING:\n    import os", set()),
    ],
)
def test_the_rule_sees_every_form_of_import(source: str, expected: set[str]) -> None:
    assert imported(source, "gossip.core.core", typing=False) == expected
