"""Only the gossip thread touches the core: all other threads ask the driver's status."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest
from swarms import LONGEST, Meeting, swarm, together

import peers
from gossip import presets
from gossip.core.core import Core
from gossip.net.driver import Driver
from peers import Peer


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what threads other than its gossip thread read of a core while that thread runs."""
    threads: dict[int, threading.Thread] = {}
    found: list[str] = []
    enter, read, write = Driver.__enter__, Core.__getattribute__, Core.__setattr__

    def watched_enter(driver: Driver) -> Driver:
        threads[id(driver._core)] = driver._thread
        return enter(driver)

    def watch(core: Core, name: str) -> None:
        thread = threads.get(id(core))
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            found.append(name)

    def watched_read(core: Core, name: str) -> Any:
        watch(core, name)
        return read(core, name)

    def watched_write(core: Core, name: str, value: Any) -> None:
        watch(core, name)
        write(core, name, value)

    monkeypatch.setattr(Driver, "__enter__", watched_enter)
    monkeypatch.setattr(Core, "__getattribute__", watched_read)
    monkeypatch.setattr(Core, "__setattr__", watched_write)
    return found


def train(peer: Peer) -> None:
    """Do everything that a peer can do."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for (x,) in peer.batches(torch.utils.data.TensorDataset(torch.ones(64, 2)), 4, 1):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        peer.log(loss=0.5)
        optimizer.step()
        assert peer.weight > 0
        assert peer.rank in peer.view
    peer._reporter.report(state="training")
    peer.evaluate(lambda: 0, timeout=LONGEST)
    peer.consensus(timeout=LONGEST)


@pytest.mark.parametrize("algorithm", ["osgp", "sgp", "adpsgd", "slowmo:h=2", "allreduce", "parameter-server"])
def test_a_whole_life_leaves_the_core_alone(algorithm: str, touched: list[str], tmp_path: Path) -> None:
    swarm(2, train, presets.preset("loopback"), algorithm=algorithm, run_dir=str(tmp_path), checkpoint_every=2)
    assert touched == []


def test_a_newcomer_leaves_the_core_alone(touched: list[str]) -> None:
    meeting = Meeting(2)
    over = threading.Event()
    preset = presets.preset("loopback")

    def attach(peer: Peer, value: float) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(model.weight, value)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        peer.attach(model, optimizer)
        return model, optimizer

    def stays(peer: Peer) -> None:
        _, optimizer = attach(peer, 3.0)
        while not over.is_set():
            optimizer.step()

    def comes_back() -> float:
        try:
            with meeting.peer(1, preset) as peer:
                attach(peer, 3.0)
                peer._attached().session.driver.close()  # as if killed: no goodbye
            with meeting.peer(1, preset, incarnation=1000) as peer:
                model, _ = attach(peer, -1.0)
                return float(model.weight.detach()[0, 0])  # type: ignore[index, operator]
        finally:
            over.set()

    nothing, adopted = together([meeting.task(0, stays, preset), comes_back])
    assert (nothing, adopted) == (None, pytest.approx(3.0))
    assert touched == []


def test_a_scrape_leaves_the_core_alone(touched: list[str]) -> None:
    with peers.join({}, metrics_port=0) as peer:
        train(peer)
        assert peer._metrics is not None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(peer._metrics._figures)
        assert b"gossip_weight 1.0" in generate_latest(registry)
    assert touched == []


@pytest.mark.parametrize("touch", [lambda core: core.step, lambda core: setattr(core, "anything", 1)])
def test_the_watch_sees_a_touch(touch: Callable[[Core], None], touched: list[str]) -> None:
    def body(peer: Peer) -> None:
        train(peer)
        touch(peer._attached().session.driver._core)

    swarm(1, body)
    assert touched
