"""The diff in the guide of a framework is all that makes its example of a stock script."""

from __future__ import annotations

import ast

import pytest
from document_pages import ROOT, blocks

GUIDES = {"transformers": "hf_trainer", "lightning": "lightning_module", "accelerate": "accelerate_loop"}


def stock(example: str, diff: str) -> str:
    """Return the script that the diff was made for; fail if the diff does not lead to the example."""
    lines, place = example.splitlines(), 0
    script: list[str] = []
    gone: list[str] = []
    for line in diff.splitlines():
        sign, text = line[:1], line[1:]
        if sign == "-":
            gone.append(text)
        elif line.strip():
            assert text in lines[place:], f"not in the example, or in another order: {line}"
            there = lines.index(text, place)
            script += [*lines[place:there], *gone, *([text] if sign == " " else [])]
            place, gone = there + 1, []
    return "\n".join([*script, *gone, *lines[place:]])


@pytest.mark.parametrize(("guide", "name"), GUIDES.items())
def test_the_example_is_a_stock_script_and_the_diff(guide: str, name: str) -> None:
    (diff,) = [block.text for block in blocks(ROOT / f"docs/guide/{guide}.md") if block.language == "diff"]
    script = stock((ROOT / f"examples/{name}.py").read_text(), diff)
    tree = ast.parse(script)
    del tree.body[0]  # the docstring says how to start a swarm
    code = ast.unparse(tree)
    assert "peer" not in code
    assert "ossip" not in code
    names = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    imported = {
        alias.asname or alias.name for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) for alias in one.names
    }
    assert imported <= names, "a stock script has no import that it does not need"
    assert {"Trainer", "Accelerator", "DataLoader"} & names <= imported, "nor does it lack one"
