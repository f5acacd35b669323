"""One of four peers is killed or frozen in the middle of a transfer; what becomes of its mass and of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import (
    Peer,
    Swarm,
    agreed,
    all_of,
    beginning,
    closed,
    conserved,
    converge,
    flow,
    minus,
    plus,
    same,
    settle,
    spread,
    steps,
    total,
)
from proxies import Proxies

VICTIM = 3
MODEL = 16 << 20
SHARD_BYTES = 4 << 20
SHARDS = MODEL // SHARD_BYTES
SIZE = MODEL // 8


def interrupted(proxies: Proxies, swarm: Swarm) -> tuple[list[Peer], Peer, dict[str, Any]]:
    """Start four peers, and stop all transfers from and to the victim in the middle of their first frame.

    Also returns the victim's books. As nothing gets to it any more, and it does not train, they stay as they are.
    """
    proxies.set_up(through=lambda origin, target: VICTIM in (origin, target))
    peers = swarm.start(
        4,
        size=SIZE,
        shard_bytes=SHARD_BYTES,
        topology="complete",
        algorithm="gossip-push",
        route=proxies.route,
        settings={"weight_floor": 0.0},  # nobody holds back: something of each shard goes to everybody in each step
    )
    steps(peers, 1)
    settle(peers)
    for link in proxies.links.values():
        link.stall(after=2 << 20)
    steps(peers, 1)
    for link in proxies.links.values():
        assert link.stalled.wait(40), "no transfer was under way"
    books = peers[VICTIM].ask("books")
    assert books["outbox"]["count"] == 3 * SHARDS, "of each shard a parcel is on its way to everybody"
    return peers[:VICTIM], peers[VICTIM], books


def memory(peers: list[Peer]) -> list[int]:
    """Return what each holds after two more steps."""
    steps(peers, 2)
    settle(peers)
    return [vitals["memory"] for vitals in all_of(peers, "vitals")]


def test_a_peer_that_is_killed_in_a_transfer_takes_its_own_mass_along_and_no_other(
    proxies: Proxies, swarm: Swarm
) -> None:
    survivors, victim, last = interrupted(proxies, swarm)
    victim.kill()
    for link in proxies.links.values():
        link.cut()  # what the network still has of its parcels is lost too
    proxies.heal()
    all_of(survivors, "go", pause=0.01)
    all_of(survivors, "await", more=2)  # nobody has noticed yet
    for peer in survivors:
        peer.ask("post", event="died", rank=VICTIM, incarnation=0)
    all_of(survivors, "await", more=2)
    all_of(survivors, "halt")
    books = settle(survivors)
    # Every parcel to the dead came back, and what it had on its way to others went with it: only its own mass is gone.
    assert [flow(book, "TakenBack", rank=VICTIM)["count"] for book in books] == [SHARDS] * 3
    same(plus(total(books), total([last])), beginning(SIZE, SHARD_BYTES, range(4)), "survivors and the dead")
    agreed(books)
    # And by the books of the survivors alone it adds up just the same.
    net = [minus(flow(book, "Booked", rank=VICTIM), flow(book, "Released", rank=VICTIM)) for book in books]
    same(total(books), plus(beginning(SIZE, SHARD_BYTES, range(3)), *net), "survivors by what went between them")
    # Memory goes up and down by two models with what happens to wait; if 8 steps kept a parcel each, it would be more.
    early, late = ([memory(survivors) for _ in range(4)] for _ in range(2))
    assert np.all(np.min(late, axis=0) < np.max(early, axis=0) + 3 * MODEL), f"memory grows: {early}, {late}"
    closed(survivors)


def test_a_peer_that_stood_still_in_a_transfer_goes_on_and_nothing_is_missing(proxies: Proxies, swarm: Swarm) -> None:
    others, sleeper, _ = interrupted(proxies, swarm)
    sleeper.stop()
    proxies.heal()
    all_of(others, "go", pause=0.01)
    all_of(others, "await", more=4)
    sleeper.proceed()
    steps([sleeper], 2)
    all_of(others, "halt")
    everybody = [*others, sleeper]
    converge(everybody, 2)
    books = settle(everybody)
    conserved(books, SIZE, SHARD_BYTES)
    assert not any(book["written_off"] for book in books)
    closed(everybody)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_peer_that_was_declared_dead_and_was_not_comes_back_as_another(
    proxies: Proxies, swarm: Swarm, encrypted: bool
) -> None:
    """Small, so that the connection is known to have what the sleeper was sent, and holds answers that are too late."""
    size, shard_bytes, shards = 1024, 1024, 8
    proxies.set_up(through=lambda origin, target: VICTIM in (origin, target))
    peers = swarm.start(
        4,
        size=size,
        shard_bytes=shard_bytes,
        topology="epidemic",
        algorithm="adpsgd",
        encrypted=encrypted,
        route=proxies.route,
        settings={"resend_first": 0.1, "resend_floor": 0.1, "resend_ceiling": 0.5},
    )
    others, sleeper = peers[:VICTIM], peers[VICTIM]
    steps(peers, 10)
    settle(peers)
    for link in proxies.into(VICTIM):
        link.stall(after=1500)
    steps(peers, 10)
    last = sleeper.ask("books")
    sleeper.stop()
    proxies.heal()
    all_of(others, "go", pause=0.002)
    all_of(others, "await", more=5)
    for peer in others:
        peer.ask("post", event="died", rank=VICTIM, incarnation=0)
    all_of(others, "await", more=5)
    sleeper.proceed()
    sleeper.ask("go", pause=0.01)
    sleeper.ask("await_life", incarnation=1)
    for peer in others:
        peer.ask("await_member", rank=VICTIM, incarnation=1)
    all_of(peers, "halt")
    converge(peers)
    books = settle(peers)
    mine = books[VICTIM]
    assert mine["address"] == [VICTIM, 1]
    assert [event["incarnation"] for event in mine["written_off"]] == [1]
    agreed(books)
    # The others: what they started with, and what they had from both lives, less what they gave to both.
    net = [minus(flow(book, "Booked", rank=VICTIM), flow(book, "Released", rank=VICTIM)) for book in books[:VICTIM]]
    same(total(books[:VICTIM]), plus(beginning(size, shard_bytes, range(VICTIM)), *net), "those that stayed")
    # The second life: a weight of 1, minted, and what came and went since.
    minted = np.ones(shards) + flow(mine, "Booked", life=1)["weights"] - flow(mine, "Released", life=1)["weights"]
    np.testing.assert_allclose(total([mine])["weights"], minted, atol=1e-9)
    # The first: what it held at last, and what it still booked when it awoke, was written off. Steps that it took
    # before it heard gave some of that to parcels, which nobody booked: they are in no book, and never were in two.
    gained = flow(mine, "Booked", life=0)["weights"] - flow(last, "Booked", life=0)["weights"]
    returned = flow(mine, "TakenBack", life=0)["weights"] - flow(last, "TakenBack", life=0)["weights"]
    held = total([last], ["held", "inbox"])["weights"]
    assert mine["written_off"][0]["weight"] <= np.sum(held + gained + returned) + 1e-9
    # Weight of the whole swarm: one each, and what the first life left the others with.
    first = [
        flow(book, "Booked", rank=VICTIM, other_life=0)["weights"]
        - flow(book, "Released", rank=VICTIM, other_life=0)["weights"]
        for book in books[:VICTIM]
    ]
    np.testing.assert_allclose(total(books)["weights"], 4 + np.sum(first, axis=0), atol=1e-9)
    assert spread(books) < 0.01
    closed(peers)
