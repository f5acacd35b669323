"""What the documents name exists: commands and their options, modules, files, links."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest
from document_pages import PAGES, ROOT, blocks, commands, inline_code, shell_lines, words

from launch.cli import command_parser

#: Decisions tell of their time.
PRESENT = [page for page in PAGES if page.parent.name != "decisions"]
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
_PATH = re.compile(r"(?:topologies|gossip|peers|launch|tests|examples|benchmarks|docs)/[\w./-]*")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def slugs(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_every_command_line_parses(page: Path) -> None:
    parser = command_parser()
    for line in shell_lines(page):
        program, *arguments = words(line) or [""]
        if program == "gossip":
            assert hasattr(parser.parse_args(arguments), "run"), line


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_every_option_that_prose_names_with_its_command_exists(page: Path) -> None:
    known = commands()
    for code in inline_code(page):
        found = re.match(r"gossip ([a-z]+)(?= |$)(.*)", code)
        if found is not None:
            assert found[1] in known, code
            own = found[2].partition(".py")[0]  # what follows a script is the script's
            for option in re.findall(r"(?<= )--[a-z-]+", own):
                assert option in known[found[1]]._option_string_actions, code


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_every_target_module_and_file_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for code in [*inline_code(page), *shell_lines(page)]:
        for target in re.findall(r"^make (?:[A-Z]+=\S+ )?([a-z]+)", code):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), code
        for module in re.findall(r"python -m ((?:benchmarks|launch)[\w.]*)", code):
            assert importlib.util.find_spec(module.rstrip(".")) is not None, code
        for path in re.findall(rf"(?<![\w./-]){_PATH.pattern}", code):
            assert (ROOT / path).exists(), f"{path} in {code}"


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_every_block_of_python_is_python(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.text)


@pytest.mark.parametrize("page", OUTSIDE, ids=name)
def test_links_of_pages_outside_of_the_site_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in slugs(target), link


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_prose_is_wrapped(page: Path) -> None:
    """At 120 characters: tables, code, pictures and what a benchmark wrote aside."""
    text = re.sub(r"^```.*?^```$|<!-- study .*?<!-- /study \w+ -->", "", page.read_text(), flags=re.DOTALL | re.M)
    long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "    ", "!["))]
    assert not long
