"""`--grid auto`: the launcher asks the planner once, before anything starts, and goes on as if the grid were named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossip import policies
from gossip.choosing import ANY
from gossip.choosing.situations import parse_link
from launch.options.options import LaunchOptions
from launch.swarm.launch_plan import PeerSeat, check_program
from launch.terminal import waiting
from launch.user_errors import CommandError

__all__ = ["is_auto", "with_grid"]

#: Seconds that a script may take until its model computes: it may read its data before.
_LONGEST = 600.0


def is_auto(grid: str) -> bool:
    """Whether the planner is to choose the grid."""
    return grid.strip() == ANY


def with_grid(options: LaunchOptions, seats: Sequence[PeerSeat]) -> tuple[LaunchOptions, str]:
    """Return the options with a grid in the place of auto, and why; other options as they are, and nothing.

    Args:
        options: of the launch.
        seats: of all processes.
    """
    if not is_auto(options.grid):
        return options, ""
    check_program(options.script, options.module, here=True)
    if not options.module and not options.script.endswith(".py"):
        raise CommandError(
            f"--grid auto reads the model of a Python script, and {options.script} is a program: name the grid, as in "
            "--grid 2x4"
        )
    name = options.algorithm.strip()
    if name != ANY and policies.parse(name).collective:
        grid = f"1x{len(seats)}"
        return replace(options, grid=grid), f"--grid auto chose {grid}: {name} exchanges with all processes at once"
    with waiting("asking the planner for a grid"):
        found = _answered(_request(options, seats))
    return replace(options, grid=found["grid"]), f"--grid auto chose {found['grid']}: {found['why']}"


def _request(options: LaunchOptions, seats: Sequence[PeerSeat]) -> dict[str, Any]:
    slots = Counter(seat.host.host for seat in seats)
    planner: dict[str, Any] = {"spanning": options.crews_across_hosts}
    for name in ("topology", "share"):
        planner[name] = getattr(options, name)
    # What these choose depends on the number of replicas, which is not known yet.
    planner |= {name: value for name in ("algorithm", "compress") if (value := getattr(options, name)) != ANY}
    if options.link:
        planner["between"], round_trip = parse_link(options.link)
        planner["latency"] = round_trip / 2
    if all(seat.host.is_local for seat in seats):
        planner["memory"] = _memory() / len(seats)
    return {
        "script": options.script,
        "arguments": list(options.arguments),
        "module": options.module,
        "hosts": list(slots.values()),
        **planner,
    }


def _memory() -> float:
    """Return the bytes of this machine that processes may take, as far as the system tells."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _answered(request: dict[str, Any]) -> dict[str, str]:
    """Let a process of its own read the script: what the script does there, this one never sees."""
    with tempfile.TemporaryDirectory(prefix="gossip-plan-") as directory:
        asked, answer, log = (Path(directory) / name for name in ("request", "answer", "log"))
        asked.write_text(json.dumps(request), "utf-8")
        command = [sys.executable, "-m", "peers.planner.planning_scripts", str(asked), str(answer)]
        with log.open("wb") as said:
            try:
                subprocess.run(  # noqa: S603
                    command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=_LONGEST, check=False
                )
            except subprocess.TimeoutExpired:
                raise CommandError(
                    f"--grid auto: the model of {request['script']} did not compute within {_LONGEST:g} s: name the "
                    "grid, as in --grid 2x4"
                ) from None
        if not answer.is_file():
            last = (log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise CommandError(
                f"--grid auto: {request['script']} ended the planner with it ({last:.200}): name the grid, as in "
                "--grid 2x4"
            )
        found: dict[str, str] = json.loads(answer.read_text("utf-8"))
    if "error" in found:
        raise CommandError(f"--grid auto cannot plan {request['script']}: {found['error']}")
    return found
