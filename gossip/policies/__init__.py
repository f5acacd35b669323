"""Algorithms by name: ``sgp``, ``osgp:tau=2``.

An algorithm is a subclass of `Policy` in a module of its own, and it is listed here. Users set the keyword parameters
of its constructor.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from gossip.errors import SettingsError
from gossip.policies.adpsgd import ADPSGD
from gossip.policies.allreduce import AllReduce
from gossip.policies.choco import CHOCO
from gossip.policies.dpsgd import DPSGD
from gossip.policies.easgd import EASGD
from gossip.policies.gossip_pull import GossipPull
from gossip.policies.gossip_push import GossipPush
from gossip.policies.local import Local
from gossip.policies.noloco import NoLoCo
from gossip.policies.osgp import OSGP
from gossip.policies.parameter_server import ParameterServerPolicy
from gossip.policies.policy import Policy
from gossip.policies.sgp import SGP
from gossip.policies.slowmo import SlowMo
from gossip.policies.ssd import SSD
from topologies.errors import BadParameter
from topologies.spec import Parameter, convert, parameters_of, split, suggest

__all__ = [
    "ADPSGD",
    "CHOCO",
    "DPSGD",
    "EASGD",
    "OSGP",
    "SGP",
    "SSD",
    "AllReduce",
    "GossipPull",
    "GossipPush",
    "Local",
    "NoLoCo",
    "ParameterServerPolicy",
    "Policy",
    "SlowMo",
    "get",
    "names",
    "parse",
    "summary",
]

_ALGORITHMS: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        SGP,
        OSGP,
        ADPSGD,
        DPSGD,
        CHOCO,
        EASGD,
        GossipPush,
        GossipPull,
        Local,
        SlowMo,
        NoLoCo,
        SSD,
        AllReduce,
        ParameterServerPolicy,
    )
}


def names() -> list[str]:
    """Return the names of all algorithms, sorted."""
    return sorted(_ALGORITHMS)


def summary(name: str) -> str:
    """Return the description of an algorithm, in one line."""
    return (inspect.getdoc(_ALGORITHMS[name]) or "").split("\n", 1)[0]


def get(name: str, **parameters: Any) -> Policy:
    """Return the algorithm ``name`` with its parameters."""
    policy = _ALGORITHMS.get(name)
    if policy is None:
        raise SettingsError(suggest("algorithm", name, _ALGORITHMS))
    known = _parameters(name)
    try:
        return policy(**convert(name, known, parameters))
    except BadParameter as error:
        others = [one for one in names() if "momentum" in _parameters(one)]
        unknown = next((key for key in parameters if key not in known), "")
        hint = f"; algorithms that have it: {', '.join(others)}" if unknown == "momentum" else ""
        raise SettingsError(f"{error}{hint}") from None


def _parameters(name: str) -> Mapping[str, Parameter]:
    """Return the parameters of an algorithm that users may set."""
    build = _ALGORITHMS[name].__init__
    return {} if build is object.__init__ else parameters_of(name, build)


def parse(text: str) -> Policy:
    """Return the algorithm for a text of the command line, ``NAME[:key=value,...]``."""
    try:
        name, parameters = split(text)
    except BadParameter as error:
        raise SettingsError(str(error)) from None
    return get(name, **parameters)
