"""A swarm on a Ray cluster: an actor for each peer, placed by Ray.

    def train(config):
        with peers.join() as peer:
            ...  # any script's training loop
        return loss

    result = Swarm(train, num_peers=4, config={"lr": 0.1}, restarts=1).fit()

Ray finds the machines, starts the actors, and carries settings, keys and addresses to them. After that the peers talk
to each other as in any swarm: the death of an actor or of a node ends nobody else, and a restarted peer takes the model
from the others.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray

import topologies
from gossip import policies, presets
from gossip.collective.making import check_settings
from gossip.errors import SettingsError
from gossip.exchange.coding import check_codec
from gossip.faults import parse_faults, parse_stragglers
from peers.environment_settings import PLACE, settings_from
from peers.integrations.ray_member import takes_config
from peers.integrations.ray_placement import STRATEGIES, NoRoom, Placement, bundle_of
from peers.integrations.ray_results import LostPeer, PeerResult, SwarmError, SwarmResult
from peers.integrations.ray_supervisor import Supervisor, why
from peers.setup import Setup

__all__ = ["LostPeer", "NoRoom", "PeerResult", "Swarm", "SwarmError", "SwarmResult"]

#: What the swarm itself knows about each peer, or Ray does.
_OWN = {
    *("rank", "world_size", "local_rank", "incarnation", "birth", "elapsed", "killed", "environment"),
    *("hosts", "contacts", "contact_keys", "bind", "advertise", "stop_within"),
    *("keys", "public_keys", "invitation", "join_key", "watch_key"),
}


class Swarm:
    """Peers that run one function on a Ray cluster."""

    def __init__(
        self,
        function: Callable[..., Any],
        num_peers: int,
        *,
        config: Mapping[str, Any] | None = None,
        restarts: int = 0,
        cpus: float = 1,
        gpus: float = 0,
        resources: Mapping[str, float] | None = None,
        strategy: str = "SPREAD",
        placement_timeout: float = 60.0,
        stop_timeout: float = 30.0,
        **settings: Any,
    ) -> None:
        """Check everything; nothing starts before `fit`.

        Args:
            function: calls `peers.join` once and trains. It takes the configuration, or nothing.
            num_peers: how many peers there are.
            config: is given to the function, if it takes something.
            restarts: how often each peer is started again after it died.
            cpus: that each peer takes.
            gpus: that each peer takes. It sees no others.
            resources: further resources of Ray that each peer takes.
            strategy: how Ray places the peers: SPREAD over the nodes as far as possible, STRICT_SPREAD, PACK or
                STRICT_PACK.
            placement_timeout: seconds until the cluster must have room for all peers.
            stop_timeout: seconds from Ctrl-C until peers that have not stopped are killed.
            settings: of `peers.join`, such as ``topology``, ``algorithm``, ``compress`` or ``run_dir``.

        Raises:
            SettingsError: If an argument or a setting is wrong.
            TopologyError: If there is no such topology for this many peers.
        """
        if not callable(function):
            raise SettingsError(f"function={function!r:.80} cannot be called: give the function that trains a peer")
        if config is not None and not isinstance(config, Mapping):
            raise SettingsError(f"config={config!r:.80} must be a dictionary, which the function gets")
        if config is not None and not takes_config(function):
            raise SettingsError(f"config={config!r:.80} is given, and {function!r:.80} takes no argument")
        for name, count, least in (("num_peers", num_peers, 1), ("restarts", restarts, 0)):
            if isinstance(count, bool) or not isinstance(count, int) or count < least:
                raise SettingsError(f"{name}={count!r} must be a whole number of {least} or more")
        if strategy not in STRATEGIES:
            raise SettingsError(f"strategy={strategy!r} is not one of {', '.join(STRATEGIES)}")
        for name, seconds in (("placement_timeout", placement_timeout), ("stop_timeout", stop_timeout)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
                raise SettingsError(f"{name}={seconds!r} must be a number of seconds above 0")
        self._function, self._config = function, dict(config or {})
        self._restarts, self._stop_timeout = restarts, stop_timeout
        self._told = _settings(num_peers, settings)
        self._setup = Setup().changed(**self._told)
        bundle = bundle_of(cpus, gpus, resources or {})
        self._placement = Placement(num_peers, bundle, strategy, placement_timeout)

    def fit(self) -> SwarmResult:
        """Train, and return how each peer ended. Connects to Ray first if the program has not.

        Ctrl-C asks all peers to stop, with a checkpoint if they save any, and is raised again when they have.

        Raises:
            NoRoom: If the cluster has no room for all peers in time.
            SwarmError: If no peer finished.
        """
        if not ray.is_initialized():
            ray.init()
        function = ray.put(self._function)
        with self._placement as placement:
            supervisor = Supervisor(
                function,
                self._config,
                self._setup,
                self._told,
                placement,
                restarts=self._restarts,
                stop_timeout=self._stop_timeout,
            )
            result = SwarmResult(supervisor.run(), self._setup.run_dir)
        if not result.values:
            rank = supervisor.first_lost
            first = result.errors[rank]
            raise SwarmError(f"none of {len(result.peers)} peers finished. Rank {rank} {why(first)}", result) from first
        return result


def _settings(num_peers: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all peers are told, with what the environment of this process says beneath it."""
    for name in given:
        if name in _OWN:
            raise SettingsError(f"{name}={given[name]!r:.80}: a swarm on Ray finds {name} itself; leave it out")
    named = {name: value for name, value in settings_from(os.environ).items() if name not in {*PLACE, *_OWN}}
    wanted = {**named, **{name: value for name, value in given.items() if value is not None}}
    if wanted.get("grid"):
        raise SettingsError(
            f"grid={wanted['grid']!r}: on Ray each peer is one actor with a whole replica; start grids by gossip launch"
        )
    if wanted.get("run_dir"):
        wanted["run_dir"] = str(Path(wanted["run_dir"]).absolute())
    wanted.setdefault("run", f"ray-{secrets.token_hex(8)}")
    setup = Setup(world_size=num_peers).changed(**wanted)
    _check(setup)
    told = {name: getattr(setup, name) for name in wanted}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()} | {
        "world_size": num_peers
    }


def _check(setup: Setup) -> None:
    """Raise an error about what peers would only notice when they run."""
    settled = setup.settled()
    policy = policies.parse(settled.algorithm)
    policy.check(topologies.parse(settled.topology, settled.world_size, seed=settled.seed))
    check_codec(settled.compress, policy)
    check_settings(policy, settled.share, settled.compress)
    presets.preset(settled.preset or "lan")
    parse_stragglers(settled.stragglers, settled.world_size)
    faults = parse_faults(settled.faults, settled.world_size, settled.seed)
    if faults.restarts:
        raise SettingsError(f"faults={list(settled.faults)}: a swarm on Ray starts peers again by restarts=N")
