"""A table of options: a dataclass in which one field describes one option completely.

    @dataclass(frozen=True)
    class Example(OptionTable):
        seed: int = option(0, "of all random choices (default: 0)", read=integer, metavar="S", setup="seed")

From that field come the argument ``--seed S`` with its help, the key ``seed`` of a TOML file with its type, the
default, the check of its range, its line of ``--dry-run``, and what the peers are told.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from launch.options.toml import read_toml
from launch.user_errors import CommandError
from peers.environment_settings import settings_from

__all__ = ["OptionTable", "option"]

Table = TypeVar("Table", bound="OptionTable")

_ENTRY = "entry"


@dataclass(frozen=True)
class _Entry:
    """What a field of a table says beside its name, type and default."""

    help: str
    #: The heading under which the help lists it; empty: argparse's own.
    group: str
    #: How the command line reads a text; None: as it is.
    read: Callable[[str], Any] | None
    metavar: str | None
    #: The short flag, such as -n.
    short: str
    #: An argument without a flag: the command declares it itself, in its order.
    positional: bool
    #: The field of `peers.setup.Setup` that takes it; empty: it is the launcher's own.
    setup: str
    #: Whether a TOML file may hold it.
    in_file: bool
    #: A number is at least this, or above this.
    least: float | None
    above: float | None


def option(
    default: Any,
    help: str,  # noqa: A002 - as argparse calls it
    *,
    group: str = "",
    read: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    short: str = "",
    positional: bool = False,
    setup: str = "",
    in_file: bool = True,
    least: float | None = None,
    above: float | None = None,
) -> Any:
    """Return the field of an option; `_Entry` explains the arguments.

    The type of the default decides the rest: a bool is a flag without a value, a tuple may be given several times.
    """
    entry = _Entry(help, group, read, metavar, short, positional, setup, in_file, least, above)
    return field(default=default, metadata={_ENTRY: entry})


@dataclass(frozen=True)
class OptionTable:
    """The base of all tables."""

    #: The headings of the help, in order.
    GROUPS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, entry, _ in _entries(type(self)):
            value = getattr(self, name)
            if entry.least is not None and not entry.least <= value < math.inf:
                raise CommandError(f"{_spelt(name)} must be {entry.least:g} or more, not {value}")
            if entry.above is not None and not entry.above < value < math.inf:
                raise CommandError(f"{_spelt(name)} must be above {entry.above:g} seconds, not {value}")

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Declare all flags. A flag that is not given is None, so that the file and the defaults apply."""
        groups: dict[str, Any] = {"": parser}
        groups |= {title: parser.add_argument_group(title) for title in cls.GROUPS}
        order = list(groups)
        # By group, so that the usage has the order of the list below it.
        for name, entry, default in sorted(_entries(cls), key=lambda one: order.index(one[1].group)):
            if entry.positional:
                continue
            how: dict[str, Any] = {"dest": name, "default": None, "help": entry.help}
            if isinstance(default, bool):
                how["action"] = "store_true"
            else:
                how |= {"metavar": entry.metavar, "type": entry.read}
                if isinstance(default, tuple):
                    how["action"] = "append"
            groups[entry.group].add_argument(*_flags(name, entry), **how)

    @classmethod
    def add_positional(cls, parser: argparse.ArgumentParser, name: str, metavar: str, nargs: str | None = None) -> None:
        """Declare what has no flag, in the order of the calls."""
        told = {one: entry.help for one, entry, _ in _entries(cls)}
        parser.add_argument(name, metavar=metavar, nargs=nargs, help=told[name])

    @classmethod
    def gathered(
        cls: type[Table],
        args: argparse.Namespace,
        file: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Table:
        """Return the options: the command line over the TOML file, over the environment, over the defaults."""
        told = cls._from_environment(environment) | ({} if file is None else cls._from_file(file))
        for name, _, default in _entries(cls):
            value = getattr(args, name)
            if value is not None and value != []:
                told[name] = tuple(value) if isinstance(default, tuple) else value
        return cls(**told)

    @classmethod
    def swallowed(cls, arguments: Sequence[str], script: str) -> str:
        """Return a warning if options of this table stand behind the script, or nothing.

        They are the script's then. A script whose text has the name of the option is believed to want it.
        """
        flags = {flag for name, entry, _ in _entries(cls) if not entry.positional for flag in _flags(name, entry)}
        given = [one.partition("=")[0] for one in arguments]
        try:
            text = Path(script).read_text(encoding="utf-8", errors="replace")
        except OSError:  # a module, or a program
            text = ""
        found = [one for one in dict.fromkeys(given) if one in flags and not _mentions(text, one)]
        if not found:
            return ""
        names, verb = ", ".join(found), "is" if len(found) == 1 else "are"
        return f"{names} behind {script} {verb} passed to the script; options of gossip come before the script"

    def told(self) -> dict[str, Any]:
        """Return what peers are told, by the fields of their `Setup`; lists, as JSON has them."""
        values = {entry.setup: getattr(self, name) for name, entry, _ in _entries(type(self)) if entry.setup}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def overridden(self: Table, told: Mapping[str, Any]) -> Table:
        """Return the options with what a script has set instead, by the fields of `Setup`."""
        names = {entry.setup: name for name, entry, _ in _entries(type(self)) if entry.setup}
        changes = {names[one]: tuple(value) if isinstance(value, list) else value for one, value in told.items()}
        return replace(self, **changes)

    def for_file(self) -> dict[str, Any]:
        """Return what a TOML file holds of the options."""
        return {name: getattr(self, name) for name, entry, _ in _entries(type(self)) if entry.in_file}

    @classmethod
    def _from_environment(cls, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the options whose setting is in the environment, as a peer without a launcher would read it there."""
        settings = settings_from(environment)
        names = {name: entry.setup or ("run_dir" if name == "run_dir" else "") for name, entry, _ in _entries(cls)}
        return {name: settings[setting] for name, setting in names.items() if setting in settings}

    @classmethod
    def _from_file(cls, path: Path) -> dict[str, Any]:
        known = {name: default for name, entry, default in _entries(cls) if entry.in_file}
        told = {}
        for key, value in read_toml(path).items():
            name = key.replace("-", "_")
            if name not in known:
                raise CommandError(f"{path}: unknown option {key!r}; the options are: {', '.join(sorted(known))}")
            default = known[name]
            if isinstance(default, tuple) and isinstance(value, str):
                value = [value]
            fits, wanted = _KINDS[type(default)]
            if not fits(value):
                raise CommandError(f"{path}: {key} must be {wanted}, not {value!r}")
            told[name] = tuple(value) if isinstance(default, tuple) else value
        return told


def _entries(table: type[OptionTable]) -> Iterator[tuple[str, _Entry, Any]]:
    """Yield the name, the entry and the default of each option."""
    for one in fields(table):
        yield one.name, one.metadata[_ENTRY], one.default


def _mentions(text: str, flag: str) -> bool:
    """Whether a script has the name of an option, as a text or as a word."""
    word = "[-_]".join(map(re.escape, flag.lstrip("-").split("-")))
    return re.search(rf"\b{word}\b" if flag.startswith("--") else rf"[\"']{re.escape(flag)}[\"']", text) is not None


def _flags(name: str, entry: _Entry) -> list[str]:
    return [*filter(None, [entry.short]), f"--{_spelt(name)}"]


def _spelt(name: str) -> str:
    return name.replace("_", "-")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


#: What a TOML file may say for an option of each type, and how that is called.
_KINDS: dict[type, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "a string"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: _is_number(value) and isinstance(value, int), "a number"),
    float: (_is_number, "a number"),
    tuple: (lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of strings"),
}
