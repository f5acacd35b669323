"""The options of a launch: the command line over a TOML file over the defaults."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from launch.errors import CommandError
from launch.swarm.toml import read_toml

__all__ = ["Options", "gathered"]


@dataclass(frozen=True)
class Options:
    """All that can be said about a launch. The defaults are good for any number of peers on one machine."""

    script: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    peers: int = 0
    hostfile: str = ""
    include: str = ""
    exclude: str = ""
    device: str = "auto"
    insecure: bool = False
    #: Empty: what suits the algorithm.
    topology: str = ""
    algorithm: str = "osgp"
    preset: str = ""
    share: float = 1.0
    compress: str = "none"
    seed: int = 0
    run_dir: str = ""
    checkpoint_every: int = 0
    tensorboard: bool = False
    #: -1: none.
    metrics_port: int = -1
    metrics_bind: str = "127.0.0.1"
    resume: bool = False
    restart: int = 0
    start_timeout: float = 60.0
    stop_timeout: float = 10.0
    quiet: bool = False
    straggler: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("peers", "restart", "checkpoint_every", "stop_timeout"):
            if not 0 <= getattr(self, name) < math.inf:
                raise CommandError(f"{name.replace('_', '-')} is 0 or more, not {getattr(self, name)}")
        if not 0 < self.start_timeout < math.inf:
            raise CommandError(f"start-timeout is above 0 seconds, not {self.start_timeout}")


def gathered(args: argparse.Namespace) -> Options:
    """Return the options: those of the command line win over those of ``--config``."""
    told: dict[str, Any] = {}
    if args.config is not None:
        told |= _from_file(args.config)
    for one in fields(Options):
        value = getattr(args, one.name, None)
        if value is not None and value != []:
            told[one.name] = str(value) if isinstance(value, Path) else value
    if "script" not in told:
        raise CommandError("which script? Say it behind the options, or as script in a --config file")
    for name in ("arguments", "straggler", "fault"):
        told[name] = tuple(told.get(name, ()))
    return Options(**told)


def _from_file(path: Path) -> dict[str, Any]:
    kinds = {one.name: type(one.default) for one in fields(Options)} | {"script": str}
    found: Mapping[str, Any] = read_toml(path)
    told = {}
    for key, value in found.items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise CommandError(f"{path}: there is no option {key!r}; there are: {', '.join(sorted(kinds))}")
        kind = kinds[name]
        if kind is tuple:
            value = [value] if isinstance(value, str) else value
            fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
        else:
            fits = isinstance(value, int if kind is int else (int, float) if kind is float else kind)
            fits = fits and (kind is bool) == isinstance(value, bool)
        if not fits:
            wanted = (
                "a list of texts"
                if kind is tuple
                else {"str": "a text", "bool": "true or false"}.get(kind.__name__, "a number")
            )
            raise CommandError(f"{path}: {key} is {wanted}, not {value!r}")
        told[name] = value
    return told
