"""Draw rooms.svg: the folders of the four packages, each above those that it imports.

    python docs/pictures/rooms.py

Nothing is listed by hand. The rooms are the folders with Python files, their purpose is the first sentence of their
docstring, and their order follows from the imports. Rooms that import each other have the same height, and dashed
borders.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("rooms.svg")
#: From the bottom up, as tests/test_layers.py has them.
PACKAGES = ("topologies", "gossip", "peers", "launch")
#: Importing one of these makes a room one that does I/O.
IO = {"zmq", "socket", "subprocess", "mmap", "multiprocessing"}
WIDTH, MARGIN, GAP, ROW, HEAD = 980, 20, 12, 66, 34
#: The most boxes side by side.
MOST = 4
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .band { fill: #f6f8fa; stroke: #d0d7de }
  .room { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.2 }
  .io { fill: #fff8c5; stroke: #9a6700 }
  .knot { stroke-dasharray: 6 4 }
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328 }
  .package { font-size: 16px; font-weight: 600 }
  .name { font-size: 14px; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    .band { fill: #161b22; stroke: #30363d }
    .room { fill: #0c2d4d; stroke: #58a6ff }
    .io { fill: #3a2d00; stroke: #d29922 }
    text { fill: #e6edf3 }
  }
"""


def room_of(module: str) -> str:
    """Return the room of a module: its folder, as in gossip/codecs; a file of the package itself stands for itself."""
    parts = module.split(".")
    if len(parts) > 1 and ((ROOT / parts[0] / parts[1]).is_dir() or (ROOT / parts[0] / f"{parts[1]}.py").exists()):
        return "/".join(parts[:2])
    return parts[0]  # a name of the package: what its __init__ imports is another's


def imported(source: str) -> Iterator[str]:
    """Yield what a file imports, wherever in it; what only type checkers import does not count."""
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        nodes += ast.iter_child_nodes(node)


def rooms() -> dict[str, list[Path]]:
    """Return the files of each room."""
    found: dict[str, list[Path]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts != (package, "__init__"):
                found.setdefault(room_of(".".join(parts)), []).append(path)
    return found


def is_folder(room: str) -> bool:
    """Whether a room is more than one file of its package."""
    return (ROOT / room).is_dir()


def purpose(room: str) -> str:
    """Return what a room is for: the first sentence of its docstring."""
    start = ROOT / room / "__init__.py"
    said = ast.get_docstring(ast.parse(start.read_text())) if start.exists() else None
    return re.split(r"(?<=\w)[.:;] |[.:]?\n|\.$", said or "")[0].replace("`", "")


def rows(package: str, graph: nx.DiGraph[str]) -> list[list[tuple[str, str]]]:
    """Return the boxes of a package, a label and a text each, from the bottom up: a row imports only rows below it."""
    own = graph.subgraph(room for room in graph if room.split("/")[0] == package)
    knots = nx.condensation(own)
    levels: dict[int, int] = {}
    for knot in reversed(list(nx.topological_sort(knots))):
        levels[knot] = 1 + max((levels[below] for below in knots.successors(knot)), default=-1)
    found: list[list[str]] = [[] for _ in range(1 + max(levels.values()))]
    for knot, level in levels.items():
        found[level] += knots.nodes[knot]["members"]
    files = sorted(room.partition("/")[2] for row in found for room in row if not is_folder(room))
    boxes = [[(f"{package}/*.py", ", ".join(files))]]  # of every level, and shown as the ground floor
    for row in found:
        folders = sorted(room for room in row if is_folder(room))
        for start in range(0, len(folders), MOST):
            boxes.append([(f"{room}/", purpose(room)) for room in folders[start : start + MOST]])
    return boxes


def box(label: str, said: str, place: tuple[float, float, float], kind: str) -> list[str]:
    """Return a box at (x, y, width)."""
    x, y, width = place
    lines = textwrap.wrap(said, max(10, int(width / 7)), max_lines=2, placeholder=" ...")
    text = [f'<text x="{x + 10:.0f}" y="{y + 19:.0f}" class="name">{label}</text>']
    text += [
        f'<text x="{x + 10:.0f}" y="{y + 36 + 15 * number:.0f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    return [f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{ROW - 8}" rx="6" class="{kind}"/>', *text]


def draw() -> str:
    """Return the picture."""
    files = rooms()
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(files)
    does_io = set()
    for room, paths in files.items():
        for module in (module for path in paths for module in imported(path.read_text())):
            if module.split(".")[0] in IO:
                does_io.add(room)
            elif room_of(module) in files and room_of(module) != room:
                graph.add_edge(room, room_of(module))
    folders = graph.subgraph(room for room in graph if is_folder(room))
    knotted = {room for knot in nx.strongly_connected_components(folders) if len(knot) > 1 for room in knot}
    body, y = [], MARGIN + 40
    for package in reversed(PACKAGES):
        floors = rows(package, graph)
        height = HEAD + ROW * len(floors) + 4
        body.append(
            f'<rect x="{MARGIN}" y="{y}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="8" class="band"/>'
            f'<text x="{MARGIN + 12}" y="{y + 23}" class="package">{package}</text>'
        )
        top = y + HEAD
        for row in reversed(floors):
            width = (WIDTH - 2 * MARGIN - 2 * GAP - GAP * (len(row) - 1)) / len(row)
            for column, (label, said) in enumerate(row):
                place = MARGIN + GAP + column * (width + GAP), top, width
                parts = [f"{package}/{name}" for name in said.split(", ")] if label.endswith(".py") else [label[:-1]]
                kind = "room" + " io" * (not does_io.isdisjoint(parts)) + " knot" * (parts[0] in knotted)
                body += box(label, said, place, kind)
            top += ROW
        y += height + GAP
    height = y + MARGIN - GAP
    notes = [
        "A room imports only rooms below it. Files of the package itself are at the bottom; they may import any of it."
    ]
    notes.append("Yellow: it uses sockets or other processes.")
    if knotted:
        notes[-1] += " Dashed: rooms of a package that also import each other."
    text = [f'<text x="{MARGIN}" y="{MARGIN + 8 + 17 * line}">{note}</text>' for line, note in enumerate(notes)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="The rooms of the source code, in the order of their imports.">\n<style>{STYLE}</style>\n'
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12" class="card"/>\n'
        + "\n".join([*text, *body])
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
