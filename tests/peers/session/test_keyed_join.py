"""A newcomer enters a swarm with keys: by an invitation that it holds, and not without."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from swarms import reserved_ports

import peers
from gossip import presets
from gossip.keys import KeyPair
from gossip.membership import MembershipSettings
from gossip.net.zmq_transport import new_keys
from peers.peer import Peer
from peers.session.rendezvous import StartError

PATIENCE = 30.0
QUICK = MembershipSettings(interval=0.3, timeout_floor=0.05, timeout_ceiling=0.1, spread_interval=0.05)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {name: replace(preset, membership=QUICK) for name, preset in presets._PRESETS.items()}
    monkeypatch.setattr(presets, "_PRESETS", quick)


def train(
    peer: Peer,
    over: threading.Event,
    steps: int = 10**9,
    on_step: Any = None,
    enough: Callable[[], bool] = lambda: True,
) -> tuple[int, ...]:
    """Take steps until told to stop, or so many, and more until it is enough; return who was there in the end."""
    model = torch.nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.fill_(peer.rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    peer.attach(model, optimizer)
    deadline = time.monotonic() + PATIENCE
    for step in count():
        if over.is_set() or (step >= steps and enough()):
            break
        assert step < steps or time.monotonic() < deadline, "it never was enough"
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        if on_step is not None:
            on_step(step, model, peer)
        over.wait(0.005)
    return peer.view


class Swarm:
    """Two founders with keys that train until `over`."""

    def __init__(self, ports: list[int]) -> None:
        self.keys = [new_keys() for _ in range(2)]
        self.invitation, self.watching = new_keys(), new_keys()
        self.hosts = [f"127.0.0.1:{port}" for port in ports]
        self.over = threading.Event()
        self.trains = threading.Event()
        self.views: list[set[int]] = [set(), set()]

    def founder(self, rank: int) -> tuple[int, ...]:
        with peers.join(
            {},
            rank=rank,
            hosts=self.hosts,
            public_keys=[pair.public.decode() for pair in self.keys],
            keys=self.keys[rank],
            join_key=self.invitation.public.decode(),
            watch_key=self.watching.public.decode(),
        ) as peer:
            return train(peer, self.over, on_step=self._note)

    def _note(self, step: int, _: torch.nn.Module, peer: Peer) -> None:
        self.views[peer.rank].update(peer.view)
        if step == 3:
            self.trains.set()

    def newcomer(
        self, invitation: KeyPair, own: KeyPair, start_timeout: float, *, early: bool = False
    ) -> tuple[tuple[int, ...], float]:
        assert early or self.trains.wait(PATIENCE)
        held: list[float] = []

        def look(_: int, model: torch.nn.Linear, __: Peer) -> None:
            held.append(float(model.weight.detach().mean()))

        with peers.join(
            {},
            rank=7,
            incarnation=1,
            world_size=2,
            contacts=self.hosts,
            contact_keys=[pair.public.decode() for pair in self.keys],
            invitation=invitation,
            keys=own,
            start_timeout=start_timeout,
        ) as peer:
            # Who leaves before a founder has looked was never seen by it.
            seen = train(peer, self.over, 60, look, lambda: all(7 in view for view in self.views))
            return seen, held[0]


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with reserved_ports(2) as ports:
        yield Swarm(ports)


def test_by_its_invitation(swarm: Swarm) -> None:
    with ThreadPoolExecutor(3) as pool:
        try:
            founders = [pool.submit(swarm.founder, rank) for rank in range(2)]
            view, first = swarm.newcomer(swarm.invitation, new_keys(), PATIENCE)
        finally:
            swarm.over.set()
        for founder in founders:
            founder.result(PATIENCE)
    assert set(view) == {0, 1, 7}
    assert all(seen == {0, 1, 7} for seen in swarm.views), "everybody heard of it, by a member of its choice"
    assert first == 0, "it trains on the swarm's weights, not on its own"


@pytest.mark.parametrize("which", ["none at all", "good for looking only"])
def test_not_without(swarm: Swarm, which: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        try:
            founders = [pool.submit(swarm.founder, rank) for rank in range(2)]
            keys = new_keys() if which == "none at all" else swarm.watching
            with pytest.raises(StartError, match=r"nobody let it in within 2 s.*is just starting, try again"):
                swarm.newcomer(keys, new_keys(), 2.0)
        finally:
            swarm.over.set()
        for founder in founders:
            founder.result(PATIENCE)
    assert all(seen == {0, 1} for seen in swarm.views)


def test_not_before_the_swarm_has_begun(swarm: Swarm) -> None:
    with ThreadPoolExecutor(3) as pool:
        try:
            founders = [pool.submit(swarm.founder, 0)]  # it waits for the other one
            with pytest.raises(StartError, match=r"within 2 s\..* If the swarm is just starting, try again"):
                swarm.newcomer(swarm.invitation, new_keys(), 2.0, early=True)
            founders.append(pool.submit(swarm.founder, 1))
            assert swarm.trains.wait(PATIENCE), "the swarm begins all the same"
        finally:
            swarm.over.set()
        for founder in founders:
            founder.result(PATIENCE)
