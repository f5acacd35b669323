"""Exact averages between processes."""

from __future__ import annotations

import pytest
from harness import Swarm, closed, conserved, near, settle, steps
from repeats import some

# Followed to the letter: without the floor, and without the limits that a parcel which comes early can run into.
TO_THE_LETTER = {
    "wait_floor": 60.0,
    "wait_ceiling": 60.0,
    "weight_floor": 0.0,
    "weight_cap": 1e5,
    "inbox_bytes": 1 << 20,
}


@pytest.mark.parametrize(
    ("n", "topology", "encrypted"),
    some(
        [
            (2, "ring", False),
            (4, "one-peer-exponential", True),
            (8, "base", False),
            (2, "ring", True),
            (4, "one-peer-exponential", False),
            (8, "base", True),
        ],
        3,
    ),
)
def test_exact_topologies_give_the_exact_average(swarm: Swarm, n: int, topology: str, encrypted: bool) -> None:
    peers = swarm.start(n, topology=topology, encrypted=encrypted, settings=TO_THE_LETTER)
    steps(peers, 6)
    books = settle(peers)
    for book in books:
        assert near(book["low"], (n - 1) / 2)
        assert near(book["high"], (n - 1) / 2)
        assert not book["rejections"]
    conserved(books, 64, 256)
    closed(peers)


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd"])
def test_training_is_conserved_too(swarm: Swarm, algorithm: str) -> None:
    peers = swarm.start(
        4,
        size=4096,
        shard_bytes=4096,
        topology="epidemic",
        algorithm=algorithm,
        settings={"wait_floor": 0.05, "wait_ceiling": 0.2},
    )
    steps(peers, 30, noise=11)
    conserved(settle(peers), 4096, 4096)
    closed(peers)
