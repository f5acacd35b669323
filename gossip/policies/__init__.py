"""Algorithms by name: ``sgp``, ``osgp:tau=2``.

An algorithm is a `Policy` in a file of its own, listed here; the keyword parameters of its constructor are what users
may set.
"""

from __future__ import annotations

import inspect
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
from topologies.spec import convert, parameters_of, split, suggest

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
    """Return an algorithm in one line."""
    return (inspect.getdoc(_ALGORITHMS[name]) or "").split("\n", 1)[0]


def get(name: str, **parameters: Any) -> Policy:
    """Return the algorithm ``name`` with its parameters."""
    policy = _ALGORITHMS.get(name)
    if policy is None:
        raise SettingsError(suggest("algorithm", name, _ALGORITHMS))
    known = {} if policy.__init__ is object.__init__ else parameters_of(name, policy.__init__)
    try:
        return policy(**convert(name, known, parameters))
    except BadParameter as error:
        raise SettingsError(str(error)) from None


def parse(text: str) -> Policy:
    """Return the algorithm that the command line calls ``NAME[:key=value,...]``."""
    try:
        name, parameters = split(text)
    except BadParameter as error:
        raise SettingsError(str(error)) from None
    return get(name, **parameters)
