"""A picture of a swarm, as one of its peers shows it: read, checked, and put into the form that scripts get.

It comes over the network, and is shown on terminals: whatever is not as expected is refused, and no text gets through
that was not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from statistics import median_high
from typing import Any

from gossip.endpoint import Endpoint
from gossip.net.keys import valid_key
from peers.reporting.status import COLUMNS as ROW

__all__ = ["COLUMNS", "FORMAT", "GONE", "TROUBLED", "behind", "lags", "read_picture", "status"]

#: Raised when a field of `status` changes its meaning or goes; new ones may come without.
FORMAT = 1
#: Figures of a member, as peers tell each other; the other columns are texts, which are checked by themselves.
COLUMNS = tuple(name for name in ROW if name not in ("state", "sends"))
#: Whatever is counted or measured is smaller; infinity and NaN are not.
_LARGEST = 1e300
_WHOLE = frozenset(["step", "samples", "neighbours"])
#: Who is in trouble, and who is no member any more.
TROUBLED, GONE = frozenset(["suspect", "dead"]), frozenset(["dead", "left"])
_MEMBERSHIPS = frozenset(["alive", "slow"]) | TROUBLED | GONE
_SHARED = ("run", "topology", "algorithm")
_WORD = re.compile(r"[a-z]{1,16}")
_SAID = re.compile(r"[ -~]{1,48}")


def read_picture(body: bytes) -> dict[str, Any]:
    """Return what a peer shows, with every member's figures, None for those that are not known.

    Raises:
        ValueError: it makes no sense.
    """
    try:
        picture: Any = json.loads(body)
    except RecursionError:
        raise ValueError("too deep for a picture") from None
    if not isinstance(picture, dict) or not isinstance(picture.get("setup"), dict):
        raise ValueError("not a picture of a swarm")
    texts = [picture.get("version"), *(picture["setup"].get(name) for name in _SHARED)]
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("a picture whose texts are none")
    _count(picture["setup"].get("world_size"))
    _count(picture.get("shown_by"))
    members = picture.get("members")
    if not isinstance(members, list) or not members:
        raise ValueError("a picture without members")
    return {**picture, "members": sorted(map(_member, members), key=lambda member: int(member["rank"]))}


def _member(member: Any) -> dict[str, Any]:
    if not isinstance(member, dict) or not isinstance(member.get("membership"), str):
        raise ValueError("not a member")
    if member["membership"] not in _MEMBERSHIPS:
        raise ValueError("a member in no known state")
    endpoint, key, state = member.get("endpoint"), member.get("key"), member.get("state")
    if not isinstance(endpoint, str) or not isinstance(key, str) or (key and not valid_key(key.encode())):
        raise ValueError("a member that cannot be reached")
    if state is not None and not (isinstance(state, str) and _WORD.fullmatch(state)):
        raise ValueError("a member that does what cannot be said")
    sends = member.get("sends")
    if sends is not None and not (isinstance(sends, str) and _SAID.fullmatch(sends)):
        raise ValueError("a member that sends as cannot be said")
    return {
        "rank": _count(member.get("rank")),
        "incarnation": _count(member.get("incarnation")),
        "membership": member["membership"],
        "state": state,
        "sends": sends,
        "endpoint": str(Endpoint.parse(endpoint)),
        "key": key,
        **{name: _figure(name, member.get(name)) for name in COLUMNS},
    }


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _figure(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
        raise ValueError(f"{name} is {value!r:.40}")
    return int(value) if name in _WHOLE else value


def behind(steps: Sequence[float | None]) -> list[int | None]:
    """Return how many steps each one is behind the median of all; 0 for those that are not."""
    known = [step for step in steps if step is not None]
    middle = median_high(known) if known else 0
    return [None if step is None else max(0, int(middle - step)) for step in steps]


def lags(members: Sequence[dict[str, Any]]) -> list[int | None]:
    """Return how far each member lags; those who are gone neither lag nor count."""
    return behind([None if member["membership"] in GONE else member["step"] for member in members])


def status(picture: dict[str, Any], through: str) -> dict[str, Any]:
    """Return a picture as scripts get it; see docs/launch.md."""
    setup, members = picture["setup"], picture["members"]
    return {
        "format": FORMAT,
        "version": picture["version"],
        **{name: setup[name] for name in _SHARED},
        "world_size": setup["world_size"],
        "through": through,
        "shown_by": picture["shown_by"],
        "complete": not picture.get("cut_short"),
        "members": [
            {
                "rank": member["rank"],
                "life": member["incarnation"],
                "membership": member["membership"],
                "state": member["state"],
                "endpoint": member["endpoint"],
                **{name: member[name] for name in COLUMNS},
                "sends": member["sends"],
                "lag": lag,
            }
            for member, lag in zip(members, lags(members), strict=True)
        ],
    }
