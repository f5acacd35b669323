"""``NAME[:key=value,...]``: the text form of a name and its parameters, on the command line and in Python.

Topologies, algorithms and codecs are written like this. The signature of a builder declares the parameters:
keyword-only, with a default, annotated with one of a few plain types.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, NoneType, UnionType
from typing import Any

from topologies.topology_errors import BadParameter, TopologyError

__all__ = ["Parameter", "convert", "parameters_of", "split", "suggest"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a named thing, as its builder's signature declares it."""

    name: str
    types: tuple[type, ...]
    default: Any

    @property
    def expected(self) -> str:
        """The accepted types, in words."""
        return " or ".join("none" if t is NoneType else _WORDS.get(t, t.__name__) for t in self.types)

    def convert(self, owner: str, value: Any) -> Any:
        """Return ``value`` in the declared type. Strings are parsed as on the command line."""
        if isinstance(value, str):
            if value.lower() == "none" and NoneType in self.types:
                return None
            readings = [read for t, read in _READERS.items() if t in self.types]
            for read in readings:
                try:
                    return read(value)
                except ValueError:
                    continue
        elif isinstance(value, bool):
            if bool in self.types:
                return value
        elif isinstance(value, list):
            return self.convert(owner, tuple(value))
        elif isinstance(value, int) and float in self.types and int not in self.types:
            if abs(value) <= sys.float_info.max:
                return float(value)
        elif isinstance(value, self.types):
            return value
        raise BadParameter(f"{owner}: {self.name} takes {self.expected}, not {value!r}")


def parameters_of(owner: str, build: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Return the keyword parameters of a builder, in the order of its signature."""
    hints = typing.get_type_hints(build)
    found: dict[str, Parameter] = {}
    for parameter in list(inspect.signature(build).parameters.values())[1:]:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise TopologyError(f"{owner}: the parameter {parameter.name!r} must be keyword-only, with a default")
        hint = hints.get(parameter.name)
        options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        types = tuple(typing.get_origin(option) or option for option in options)
        if not set(types) <= {*_READERS, NoneType}:
            allowed = ", ".join(t.__name__ for t in _READERS)
            raise TopologyError(f"{owner}: annotate {parameter.name!r} with one of {allowed}, optionally | None")
        found[parameter.name] = Parameter(parameter.name, types, parameter.default)
    return MappingProxyType(found)


def convert(owner: str, known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every known parameter, given or default. An unknown parameter is an error."""
    for key in given:
        if key not in known:
            allowed = f"its parameters: {', '.join(known)}" if known else "it takes no parameters"
            raise BadParameter(f"{owner} has no parameter {key!r}; {allowed}")
    return {
        key: parameter.convert(owner, given[key]) if key in given else parameter.default
        for key, parameter in known.items()
    }


def split(text: str) -> tuple[str, dict[str, str]]:
    """Split ``NAME:key=value,...`` into the name and its parameters, still as text.

    A value in square brackets may contain commas, as in ``hierarchical:between=[epidemic:s=2],groups=4+4``.
    """
    name, colon, rest = text.partition(":")
    parameters: dict[str, str] = {}
    for item in _items(rest) if colon else []:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise BadParameter(f"{text!r}: {item!r} is not of the form key=value")
        if key in parameters:
            raise BadParameter(f"{text!r} gives {key!r} twice; give it once")
        parameters[key] = value.removeprefix("[").removesuffix("]") if value.startswith("[") else value
    return name.strip(), parameters


def suggest(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the message for an unknown name: it lists the closest known names, or all of them."""
    known = sorted(names)
    close = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(known)}."
    return f"no {kind} is called {name!r}; {hint}"


def _items(text: str) -> list[str]:
    """Split at the commas outside square brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise BadParameter(f"the square brackets in {text!r} do not match")
    return parts


def _read_bool(text: str) -> bool:
    try:
        return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _read_tuple(text: str) -> tuple[int | str, ...]:
    """Read ``4+4+8`` as numbers and ``red+red+blue`` as words."""
    words = text.split("+")
    return tuple(int(word) for word in words) if all(word.isdigit() for word in words) else tuple(words)


#: The function that parses each type, in the order in which they are tried.
_READERS: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: _read_bool,
    tuple: _read_tuple,
    str: str,
}
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a word", tuple: "a list like 4+4+8"}
