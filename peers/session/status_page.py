"""The status of the swarm as one peer knows it, for observers such as `gossip watch`: JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gossip.membership import Record
from gossip.version import __version__
from gossip.wire.limits import SHOWN_LIMIT
from peers.session.shared_settings import shared
from peers.setup import Setup

__all__ = ["status_page"]


def status_page(setup: Setup, records: Iterable[Record], rows: Mapping[int, Mapping[str, Any]]) -> bytes:
    """Return what is shown to an observer.

    Args:
        setup: of the peer that shows it.
        records: what membership knows of each peer.
        rows: what the peers say about themselves, by rank and column.
    """
    members = [
        {
            "rank": record.rank,
            "incarnation": record.incarnation,
            "membership": record.state.name.lower(),
            "endpoint": record.endpoint,
            "key": record.key,
            **{name: value for name, value in rows.get(record.rank, {}).items() if name != "incarnation"},
        }
        for record in records
    ]
    page = {"version": __version__, "shown_by": setup.rank, "setup": shared(setup), "members": members}
    while len(body := json.dumps(page).encode()) > SHOWN_LIMIT:
        del members[len(members) // 2 :]  # reached with some tens of thousands of ranks
        page["cut_short"] = True
    return body
