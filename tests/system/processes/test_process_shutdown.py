"""Closing without hanging in any state, with nothing left behind; and queues that stay within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Swarm, all_of, closed, conserved, settle, steps
from proxies import Proxies, until

MODEL = 16 << 20
SHARD_BYTES = 4 << 20
SIZE = MODEL // 8


@pytest.mark.parametrize("encrypted", [False, True])
def test_closing_when_the_peers_are_gone(swarm: Swarm, encrypted: bool) -> None:
    # Without a floor, nobody holds back: something is on its way to the dead, whatever was left of the own weight.
    settings = {"weight_floor": 0.0}
    peers = swarm.start(4, topology="complete", algorithm="adpsgd", encrypted=encrypted, settings=settings)
    all_of(peers, "go")
    all_of(peers, "await", more=3)
    for peer in peers[1:]:
        peer.kill()
    peers[0].ask("await_outbox", count=1)
    closed(peers[:1])


@pytest.mark.parametrize(("encrypted", "shards"), [(False, 16), (True, 16), (False, 512)])
def test_closing_with_a_queue_full_of_parcels_that_nobody_reads(swarm: Swarm, encrypted: bool, shards: int) -> None:
    """And the one that was stopped closes as well when it wakes up, its own queues full of what it has not read."""
    peers = swarm.start(
        2,
        size=SIZE,
        shard_bytes=MODEL // shards,
        topology="ring",
        algorithm="adpsgd",
        encrypted=encrypted,
        settings={"resend_first": 0.01, "resend_floor": 0.01, "weight_floor": 0.0},
    )
    sender, stopped = peers
    steps(peers, 1)
    settle(peers)
    stopped.stop()
    sender.ask("go", pause=0.005)
    sender.ask("await_outbox", count=shards)
    sender.ask("await", more=20)
    closed([sender])
    stopped.proceed()
    closed([stopped])


@pytest.mark.parametrize("encrypted", [False, True])
def test_closing_in_the_middle_of_a_parcel(proxies: Proxies, swarm: Swarm, encrypted: bool) -> None:
    proxies.set_up()
    peers = swarm.start(
        2,
        size=SIZE,
        shard_bytes=SHARD_BYTES,
        topology="ring",
        algorithm="gossip-push",
        encrypted=encrypted,
        route=proxies.route,
        settings={"weight_floor": 0.0},  # nobody holds back: both push in each step
    )
    steps(peers, 1)
    settle(peers)
    for link in proxies.links.values():
        link.stall(after=1 << 20)
    steps(peers, 1)
    for link in proxies.links.values():
        assert link.stalled.wait(40), "no transfer was under way"
    closed(peers)


def test_closing_while_a_step_waits(swarm: Swarm) -> None:
    peers = swarm.start(2, topology="ring", algorithm="sgp", settings={"wait_floor": 60.0, "wait_ceiling": 60.0})
    peers[0].ask("go")
    peers[0].ask("await_waiting")
    closed(peers)


def test_closing_before_any_handshake_is_over(proxies: Proxies, swarm: Swarm) -> None:
    proxies.set_up()
    peers = swarm.start(2, topology="ring", algorithm="adpsgd", route=proxies.route)
    links = list(proxies.links.values())
    before = [link.count.connections for link in links]
    for link in links:
        link.stall(after=0)
        link.cut()
    all_of(peers, "go", pause=0.01)
    until(
        lambda: all(link.count.connections > one for link, one in zip(links, before, strict=True)), "both knock again"
    )
    closed(peers)


@pytest.mark.parametrize(
    ("model", "shard_bytes"), [(16 << 20, 4 << 20), (2 << 20, 32 << 10)], ids=["large shards", "small shards"]
)
def test_a_sender_keeps_within_bounds_while_its_receiver_stands_still(
    swarm: Swarm, model: int, shard_bytes: int
) -> None:
    """Two hundred resend periods: the same parcels again and again, and no more than one copy of each may queue."""
    peers = swarm.start(
        2,
        size=model // 8,
        shard_bytes=shard_bytes,
        topology="ring",
        algorithm="adpsgd",
        settings={"resend_first": 0.02, "resend_floor": 0.02, "resend_ceiling": 0.02, "inbox_bytes": 4 * model},
    )
    sender, receiver = peers
    steps(peers, 2)
    settle(peers)
    before = sender.ask("vitals")
    receiver.stop()
    steps([sender], 200, pause=0.02)
    full = sender.ask("vitals")
    assert 0 < full["outbox_bytes"] <= 2 * model
    assert full["memory"] < before["memory"] + 2 * model + (4 << 20), "copies pile up"
    # A copy in ZeroMQ, and whatever went into the buffers of the system: what has left may be sent again.
    system = sum(int(Path(f"/proc/sys/net/ipv4/tcp_{way}mem").read_text().split()[-1]) for way in "rw")
    assert full["taken"] - before["taken"] < 2 * model + 2 * system, "copies were queued"
    assert len(full["files"]) <= len(before["files"]) + 2, "a connection more may just be made anew"
    receiver.proceed()
    conserved(settle(peers), model // 8, shard_bytes)
    closed(peers)
