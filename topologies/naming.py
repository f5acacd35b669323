"""Things by name: topologies, algorithms, codecs and presets are all looked up in the same way.

A name that there is not is an error with the closest names that there are. Things that are classes are made from a
text, ``NAME[:key=value,...]``: what users may set are the keyword parameters of the constructor.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from topologies.spec import Parameter, convert, parameters_of, split, suggest
from topologies.topology_errors import BadParameter

__all__ = ["Catalog", "ClassCatalog"]

Thing = TypeVar("Thing")


class Catalog(dict[str, Thing]):
    """The things of one kind, by name; a name that is not there raises the error of that kind."""

    def __init__(self, kind: str, error: type[Exception], things: Mapping[str, Thing] | None = None) -> None:
        """Begin with these things.

        Args:
            kind: what a thing is called in errors, such as ``codec``.
            error: is raised for a name that is not there.
            things: by name.
        """
        super().__init__(things or {})
        self.kind = kind
        self.error = error

    def __missing__(self, name: str) -> NoReturn:
        raise self.error(suggest(self.kind, name, self))

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self)


class ClassCatalog(Catalog[type[Thing]]):
    """Classes by their attribute ``name``, and what they make."""

    def __init__(self, kind: str, error: type[Exception], classes: Iterable[type[Thing]]) -> None:
        """Take these classes; see `Catalog` for the other arguments."""
        super().__init__(kind, error, {getattr(one, "name"): one for one in classes})  # noqa: B009

    def summary(self, name: str) -> str:
        """Return a thing in one line: the first of its docstring."""
        return (inspect.getdoc(self[name]) or "").split("\n", 1)[0]

    def parameters(self, name: str) -> Mapping[str, Parameter]:
        """Return what users may set of a thing."""
        build = self[name].__init__
        return {} if build is object.__init__ else parameters_of(name, build)

    def make(self, name: str, /, **parameters: Any) -> Thing:
        """Return the thing ``name`` with its parameters."""
        made = self[name]
        known = self.parameters(name)
        try:
            return made(**convert(name, known, parameters))
        except BadParameter as error:
            raise self.error(f"{error}{self._elsewhere(known, parameters)}") from None

    def parse(self, text: str) -> Thing:
        """Return the thing that the command line calls ``NAME[:key=value,...]``."""
        try:
            name, parameters = split(text)
        except BadParameter as error:
            raise self.error(str(error)) from None
        return self.make(name, **parameters)

    def _elsewhere(self, known: Mapping[str, Parameter], given: Iterable[str]) -> str:
        """Say which things have the first parameter that this one does not know, if there are any."""
        unknown = next((key for key in given if key not in known), None)
        others = [name for name in self.names() if unknown in self.parameters(name)]
        return f"; {self.kind}s that have it: {', '.join(others)}" if others else ""
