"""A script that overrides what the launcher has told its peer: the launcher hears of it, or the script is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import peers
from gossip.errors import SettingsError

TOLD = {"rank": 0, "world_size": 3, "seed": 3, "topology": "base", "algorithm": "osgp", "run": "8"}


def launched(**arguments: Any) -> list[dict[str, Any]]:
    """Return what the launcher hears from a script that joins with these arguments."""
    peer_reads, write = os.pipe()
    read, peer_writes = os.pipe()
    for message in ({"setup": TOLD}, {"cards": [[rank, "127.0.0.1:1", None] for rank in range(3)]}):
        os.write(write, json.dumps(message).encode() + b"\n")
    try:
        peers.join({"GOSSIP_CHANNEL": f"{peer_reads},{peer_writes}"}, **arguments).close()
        return [json.loads(line) for line in os.read(read, 1 << 16).splitlines()]
    finally:
        os.close(read)
        os.close(write)


def test_what_a_script_overrides_is_told_to_the_launcher(tmp_path: Path) -> None:
    own = {"seed": 5, "algorithm": "sgp", "run_dir": tmp_path, "stragglers": ["0=2x"], "topology": "base", "rank": 0}
    heard = [one["override"] for one in launched(**own) if "override" in one]
    assert {name: value for one in heard for name, value in one.items()} == {
        "seed": 5,
        "algorithm": "sgp",
        "run_dir": str(tmp_path),
        "stragglers": ["0=2x"],
    }


def test_a_script_that_overrides_nothing_tells_nothing() -> None:
    assert not [one for one in launched(seed=3) if "override" in one]


@pytest.mark.parametrize(
    ("name", "value"), [("rank", 2), ("world_size", 4), ("run", "9"), ("hosts", ["127.0.0.1:5000"])]
)
def test_what_is_the_launchers_own_cannot_be_overridden(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"leave {name if name != 'hosts' else '.*'} out, or start the script"):
        launched(**{name: value})
