"""`--algorithm auto`: the launcher decides once, before anything starts, and tells all peers the same."""

from __future__ import annotations

from dataclasses import replace

from gossip.choosing import ANY, Recommendation
from launch.options.options import LaunchOptions
from peers.setup import Setup

__all__ = ["chosen_line", "decided"]


def decided(options: LaunchOptions, peers: int, *, all_here: bool) -> tuple[LaunchOptions, Recommendation | None]:
    """Return the options with a method in the place of auto, and why; other options as they are, and None.

    Args:
        options: of the launch.
        peers: how many there are.
        all_here: whether all of them run on this machine.
    """
    if options.algorithm.partition(":")[0].strip() != ANY:
        return options, None
    # A peer that were given these settings would choose the same (`Setup.settled`).
    setup = Setup(world_size=peers, bind="127.0.0.1:0" if all_here else "0.0.0.0:0")
    names = ("algorithm", "link", "step_time", "parameters", "preset", "share", "compress", "seed")
    setup = setup.changed(**{name: getattr(options, name) for name in names}, stragglers=options.straggler)
    found, settled = setup.recommended(), setup.settled()
    changes = {name: getattr(settled, name) for name in ("algorithm", "compress", "share", "link")}
    return replace(options, **changes), found


def chosen_line(chosen: Recommendation) -> str:
    """Return the choice and its reason for people to read."""
    return f"--algorithm {ANY} chose {chosen}"
