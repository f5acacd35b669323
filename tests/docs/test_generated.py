"""What scripts make of the source for the documents: pictures that are kept, and parts of pages that are not."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ElementTree
from types import ModuleType

import pytest
from document_pages import ROOT, commands

from peers.environment_settings import VARIABLES

DOCS = ROOT / "docs"
#: Pictures that follow from the source alone, and what draws them.
DRAWN = {"how-it-works.svg": "how_it_works", "rooms.svg": "rooms", "step-phases.svg": "step_phases"}
#: No picture of the documents is larger.
LARGEST = 200_000


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts of the documents be imported as their users do."""
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    monkeypatch.syspath_prepend(str(DOCS / "pictures"))


def imported(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("picture", DRAWN)
def test_pictures_are_what_their_scripts_draw(picture: str) -> None:
    script = imported(DRAWN[picture])
    drawn = script.draw()
    ElementTree.fromstring(drawn)
    assert script.PICTURE.read_text() == drawn, f"say: python docs/pictures/{DRAWN[picture]}.py"


def test_pictures_are_small_and_load_nothing_from_elsewhere() -> None:
    pictures = [*DOCS.rglob("*.svg"), *DOCS.rglob("*.png")]
    assert {path.name for path in pictures} >= {*DRAWN, "live-table.svg", "report.png"}
    for path in pictures:
        assert path.stat().st_size < LARGEST, path
        if path.suffix == ".svg":
            assert not re.search(r"""(?:href|src)=["']https?:|url\(["']?https?:""", path.read_text()), path


def test_the_reference_has_every_command_and_option() -> None:
    text = imported("command_line").reference()
    for command, parser in commands().items():
        section = text.partition(f"\n## gossip {command}\n")[2].partition("\n## ")[0]
        for option in set(parser._option_string_actions) - {"-h", "--help"}:
            assert re.search(rf"^\| .*`{option}(?: [^`]*)?`.* \|", section, re.MULTILINE), f"{command} {option}"


def test_the_settings_have_every_field_with_its_default_and_comment() -> None:
    tables = imported("setting_tables")
    page = (DOCS / "reference" / "settings.md").read_text()
    found = re.findall(r"<!-- settings (\S+) (\w+) -->", page)
    assert len(found) == 4
    for path, kind in found:
        table = tables.setting_table(path, kind)
        for row in table.splitlines()[2:]:
            assert row.split("|")[-2].strip(), f"{kind}: no comment says what this is for: {row}"
    assert "| `weight_cap` | `3.0` | The most weight that a peer accepts" in tables.setting_table(
        "gossip/settings.py", "Settings"
    )


def test_settings_by_environment_are_in_one_table() -> None:
    table = imported("setting_tables").setting_table("peers/setup.py", "Setup")
    assert table.startswith("| setting | variable | default | meaning |\n| --- | --- | --- | --- |\n")
    assert "| `seed` | `GOSSIP_SEED` | `0` |" in table
    assert "| `keys` |  | `None` |" in table
    assert set(re.findall(r"GOSSIP_\w+", table)) == set(VARIABLES)


def test_presets_are_compared() -> None:
    table = imported("setting_tables").preset_table()
    assert table.startswith("| setting | loopback | lan | wan |")
    assert "| `shard_bytes` | 16 MiB | 4 MiB | 1 MiB |" in table
    assert "| `interval` | 1.5 | 1.5 | 5 |" in table
