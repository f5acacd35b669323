"""A picture of a swarm, as one of its peers sends it: read, checked, and put into the form that scripts get.

The picture comes over the network and is shown on terminals. So unexpected data is refused, and every text is checked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median_high
from typing import Any

from gossip.endpoint import Endpoint
from gossip.keys import valid_key
from peers.table.columns import COLUMNS, TOLD

__all__ = ["FORMAT", "GONE", "TROUBLED", "behind", "read_picture", "status"]

#: Raised when a field of `status` changes its meaning or goes; new ones may come without.
FORMAT = 1
#: Members in trouble, and former members.
TROUBLED, GONE = frozenset(["suspect", "dead"]), frozenset(["dead", "left"])
_MEMBERSHIPS = frozenset(["alive", "slow"]) | TROUBLED | GONE
_SHARED = ("run", "topology", "algorithm")


def read_picture(body: bytes) -> dict[str, Any]:
    """Return what a peer shows, with every column of every member, None for what is not known.

    Raises:
        ValueError: the answer is not a valid picture.
    """
    try:
        picture: Any = json.loads(body)
    except RecursionError:
        raise ValueError("the answer is nested too deeply to be a picture of a swarm") from None
    if not isinstance(picture, dict) or not isinstance(picture.get("setup"), dict):
        raise ValueError("the answer is not a picture of a swarm")
    texts = [picture.get("version"), *(picture["setup"].get(name) for name in _SHARED)]
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("the picture has a version, run, topology or algorithm that is not printable text")
    _count(picture["setup"].get("world_size"))
    _count(picture.get("shown_by"))
    members = picture.get("members")
    if not isinstance(members, list) or not members:
        raise ValueError("the picture lists no members")
    read = sorted(map(_member, members), key=lambda member: int(member["rank"]))
    # Former members neither lag nor count.
    lags = behind([None if member["membership"] in GONE else member["step"] for member in read])
    return {**picture, "members": [{**member, "lag": lag} for member, lag in zip(read, lags, strict=True)]}


def _member(member: Any) -> dict[str, Any]:
    if not isinstance(member, dict) or not isinstance(member.get("membership"), str):
        raise ValueError("the picture lists a member without a membership state")
    if member["membership"] not in _MEMBERSHIPS:
        raise ValueError("the picture lists a member in an unknown membership state")
    endpoint, key = member.get("endpoint"), member.get("key")
    if not isinstance(endpoint, str) or not isinstance(key, str) or (key and not valid_key(key.encode())):
        raise ValueError("the picture lists a member without a valid endpoint or key")
    return {
        "rank": _count(member.get("rank")),
        "life": _count(member.get("incarnation")),
        "membership": member["membership"],
        "endpoint": str(Endpoint.parse(endpoint)),
        "key": key,
        **{column.name: column.read(member.get(column.name)) for column in TOLD},
    }


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def behind(steps: Sequence[float | None]) -> list[int | None]:
    """Return how many steps each one is behind the median of all; 0 for those that are not."""
    known = [step for step in steps if step is not None]
    middle = median_high(known) if known else 0
    return [None if step is None else max(0, int(middle - step)) for step in steps]


def status(picture: dict[str, Any], through: str) -> dict[str, Any]:
    """Return a picture as scripts get it; see docs/reference/records.md."""
    setup = picture["setup"]
    return {
        "format": FORMAT,
        "version": picture["version"],
        **{name: setup[name] for name in _SHARED},
        "world_size": setup["world_size"],
        "through": through,
        "shown_by": picture["shown_by"],
        "complete": not picture.get("cut_short"),
        "members": [
            {column.name: member[column.name] for column in COLUMNS if column.in_json} for member in picture["members"]
        ],
    }
