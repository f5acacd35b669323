"""Files that GitHub, git hooks and citation tools read: they parse, and they say what the project does."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossip.version import CHECKPOINT, WIRE, __version__

ROOT = Path(__file__).parents[2]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def read(name: str) -> dict[Any, Any]:
    content = yaml.safe_load((ROOT / name).read_text("utf-8"))
    assert isinstance(content, dict)
    return content


def test_the_workflow_runs_what_a_developer_runs_on_every_supported_python() -> None:
    workflow = read(".github/workflows/ci.yml")
    job = workflow["jobs"]["test"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert [command.split(" bash ")[1] for command in commands] == [".ci/run"], "one command, and no other installs"
    assert (ROOT / ".ci/run").is_file()
    assert workflow[True].keys() == {"push", "pull_request"}, "YAML 1.1 reads the key `on` as true"
    pythons = job["strategy"]["matrix"]["python"]
    assert all(isinstance(python, str) for python in pythons), "3.10 without quotes is 3.1"
    oldest = re.search(r'requires-python = ">=(.+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    assert pythons[0] == oldest[1]


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]
    links = read(".github/ISSUE_TEMPLATE/config.yml")["contact_links"]
    assert [link.keys() for link in links] == [{"name", "url", "about"}]
    assert "SECURITY.md" in links[0]["about"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_for(path: Path) -> None:
    form = read(str(path.relative_to(ROOT)))
    assert form.keys() == {"name", "description", "labels", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert fields
    for field in fields:
        assert field["type"] == "textarea"
        assert field.keys() <= {"type", "id", "attributes", "validations"}
        assert field["attributes"].keys() <= {"label", "description", "render"}
        assert field["attributes"]["label"]
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids)


def test_hooks_use_the_tools_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text()
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert check is not None
    made = [line.replace("$(BIN)", ".venv/bin").split() for line in check[1].splitlines()]
    pins = (ROOT / "constraints.txt").read_text()
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local", "a repository of hooks would have versions of its own"
    hooks = [shlex.split(hook["entry"]) for hook in repository["hooks"]]
    assert [hook[:2] for hook in hooks] == [command[:2] for command in made], "the same commands in the same order"
    for hook in hooks:
        tool = Path(hook[0])
        assert tool.parent == Path(".venv/bin")
        assert f"\n{tool.name}==" in pins
        assert (Path(sys.executable).parent / tool.name).is_file()


def test_the_citation_is_of_this_version_and_names_its_papers() -> None:
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "what format 1.2.0 requires"
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"
    for work in (citation, *citation["references"]):
        people = work["authors"]
        assert all(person.keys() in ({"name"}, {"family-names"}, {"family-names", "given-names"}) for person in people)
        assert all(person not in people[:at] for at, person in enumerate(people)), "the format refuses one twice"
    for reference in citation["references"]:
        assert reference.keys() >= {"type", "title", "authors", "year", "identifiers"}
        (identifier,) = reference["identifiers"]
        assert identifier["type"] == "other"
        assert re.fullmatch(r"arXiv:\d{4}\.\d{5}", identifier["value"])
        assert reference["url"] == f"https://arxiv.org/abs/{identifier['value'].removeprefix('arXiv:')}"
    papers = [reference["identifiers"][0]["value"] for reference in citation["references"]]
    assert len(papers) == len(set(papers)) == 5


def test_documents_say_the_numbers_that_are_in_the_code() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = changes[changes.index("\n## ") :]
    assert newest.startswith((f"\n## Unreleased: {__version__}\n", f"\n## {__version__} "))
    numbers = f"wire version {WIRE}, checkpoint format {CHECKPOINT}."
    assert numbers in newest
    rows = re.findall(r"^\| ([a-z ]+) \| ([\d.]+) \|", (ROOT / "docs/compatibility.md").read_text(), re.MULTILINE)
    assert rows == [("release", __version__), ("wire version", str(WIRE)), ("checkpoint format", str(CHECKPOINT))]


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/compatibility.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    assert [target for target in targets if not ((ROOT / name).parent / target).exists()] == []
