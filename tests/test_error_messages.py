"""Every error that the project raises says in plain English what was wrong, with which value, and where.

The test reads the sources. It finds all error classes of the project, that is all classes that derive from a base in
`BASES`, and looks at every call that makes such an error, be it raised at once or returned. The rules:

1. The message can be checked: it is a string or an f-string. Two other forms are allowed: the text of a caught error
   (an expression of nothing but ``error`` and ``str``), and a call of a function in `MAKERS`, which writes messages.
2. The message has at least `LEAST_WORDS` words, unless it quotes a caught ``error``, or the ``detail`` that a function
   which makes errors was given. A placeholder counts as one.
3. The message contains the offending value: at least one placeholder, or the word NaN. `NO_VALUE` lists the messages
   for which no value exists, each with its reason.
4. The message has no phrase of `plain_english.BANNED`.
5. A SettingsError names the setting. Either the message begins with a placeholder, which quotes what the user wrote or
   names the setting; or one of its words is a parameter of the function around it, or a field of the class around it;
   or it contains ``setting={value}``. `NO_SETTING` lists the exceptions, each with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from plain_english import LAYERS, ROOT, banned, modules, relative

#: The error classes of the project are these and the classes that derive from them.
BASES = {"GossipError", "TopologyError", "CommandError"}
#: Functions that write the message of an error.
MAKERS = {"suggest", "complaint"}
#: Errors that write a value in front of the message, and at which position the message stands.
MESSAGE_POSITION = {"Rejected": 1, "Damaged": 1}
#: Damaged names the file itself.
NAMES_A_VALUE = {"Damaged"}
LEAST_WORDS = 4

#: Messages that complain about no value, by their file and beginning, and why there is none.
NO_VALUE: dict[tuple[str, str], str] = {
    ("launch/commands/launch_command.py", "no script given"): "the script is missing",
    ("launch/swarm/launching.py", "--resume needs --run-dir"): "the run directory is missing",
    ("peers/reporting/tensorboard.py", "tensorboard=true needs a package"): "a package is missing, no value is wrong",
}
#: SettingsErrors that name no setting, and why.
NO_SETTING: dict[tuple[str, str], str] = {
    ("peers/reporting/tensorboard.py", "tensorboard=true needs a package"): "the setting is tensorboard",
}
#: Files, and folders with a slash behind, that are not held to the rules yet.
NOT_YET: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """A place in the sources that makes an error."""

    path: str
    line: int
    error: str
    #: The argument with the message.
    message: ast.expr | None
    #: The names of the parameters and fields around it.
    settings: frozenset[str]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def text(self) -> str | None:
        """The message with {} for each placeholder; None where it cannot be checked."""
        return None if self.message is None else text_of(self.message)

    @property
    def is_forwarded(self) -> bool:
        """Whether the message is that of a caught error, or comes from a function that writes messages."""
        if self.message is None:
            return False
        if isinstance(self.message, ast.Call) and ast.unparse(self.message.func).split(".")[-1] in MAKERS:
            return True
        names = {node.id for node in ast.walk(self.message) if isinstance(node, ast.Name)}
        return "error" in names and names <= {"error", "str"}

    @property
    def quotes_error(self) -> bool:
        """Whether the message contains that of a caught error."""
        quoted = {node.id for node in ast.walk(self.message or ast.Pass()) if isinstance(node, ast.Name)}
        return bool(quoted & {"error", "detail"})


def text_of(node: ast.expr) -> str | None:
    """Return the text of a string, f-string or sum of them, with {} for what is filled in; None for other things."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is right is None else (left or "{}") + (right or "{}")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "rstrip":
        return text_of(node.func.value)
    return None


def error_classes(trees: list[ast.Module]) -> set[str]:
    """Return the names of all classes that derive from a base, directly or not."""
    bases = {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(BASES)
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return found


def sites(path: str, tree: ast.Module, errors: set[str]) -> Iterator[Site]:
    """Yield every call in a module that makes an error of the project."""

    aliases = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    } | {
        ast.unparse(node.targets[0]): ast.unparse(node.value).split(".")[-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute)
    }

    def named(expression: ast.expr) -> str:
        """Return the name of a class, under whatever name the module has it."""
        name = ast.unparse(expression).split(".")[-1]
        return aliases.get(name, name)

    def walk(node: ast.AST, settings: frozenset[str]) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            settings |= {argument.arg for argument in every} - {"self", "cls"}
        elif isinstance(node, ast.ClassDef):
            fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            settings |= {field.id for field in fields if isinstance(field, ast.Name)}
        elif isinstance(node, ast.Raise) and node.exc and (error := named(node.exc)) in errors:
            yield Site(path, node.lineno, error, None, settings)  # raised as it is, without a message
        elif isinstance(node, ast.Call) and (error := named(node.func)) in errors:
            position = MESSAGE_POSITION.get(error, 0)
            message = node.args[position] if len(node.args) > position else None
            yield Site(path, node.lineno, error, message, settings)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, settings)

    yield from walk(tree, frozenset())


def complaints(site: Site) -> list[str]:
    """Return what is wrong with one site, by the rules at the top."""
    if site.is_forwarded:
        return []
    if site.text is None:
        return [f"{site}: {site.error}: the message is neither a string nor an f-string"]
    found = [f"{site}: {complaint}" for complaint in banned(site.text)]
    words = len(site.text.split())
    if (words < LEAST_WORDS or words == site.text.count("{}")) and not site.quotes_error:
        found.append(f"{site}: {site.text!r} is too short to say what was wrong and what to do")
    if not re.search(r"\{\}|NaN", site.text) and site.error not in NAMES_A_VALUE and not is_listed(site, NO_VALUE):
        found.append(f"{site}: {site.text!r} does not name the offending value")
    if site.error == "SettingsError" and not names_setting(site) and not is_listed(site, NO_SETTING):
        found.append(f"{site}: {site.text!r} does not name the setting")
    return found


def names_setting(site: Site) -> bool:
    """Whether the message begins with what the user wrote, or has the name of a parameter or field among its words."""
    text = site.text or ""
    words = set(re.findall(r"\w+", text))
    return text.startswith("{}") or bool(words & site.settings) or bool(re.search(r"\w ?= ?\{\}", text))


def is_listed(site: Site, listed: dict[tuple[str, str], str]) -> bool:
    """Whether the message of this site is an exception of the rule."""
    return any(site.path == path and (site.text or "").startswith(start) for path, start in listed)


TREES = {relative(path): ast.parse(path.read_text()) for path in modules(*LAYERS)}
ERRORS = error_classes(list(TREES.values()))
SITES = [site for path, tree in TREES.items() for site in sites(path, tree, ERRORS)]
FILES = sorted({site.path for site in SITES if not site.path.startswith(NOT_YET)})


@pytest.mark.parametrize("path", FILES)
def test_messages_say_what_was_wrong(path: str) -> None:
    found = [complaint for site in SITES if site.path == path for complaint in complaints(site)]
    assert not found, "\n" + "\n".join(found)


def test_every_error_class_is_found() -> None:
    known = {"SettingsError", "Rejected", "InvariantError", "PeerError", "Damaged", "BadGraph", "NobodyAnswers"}
    assert known <= ERRORS
    assert len(SITES) > 300


@pytest.mark.parametrize("listed", [NO_VALUE, NO_SETTING], ids=["no value", "no setting"])
def test_every_exception_is_still_needed(listed: dict[tuple[str, str], str]) -> None:
    for (path, start), reason in listed.items():
        assert reason, f"{path}: {start!r} has no reason"
        assert [s for s in SITES if s.path == path and (s.text or "").startswith(start)], f"{path} has no {start!r}"


def test_every_file_that_is_not_held_to_the_rules_exists() -> None:
    assert not [name for name in NOT_YET if not (ROOT / name).exists()]


def judged(source: str, path: str = "gossip/example.py") -> list[str]:
    """Return what is wrong with the errors of a module with this source."""
    return [complaint for site in sites(path, ast.parse(source), ERRORS) for complaint in complaints(site)]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("raise SettingsError('')", "too short"),
        ("raise SettingsError()", "neither a string nor"),
        ("raise SettingsError(text)", "neither a string nor"),
        ("raise SettingsError", "neither a string nor"),
        ("raise errors.SettingsError from error", "neither a string nor"),
        ("from gossip.errors import SettingsError as Wrong\nraise Wrong('no')", "too short"),
        ("Wrong = errors.SettingsError\nraise Wrong('no')", "too short"),
        ("raise BadGraph(f'{path} {line} {column} {name}')", "too short"),
        ("raise BadGraph(f'{path}: no')", "too short"),
        ("raise BadGraph('the graph has no nodes')", "offending value"),
        ("raise Rejected(Reason.SHAPE, 'a shard of another length')", "offending value"),
        ("raise DriverError(f'{rank} waits for so many steps')", "so many"),
        ("def f(rate):\n    raise SettingsError(f'must be above 0, not {rate}')", "name the setting"),
        ("def f():\n    return errors.SettingsError(f'must be above 0, not {rate}')", "name the setting"),
        (
            "class S:\n    rate: float\n    def f(self):\n        raise SettingsError(f'not above 0: {x}')",
            "name the setting",
        ),
    ],
)
def test_the_rules_see(source: str, complaint: str) -> None:
    assert any(complaint in found for found in judged(source))


@pytest.mark.parametrize(
    "source",
    [
        "raise SettingsError(str(error)) from error",
        "raise SettingsError(suggest('codec', name, names))",
        "raise Rejected(error.reason, error.detail, origin)",
        "raise Rejected(Reason.SHAPE, f'a value at {place} in a shard of {count}')",
        "raise Damaged(path, 'this is not a manifest')",
        "def f(rate):\n    raise SettingsError(f'rate must be above 0, not {rate}')",
        "class S:\n    rate: float\n    def f(self):\n        raise SettingsError(f'rate must be above 0: {x}')",
        "raise SettingsError(f'{text!r} is not written as host:port')",
        "raise ValueError('')",
    ],
)
def test_the_rules_allow(source: str) -> None:
    assert judged(source) == []
