"""Where the rows of a crew meet: torch neither encrypts nor authenticates what they send each other."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from gossip.endpoint import Endpoint
from gossip.grids import Grid
from peers.crew import forming
from peers.crew.crew import CrewError
from peers.crew.forming import CrewStore, form

INTERFACE = "GLOO_SOCKET_IFNAME"


def interface_while_forming(monkeypatch: pytest.MonkeyPatch, meeting: Endpoint) -> str | None:
    """Return where gloo would listen when it makes the group of a crew; the group itself cannot be made."""
    seen = []

    def refuse(*_: object, **__: object) -> None:
        seen.append(os.environ.get(INTERFACE))
        raise RuntimeError("no group")

    monkeypatch.setattr(dist, "init_process_group", refuse)
    monkeypatch.setattr(forming, "_store", lambda *_, **__: dist.HashStore())
    place = torch.device("cpu")
    with pytest.raises(CrewError, match="did not find the other 1 of its crew within 1 s: no group"):
        form(Grid(2, 1), 1, place, 1.0, own=None, meeting=meeting, life=0, environment={})
    (found,) = seen
    return found


def test_a_crew_meets_on_loopback_unless_it_is_told_another_address() -> None:
    assert CrewStore("", 1.0).endpoint.host == "127.0.0.1"
    assert CrewStore("127.0.0.2", 1.0).endpoint.host == "127.0.0.2"


@pytest.mark.parametrize("before", [None, "eth7"])
def test_gloo_listens_on_loopback_where_the_crew_meets_there(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Otherwise it would listen where the name of the host leads to, or where the environment of a cluster says."""
    monkeypatch.setenv(INTERFACE, before or "")
    if before is None:
        monkeypatch.delenv(INTERFACE)
    assert interface_while_forming(monkeypatch, Endpoint("127.0.0.1", 9000)) == "lo"
    assert os.environ.get(INTERFACE) == before, "other groups of this process, later, are not concerned"


def test_gloo_listens_where_it_is_told_where_a_crew_across_hosts_was_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERFACE, "eth7")
    assert interface_while_forming(monkeypatch, Endpoint("10.0.0.7", 9000)) == "eth7"
