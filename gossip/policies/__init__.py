"""Algorithms by name: ``sgp``, ``osgp:tau=2``.

An algorithm is a `Policy` in a file of its own, listed here; the keyword parameters of its constructor are what users
may set.
"""

from __future__ import annotations

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
from gossip.policies.outer_policy import OuterPolicy
from gossip.policies.parameter_server import ParameterServerPolicy
from gossip.policies.policy import Policy
from gossip.policies.sgp import SGP
from gossip.policies.slowmo import SlowMo
from gossip.policies.ssd import SSD
from topologies.naming import ClassCatalog

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
    "OuterPolicy",
    "ParameterServerPolicy",
    "Policy",
    "SlowMo",
    "get",
    "names",
    "parse",
    "summary",
]

_ALGORITHMS: ClassCatalog[Policy] = ClassCatalog(
    "algorithm",
    SettingsError,
    (
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
        OuterPolicy,
        SSD,
        AllReduce,
        ParameterServerPolicy,
    ),
)


def names() -> list[str]:
    """Return the names of all algorithms, sorted."""
    return _ALGORITHMS.names()


def summary(name: str) -> str:
    """Return an algorithm in one line."""
    return _ALGORITHMS.summary(name)


def get(name: str, **parameters: Any) -> Policy:
    """Return the algorithm ``name`` with its parameters."""
    return _ALGORITHMS.make(name, **parameters)


def parse(text: str) -> Policy:
    """Return the algorithm that the command line calls ``NAME[:key=value,...]``."""
    return _ALGORITHMS.parse(text)
