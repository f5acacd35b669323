"""The architecture, enforced: which layer and which room may import which, and who may touch the outside world.

The rules are those of docs/architecture.md, and decision 33 names the exceptions.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Each layer imports only those before it.
LAYERS = ["topologies", "gossip", "peers", "launch"]
#: The rooms of each layer, and the modules beside them: each imports only those before it, and itself.
ROOMS = {
    "gossip": [
        *("version", "errors", "shares", "grids", "costs", "endpoint", "keys", "arrivals", "settings", "link"),
        *("values", "codecs", "wire", "membership", "books", "policies", "choosing", "view", "events"),
        *("exchange", "collective", "core", "presets", "faults", "net", "simulation"),
    ],
    "peers": [
        *(
            "setting_kinds",
            "host_lists",
            "own_place",
            "slurm_step",
            "setup",
            "environment_settings",
            "hidden_environment",
            "invitations",
            "own_process",
            "device",
            "optimizers",
            "crew",
            "rows",
        ),
        *("data", "table", "state", "model", "rate_schedule", "methods", "checkpoints"),
        *(
            "session",
            "steps",
            "reporting",
            "evaluation",
            "endings",
            "attachment",
            "training",
            "closing",
            "peer",
            "meeting",
            "joining",
            "planner",
            "integrations",
        ),
    ],
    "launch": [
        *("user_errors", "terminal", "parser", "versions", "options", "watch", "swarm", "report", "catalog", "plots"),
        *("commands", "cli", "demo"),
    ],
}
#: The libraries that each layer may import beside Python's own. A new dependency is a line here and in pyproject.toml.
LIBRARIES = {
    "topologies": {"networkx", "numpy"},
    "gossip": {"ml_dtypes", "msgpack", "numpy", "xxhash", "zmq"},
    "peers": {
        *("msgpack", "numpy", "prometheus_client", "safetensors", "torch", "xxhash"),
        *("transformers", "lightning", "accelerate", "ray"),
    },
    "launch": {"matplotlib", "numpy", "rich", "tomli"},
}
#: All that the modules without I/O may import: nothing of it has a clock, a file, a socket, a thread or a global random
#: number. Everything else is the outside world. Only `gossip.net` may reach that, directly or by way of others.
PURE = {"__future__", "abc", "bisect", "collections", "contextlib", "dataclasses", "difflib", "enum", "functools", "gc"}
PURE |= {"heapq", "inspect", "ipaddress", "itertools", "json", "math", "operator", "re", "sys", "types", "typing"}
PURE |= {"weakref", "ml_dtypes", "msgpack", "networkx", "numpy", "xxhash"}
#: The exceptions, each with its reason in decision 33.
EXCEPTIONS = {
    "gossip.values.blocks": {"threading"},
    "gossip.faults.weather": {"threading"},
    "gossip.simulation.swarm": {"time"},
    "topologies.files": {"pathlib", "xml"},
    "topologies.registry": {"importlib"},
}
#: Functions that reach the outside world and need no import.
BUILTINS = {"open", "input", "print", "exec", "eval", "compile", "breakpoint", "__import__"}
#: What numpy draws by, if it is given a seed: all else in numpy.random has a global state or asks the system.
SEEDED = {"Generator", "PCG64", "default_rng"}


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
            # Exactly this: what stands below "not TYPE_CHECKING", or below "else", is run.
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
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
    if "import_module" in source or "__import__" in source:
        # Whatever the function is called here, and wherever its argument comes from: a table of names, for example.
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is str}
        known = sys.stdlib_module_names | set(LAYERS) | set().union(*LIBRARIES.values())
        found |= {text for text in texts if text.split(".")[0] in known and text.replace(".", "").isidentifier()}
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
    allowed = {*LAYERS[: LAYERS.index(layer) + 1], *LIBRARIES[layer], *sys.stdlib_module_names, "tomllib"}
    wrong = {name for name in imports(module) if name.split(".")[0] not in allowed}
    assert not wrong, f"{module} is in the layer {layer} and imports {sorted(wrong)}, which the layer may not"
    assert "random" not in imports(module) or layer in ("peers", "launch"), f"{module} imports random"


def test_only_one_module_knows_zeromq() -> None:
    assert [name for name in FILES if "zmq" in imports(name)] == ["gossip.net.zmq_transport"]


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


WITHOUT_IO = [name for name in FILES if name.split(".")[0] in ("topologies", "gossip") and room(name) != "net"]


@pytest.mark.parametrize("module", WITHOUT_IO)
def test_nothing_but_the_net_reaches_the_outside_world(module: str) -> None:
    wrong = {
        f"{one} imports {name}"
        for one in closure(module)
        if one in FILES
        for name in imports(one, typing=False) - FILES.keys() - PURE - EXCEPTIONS.get(one, set())
    }
    assert not wrong, f"importing {module} reaches the outside world: {sorted(wrong)}; decision 33 has the exceptions"
    assert not [name for name in closure(module) if name.startswith("gossip.net")]


@pytest.mark.parametrize("module", WITHOUT_IO)
def test_nothing_but_the_net_reaches_the_outside_world_without_an_import(module: str) -> None:
    assert not impurities(FILES[module].read_text())


def impurities(source: str) -> list[str]:
    """Return the uses of built-in functions that reach the outside world, and of numpy's global random numbers."""
    nodes = list(ast.walk(ast.parse(source)))
    seeded = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr in SEEDED}
    found: list[ast.expr | ast.stmt] = []
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in BUILTINS:
            found.append(node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random", "numpy.random"):
            found += {node} - seeded
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in SEEDED:
            found += [] if node.args else [node]
        elif isinstance(node, ast.ImportFrom) and node.module == "numpy":
            found += [node] if "random" in {alias.name for alias in node.names} else []
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            found += [node] if any(name.startswith("numpy.random") for name in names) else []
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in found]


def test_the_exceptions_are_needed() -> None:
    assert {module: set(imports(module)) & names for module, names in EXCEPTIONS.items()} == EXCEPTIONS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import peers.join", {"peers.join"}),
        ("def f():\n    from launch import cli", {"launch", "launch.cli"}),
        ("from . import x", {"gossip.core", "gossip.core.x"}),
        ("from ..wire import x", {"gossip.wire", "gossip.wire.x"}),
        ("from time import monotonic as clock", {"time", "time.monotonic"}),
        ("import importlib\nimportlib.import_module('peers.x')", {"importlib", "peers.x"}),
        (
            "from importlib import import_module as load\nload(name='peers.x')",
            {"importlib", "importlib.import_module", "peers.x"},
        ),
        ("import importlib\nHOMES = {'Peer': 'peers.x'}\nimportlib.import_module(HOMES[n])", {"importlib", "peers.x"}),
        ("load = __import__\nload('os')", {"os"}),
        ("if TYPE_CHECKING:\n    import os", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import os", {"os"}),
        ("if not TYPE_CHECKING:\n    import os", {"os"}),
        ("if FAST or TYPE_CHECKING:\n    import os", {"os"}),
        ("try:\n    import os\nexcept ImportError:\n    import time", {"os", "time"}),
    ],
)
def test_the_rule_sees_every_form_of_import(source: str, expected: set[str]) -> None:
    assert imported(source, "gossip.core.core", typing=False) == expected


@pytest.mark.parametrize(
    "source",
    [
        "open('/dev/urandom')",
        "read = open\nread('file')",
        "exec('import time')",
        "__import__('os').getpid()",
        "np.random.rand()",
        "draws = np.random",
        "numpy.random.seed(0)",
        "np.random.default_rng()",
        "default_rng()",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy.random as draws",
    ],
)
def test_the_rule_sees_what_needs_no_import(source: str) -> None:
    assert impurities(source)


@pytest.mark.parametrize("source", ["np.random.default_rng(0)", "path.open()", "self.open", "def open(self): pass"])
def test_the_rule_leaves_pure_code_alone(source: str) -> None:
    assert impurities(source) == []
