"""Room on a Ray cluster: a placement group with one bundle of resources for each peer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gossip.errors import GossipError, SettingsError

__all__ = ["STRATEGIES", "NoRoom", "Placement", "bundle_of"]

#: How bundles may be spread over the nodes; Ray's names.
STRATEGIES = ("SPREAD", "STRICT_SPREAD", "PACK", "STRICT_PACK")
#: Nodes that an error lists.
_LISTED = 8


class NoRoom(GossipError):
    """The cluster has no room for all peers."""


def bundle_of(cpus: float, gpus: float, resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of one peer, as Ray takes them."""
    for name, value in {"cpus": cpus, "gpus": gpus, **resources}.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise SettingsError(f"{name}={value!r} must be a number of 0 or more: what one peer takes of it")
    if taken := {"CPU", "GPU"} & resources.keys():
        raise SettingsError(f"resources={dict(resources)} names {sorted(taken)[0]}: use cpus and gpus for these")
    bundle = {name: value for name, value in {"CPU": cpus, "GPU": gpus, **resources}.items() if value}
    if not bundle:
        raise SettingsError(f"cpus={cpus} and gpus={gpus}: each peer must take something, so that Ray can place it")
    return bundle


class Placement:
    """The bundles of a run, from the time at which all of them are there. Use it in a ``with`` statement."""

    def __init__(self, peers: int, bundle: Mapping[str, float], strategy: str, timeout: float) -> None:
        """Prepare; nothing is asked of the cluster yet.

        Args:
            peers: how many bundles.
            bundle: the resources of each.
            strategy: one of `STRATEGIES`.
            timeout: seconds to wait until the cluster has all of them.
        """
        self._peers, self._bundle, self._strategy, self._timeout = peers, dict(bundle), strategy, timeout
        self._group: Any = None

    def __enter__(self) -> Placement:
        self._group = placement_group([self._bundle] * self._peers, strategy=self._strategy)
        try:
            if not self._group.wait(self._timeout):
                raise self._no_room()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        remove_placement_group(self._group)

    def local_ranks(self) -> list[int]:
        """Return, for each rank, how many lower ranks are on the same node."""
        nodes = placement_group_table(self._group)["bundles_to_node_id"]
        seen: Counter[str] = Counter()
        ranks = []
        for rank in range(self._peers):
            ranks.append(seen[nodes[rank]])
            seen[nodes[rank]] += 1
        return ranks

    def options(self, rank: int) -> dict[str, Any]:
        """Return the options of an actor that is to take the bundle of a rank."""
        others = {name: value for name, value in self._bundle.items() if name not in ("CPU", "GPU")}
        return {
            "num_cpus": self._bundle.get("CPU", 0),
            "num_gpus": self._bundle.get("GPU", 0),
            "resources": others,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, rank),
        }

    def _no_room(self) -> NoRoom:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        listed = "; ".join(_described(node, self._bundle) for node in nodes[:_LISTED])
        more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
        return NoRoom(
            f"the cluster found no room for {self._peers} peers within {self._timeout:g} s. Each takes "
            f"{_described(self._bundle, self._bundle)}, placed by {self._strategy}. Its {len(nodes)} nodes have "
            f"{listed}{more}; free now: {_described(ray.available_resources(), self._bundle)}. Ask for fewer peers, "
            "for less per peer or for another strategy, or raise placement_timeout if nodes are still to come"
        )


def _described(resources: Mapping[str, float], wanted: Mapping[str, float]) -> str:
    return ", ".join(f"{resources.get(name, 0):g} {name}" for name in wanted)
