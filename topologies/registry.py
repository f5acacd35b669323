"""Topologies by name.

A topology is one function ``build(n, *, parameters) -> Plan`` under the decorator `register`. Its signature is
the whole interface: the annotations of its keyword-only parameters say what is accepted, the defaults make a
name alone enough, and a parameter called ``seed`` makes it a random one. Nothing else has to be touched.

A user's package adds its own by importing and decorating, or, so that the command line finds it without
an import, by an entry point in the group ``gossip.topologies`` that names a module to import:

    [project.entry-points."gossip.topologies"]
    mine = "mypackage.mytopologies"
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar

from topologies.errors import BadParameter, TopologyError, UnknownTopology
from topologies.schedule import Plan, Schedule

__all__ = ["Parameter", "Topology", "describe", "get", "names", "parse", "register"]

Builder = TypeVar("Builder", bound=Callable[..., Plan])

ENTRY_POINTS = "gossip.topologies"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a topology, as its function's signature declares it."""

    name: str
    types: tuple[type, ...]
    default: Any

    @property
    def expected(self) -> str:
        """What is allowed, in words."""
        return " or ".join("none" if t is NoneType else _WORDS.get(t, t.__name__) for t in self.types)

    def convert(self, topology: str, value: Any) -> Any:
        """Return ``value`` in the declared type; strings are read as the command line writes them."""
        if isinstance(value, str):
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
            return self.convert(topology, tuple(value))
        elif isinstance(value, int) and float in self.types and int not in self.types:
            return float(value)
        elif isinstance(value, self.types):
            return value
        raise BadParameter(f"{topology}: {self.name} takes {self.expected}, not {value!r}")


@dataclass(frozen=True)
class Topology:
    """A registered topology: its function and what people want to know before they choose it."""

    name: str
    build: Callable[..., Plan]
    summary: str
    directed: bool
    sizes: str
    paper: str
    parameters: Mapping[str, Parameter]

    @property
    def random(self) -> bool:
        """Whether the schedule depends on the seed."""
        return "seed" in self.parameters


def register(name: str, *, directed: bool, sizes: str = "any", paper: str = "") -> Callable[[Builder], Builder]:
    """Register the decorated function as the topology ``name``.

    Args:
        name: what users type; lower case, words joined by hyphens.
        directed: whether a peer may receive from others than those that it sends to.
        sizes: the numbers of peers that it exists for, in words.
        paper: where it comes from.

    The first line of the function's docstring becomes its summary.
    """
    if not name or not all(part.isalnum() and part == part.lower() for part in name.split("-")):
        raise TopologyError(f"a topology's name is lower-case words joined by hyphens, not {name!r}")

    def decorate(build: Builder) -> Builder:
        if name in _REGISTRY:
            raise TopologyError(f"there is a topology called {name!r} already; choose another name")
        summary = (inspect.getdoc(build) or "").split("\n", 1)[0]
        _REGISTRY[name] = Topology(name, build, summary, directed, sizes, paper, _parameters_of(name, build))
        return build

    return decorate


def names() -> list[str]:
    """Return the names of all topologies, sorted."""
    _load_entry_points()
    return sorted(_REGISTRY)


def describe(name: str) -> Topology:
    """Return what is registered under ``name``; an unknown name gets an error with the closest ones."""
    _load_entry_points()
    try:
        return _REGISTRY[name]
    except KeyError:
        close = difflib.get_close_matches(name.lower().replace("_", "-"), _REGISTRY, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(sorted(_REGISTRY))}."
        raise UnknownTopology(f"no topology is called {name!r}; {hint}") from None


def get(name: str, n: int, *, seed: int = 0, **parameters: Any) -> Schedule:
    """Return the schedule of the topology ``name`` for ``n`` peers.

    The same arguments give the same schedule on every machine. A topology that is not random ignores the
    seed, so that callers can always pass theirs.
    """
    topology = describe(name)
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise BadParameter(f"{name}: n is the number of peers, an integer of at least 1, not {n!r}")
    known = {key: value for key, value in topology.parameters.items() if key != "seed"}
    for key in parameters:
        if key not in known:
            allowed = ", ".join(known) or "it has none"
            raise BadParameter(f"{name} has no parameter {key!r}; its parameters: {allowed}")
    values = {
        key: parameter.convert(name, parameters[key]) if key in parameters else parameter.default
        for key, parameter in known.items()
    }
    if topology.random:
        values["seed"] = topology.parameters["seed"].convert(name, seed)
    return Schedule(name, n, topology.build(n, **values), MappingProxyType(values))


def parse(text: str, n: int, *, seed: int = 0) -> Schedule:
    """Return the schedule that the command line calls ``text``: ``NAME[:key=value,...]`` or ``@FILE``.

    ``seed`` may stand among the parameters too, and wins there. A value in square brackets may contain
    commas, as in ``hierarchical:between=[epidemic:s=2],groups=4+4``. ``@FILE`` reads the user's own graph.
    """
    if text.startswith("@"):
        from topologies.files import from_file

        schedule = from_file(text[1:])
        if schedule.n != n:
            raise BadParameter(f"{text[1:]} is a graph of {schedule.n} peers, but there are {n}")
        return schedule
    name, _, rest = text.partition(":")
    parameters: dict[str, Any] = {}
    for item in _split(rest) if rest else []:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise BadParameter(f"{text!r}: {item!r} should read key=value")
        if key in parameters:
            raise BadParameter(f"{text!r} gives {key!r} twice")
        parameters[key] = value.removeprefix("[").removesuffix("]") if value.startswith("[") else value
    describe(name)  # an unknown name is the first thing to say
    if "seed" in parameters:
        seed = Parameter("seed", (int,), 0).convert(name, parameters.pop("seed"))
    return get(name, n, seed=seed, **parameters)


def _split(text: str) -> list[str]:
    """Split at the commas outside of square brackets."""
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


def _parameters_of(name: str, build: Callable[..., Plan]) -> Mapping[str, Parameter]:
    hints = typing.get_type_hints(build)
    found: dict[str, Parameter] = {}
    for parameter in list(inspect.signature(build).parameters.values())[1:]:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise TopologyError(
                f"{name}: the parameter {parameter.name!r} must be keyword-only, with a default"
            )
        hint = hints.get(parameter.name)
        options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        types = tuple(typing.get_origin(option) or option for option in options)
        if not set(types) <= {*_READERS, NoneType}:
            allowed = ", ".join(t.__name__ for t in _READERS)
            raise TopologyError(
                f"{name}: annotate {parameter.name!r} with one of {allowed}, or one of them | None"
            )
        found[parameter.name] = Parameter(parameter.name, types, parameter.default)
    return MappingProxyType(found)


def _load_entry_points() -> None:
    """Import what installed packages offer, once."""
    global _entry_points_loaded
    if _entry_points_loaded:
        return
    _entry_points_loaded = True
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            raise TopologyError(
                f"the entry point {entry.name!r} ({entry.value}) of the group {ENTRY_POINTS} could not be "
                f"loaded: {error!r}. Mend or uninstall the package that declares it."
            ) from error


def _read_bool(text: str) -> bool:
    try:
        return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _read_tuple(text: str) -> tuple[int | str, ...]:
    """Read ``4+4+8`` as numbers and ``red+red+blue`` as words."""
    words = text.split("+")
    return tuple(int(word) for word in words) if all(word.isdigit() for word in words) else tuple(words)


#: How a string becomes each type, in the order in which they are tried.
_READERS: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: _read_bool,
    tuple: _read_tuple,
    str: str,
}
_WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a word",
    tuple: "a list like 4+4+8",
}
_REGISTRY: dict[str, Topology] = {}
_entry_points_loaded = False
