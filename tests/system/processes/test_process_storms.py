"""Bad networks between processes: cuts, delays, flipped bits, doubled and reordered messages. Nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from harness import Peer, Swarm, all_of, closed, conserved, converge, settle, spread, steps
from proxies import Impostor, Proxies, Relay, Weather, until
from repeats import some

SIZE, SHARD_BYTES = 16384, 16384
#: Short, so that what a storm swallows comes again soon.
HASTY = {
    "wait_floor": 0.05,
    "wait_ceiling": 0.05,
    "resend_first": 0.05,
    "resend_floor": 0.05,
    "resend_ceiling": 0.2,
}
#: What a frame that was damaged on its way can be rejected for.
DAMAGE = {"malformed", "truncated", "oversized", "checksum", "version"}


def sail(peers: Sequence[Peer], stormy: Callable[[], bool], **order: Any) -> None:
    """Take steps until it was stormy: while the threads that make the weather are held up, peers do not wait."""
    for _ in range(20):
        steps(peers, 60, pause=0.01, **order)
        if stormy():
            return
    pytest.fail("there was no storm")


@pytest.mark.parametrize(
    ("algorithm", "encrypted"), some([("sgp", True), ("adpsgd", False), ("sgp", False), ("adpsgd", True)], 2)
)
@pytest.mark.parametrize("seed", [1])
def test_after_a_storm_all_mass_is_there(
    proxies: Proxies, swarm: Swarm, algorithm: str, encrypted: bool, seed: int
) -> None:
    """Connections are cut, slowed down and damaged, in their framing too: all links recover, and nothing is missing."""
    weather = Weather(cut=400_000, delay=0.002, flip=200_000, muddle=0.002)
    proxies.set_up(seed)
    peers = swarm.start(
        4,
        size=SIZE,
        shard_bytes=SHARD_BYTES,
        algorithm=algorithm,
        topology="epidemic",
        encrypted=encrypted,
        route=proxies.route,
        settings=HASTY,
        # A length that was muddled makes a receiver wait for bytes that never come, until the sender connects anew.
        link={"keepalive": 1.0, "keepalive_timeout": 2.0},
    )
    proxies.storm(weather)
    sail(peers, lambda: min(map(proxies.sum, ("cut", "flipped", "muddled"))) >= 4, noise=seed)
    proxies.heal()
    converge(peers)
    books = settle(peers)
    conserved(books, SIZE, SHARD_BYTES)
    assert spread(books) < 0.01
    for book in books:
        assert set(book["rejections"]) <= DAMAGE
    closed(peers)


def test_each_damaged_message_is_counted_and_none_gets_in(proxies: Proxies, swarm: Swarm) -> None:
    proxies.set_up(2)
    peers = swarm.start(
        4,
        size=SIZE,
        shard_bytes=SHARD_BYTES,
        algorithm="adpsgd",
        topology="epidemic",
        route=proxies.route,
        settings=HASTY,
    )
    proxies.storm(Weather(spoil=0.1))
    sail(peers, lambda: proxies.sum("spoilt_messages") > 100)
    proxies.heal()
    converge(peers)
    books = settle(peers)
    conserved(books, SIZE, SHARD_BYTES)
    rejected = [count for book in books for count in book["rejections"].values()]
    assert sum(rejected) == proxies.sum("spoilt_messages")
    assert {reason for book in books for reason in book["rejections"]} <= DAMAGE
    assert min(book["low"] for book in books) > -1e-6, "outside of what anybody ever had"
    assert max(book["high"] for book in books) < 3 + 1e-6, "outside of what anybody ever had"
    assert spread(books) < 0.01
    closed(peers)


@pytest.fixture
def relays() -> Iterator[dict[tuple[int, int], Relay]]:
    made: dict[tuple[int, int], Relay] = {}
    yield made
    for relay in made.values():
        relay.close()


@pytest.mark.parametrize("algorithm", ["sgp", "adpsgd"])
def test_messages_that_come_twice_and_out_of_order_count_once(
    relays: dict[tuple[int, int], Relay], swarm: Swarm, algorithm: str
) -> None:
    seed = 3
    sys.stdout.write(f"seed {seed}\n")

    def route(origin: int, target: int, endpoint: str) -> str:
        relays[origin, target] = Relay(endpoint, seed * 10_000 + origin * 100 + target)
        return relays[origin, target].endpoint

    peers = swarm.start(
        4, size=SIZE, shard_bytes=SHARD_BYTES, algorithm=algorithm, topology="epidemic", route=route, settings=HASTY
    )
    sail(
        peers,
        lambda: all(sum(getattr(relay, what) for relay in relays.values()) > 100 for what in ("doubled", "overtaken")),
        noise=seed,
    )
    for relay in relays.values():
        relay.calm.set()
    converge(peers)
    books = settle(peers)
    conserved(books, SIZE, SHARD_BYTES)
    assert not any(book["rejections"] for book in books)
    assert spread(books) < 0.01
    closed(peers)


@pytest.mark.parametrize("direction", [(0, 1), (1, 0)], ids=["parcels", "answers"])
def test_a_connection_over_which_nothing_is_answered_is_made_anew(
    proxies: Proxies, swarm: Swarm, direction: tuple[int, int]
) -> None:
    """It takes all that is written and looks well, so only the silence tells."""
    proxies.set_up(through=lambda origin, target: (origin, target) == direction)
    peers = swarm.start(2, topology="ring", algorithm="sgp", route=proxies.route, settings=HASTY)
    link = proxies.links[direction]
    before = link.count.connections
    link.deafen()
    steps(peers, 5, pause=0.01)
    converge(peers, 5)
    books = settle(peers)
    conserved(books, 64, 256)
    assert link.count.connections > before
    closed(peers)


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    one = Impostor()
    yield one
    one.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_link_recovers_when_somebody_else_answered_for_a_while(
    proxies: Proxies, swarm: Swarm, impostor: Impostor, encrypted: bool
) -> None:
    """A port that was free for a moment and taken by another program: once the peer is back, so is the link."""
    proxies.set_up(through=lambda origin, _target: origin == 0)
    peers = swarm.start(
        2, topology="ring", algorithm="adpsgd", encrypted=encrypted, route=proxies.route, settings=HASTY
    )
    link = proxies.links[0, 1]
    right, link.target = link.target, impostor.endpoint
    link.cut()
    until(lambda: impostor.met > 0, "somebody knocks at the wrong door")
    link.target = right
    steps(peers, 5, pause=0.01)
    all_of(peers, "flush", timeout=12.0)
    converge(peers)
    books = settle(peers)
    conserved(books, 64, 256)
    assert spread(books) < 0.01
    closed(peers)
