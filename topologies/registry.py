"""Topologies by name.

A topology is one function ``build(n, *, parameters) -> Plan`` with the decorator `register`. Its signature is the whole
interface. The annotations of its keyword-only parameters define the accepted types. Every parameter has a default, so
the name alone is enough. A parameter called ``seed`` makes the topology random. No other code has to change.

Another package adds topologies with the same decorator. The command line finds them without an import if the package
declares an entry point in the group ``gossip.topologies`` that names the module:

    [project.entry-points."gossip.topologies"]
    mine = "mypackage.mytopologies"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, TypeVar

from topologies.naming import Catalog
from topologies.schedule import Plan, Schedule
from topologies.spec import Parameter, convert, parameters_of, split
from topologies.topology_errors import BadParameter, TopologyError, UnknownTopology

__all__ = ["Parameter", "Topology", "describe", "get", "names", "parse", "register"]

Builder = TypeVar("Builder", bound=Callable[..., Plan])

ENTRY_POINTS = "gossip.topologies"
#: The largest swarm that is planned for: some topologies look at every number up to n.
MOST_PEERS = 1_000_000


@dataclass(frozen=True)
class Topology:
    """A registered topology: its function and the properties by which users choose it."""

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
        name: the name on the command line: lower-case words joined by hyphens.
        directed: whether a peer may receive from peers that it does not send to.
        sizes: the numbers of peers that the topology supports, in words.
        paper: the paper that describes it.

    The first line of the function's docstring becomes its summary.
    """
    if not name or not all(part.isalnum() and part == part.lower() for part in name.split("-")):
        raise TopologyError(f"the name of a topology must be lower-case words joined by hyphens, not {name!r}")

    def decorate(build: Builder) -> Builder:
        if name in _REGISTRY:
            raise TopologyError(f"a topology called {name!r} is already registered; choose another name")
        summary = (inspect.getdoc(build) or "").split("\n", 1)[0]
        _REGISTRY[name] = Topology(name, build, summary, directed, sizes, paper, parameters_of(name, build))
        return build

    return decorate


def names() -> list[str]:
    """Return the names of all topologies, sorted."""
    _load_entry_points()
    return _REGISTRY.names()


def describe(name: str) -> Topology:
    """Return the topology that is registered under ``name``. The error for an unknown name lists the closest names."""
    _load_entry_points()
    return _REGISTRY[name]


def get(name: str, n: int, *, seed: int = 0, **parameters: Any) -> Schedule:
    """Return the schedule of the topology ``name`` for ``n`` peers.

    The same arguments give the same schedule on every machine. A topology that is not random ignores the seed, so that
    callers can always pass one.
    """
    return _make(name, n, seed, parameters)


def _make(name: str, n: int, seed: int, parameters: Mapping[str, Any]) -> Schedule:
    topology = describe(name)
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise BadParameter(f"{name}: n, the number of peers, must be an integer of at least 1, not {n!r}")
    if n > MOST_PEERS:
        raise BadParameter(f"{name}: n, the number of peers, must be at most {MOST_PEERS}, not {n}")
    known = {key: value for key, value in topology.parameters.items() if key != "seed"}
    values = convert(name, known, parameters)
    if topology.random:
        values["seed"] = topology.parameters["seed"].convert(name, seed)
    return Schedule(name, n, topology.build(n, **values), MappingProxyType(values))


def parse(text: str, n: int, *, seed: int = 0) -> Schedule:
    """Return the schedule for a text of the command line: ``NAME[:key=value,...]`` or ``@FILE``.

    A ``seed`` among the parameters takes precedence over the argument. ``@FILE`` reads the user's own graph.
    """
    if text.startswith("@"):
        from topologies.files import from_file

        schedule = from_file(text[1:])
        if schedule.n != n:
            raise BadParameter(f"{text[1:]} is a graph of {schedule.n} peers, but the run has {n}")
        return schedule
    describe(text.partition(":")[0].strip())  # an unknown name is reported before bad parameters
    name, parameters = split(text)
    if "seed" in parameters:
        seed = Parameter("seed", (int,), 0).convert(name, parameters.pop("seed"))
    return _make(name, n, seed, parameters)


def _load_entry_points() -> None:
    """Import the modules that installed packages declare, once."""
    global _entry_points_loaded
    if _entry_points_loaded:
        return
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            raise TopologyError(
                f"the entry point {entry.name!r} ({entry.value}) of the group {ENTRY_POINTS} could not be "
                f"loaded: {error!r}. Repair or uninstall the package that declares it."
            ) from error
    _entry_points_loaded = True


_REGISTRY: Catalog[Topology] = Catalog("topology", UnknownTopology)
_entry_points_loaded = False
