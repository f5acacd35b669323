"""One of four peers is killed and started again a hundred times, each time as a new process; the others do not care."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Peer, Swarm, agreed, all_of, beginning, closed, converge, flow, minus, plus, same, settle, total
from proxies import Proxies, until

VICTIM = 3
SIZE, SHARD_BYTES = 4096, 16384


def flat(before: list[dict[str, Any]], others: list[Peer], restarts: int) -> bool:
    """Whether the others have gained fewer files and threads than one in two restarts.

    Connections close a moment after their peers. And some of the last life's may not have stood yet, before: the
    number itself need not be the same.
    """
    now = all_of(others, "vitals")
    return all(
        len(new[what]) < len(old[what]) + restarts / 2
        for old, new in zip(before, now, strict=True)
        for what in ("files", "threads")
    )


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_hundred_restarts_leave_no_trace(proxies: Proxies, swarm: Swarm, encrypted: bool) -> None:
    # Through a proxy, so that the address of the victim stays while its port, which is any free one, does not.
    proxies.set_up(through=lambda _origin, target: target == VICTIM)
    peers = swarm.start(
        4,
        size=SIZE,
        shard_bytes=SHARD_BYTES,
        topology="complete",
        algorithm="adpsgd",
        encrypted=encrypted,
        route=proxies.route,
        settings={"resend_first": 0.05, "resend_floor": 0.05, "resend_ceiling": 0.2},
    )
    others = peers[:VICTIM]
    all_of(others, "go", pause=0.02)

    def moved(endpoint: str) -> None:
        for link in proxies.into(VICTIM):
            link.target = endpoint

    restarts = 30 if encrypted else 100
    looked: list[list[dict[str, Any]]] = []
    for life in range(1, restarts + 1):
        peers[VICTIM].kill()
        victim = swarm.restart(VICTIM, moved)
        assert victim.incarnation == life
        victim.ask("go", pause=0.02)
        victim.ask("await_effect", effect="Booked", count=1)
        victim.ask("await_effect", effect="Released", count=1)
        if life in (20, restarts):
            for other in others:
                other.ask("await_member", rank=VICTIM, incarnation=life)
            if looked:
                until(lambda: flat(looked[0], others, restarts - 20), "about as many files as after 20 restarts")
            looked.append(all_of(others, "vitals"))
    for early, late in zip(*looked, strict=True):
        assert late["steps"] > early["steps"]
        assert late["memory"] < early["memory"] * 1.04, "memory grows with every restart"
    all_of([*others, victim], "halt")
    everybody = [*others, victim]
    converge(everybody, 5)
    books = settle(everybody)
    agreed(books)
    net = [minus(flow(book, "Booked", rank=VICTIM), flow(book, "Released", rank=VICTIM)) for book in books[:VICTIM]]
    same(total(books[:VICTIM]), plus(beginning(SIZE, SHARD_BYTES, range(VICTIM)), *net), "those that stayed")
    own = minus(flow(books[VICTIM], "Booked"), flow(books[VICTIM], "Released"))
    same(total(books[VICTIM:]), plus(beginning(SIZE, SHARD_BYTES, [VICTIM]), own), "the last life")
    lives = {other_life for book in books for _, _, rank, other_life, _ in book["flows"] if rank == VICTIM}
    assert len(lives) > restarts // 2, "the victim lived too short to deal with anybody"
    closed(everybody)
