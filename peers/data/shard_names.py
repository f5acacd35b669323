"""Names of data shards, one after the other: files or anything else that the script reads by itself.

A shard is one batch for `Claims`. It is *done* when the loop asks for the next one. Until then it is open: if the peer
dies another one gets it, and a checkpoint that is taken meanwhile gives it out again, from its start. So in each epoch
somebody reads every shard to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from peers.crew.crew import Crew
from peers.data.claims import Claims
from peers.data.sampler import shuffled
from topologies.draws import draw

__all__ = ["ShardNames"]


class ShardNames:
    """The data shards that this peer reads in the swarm's epochs."""

    #: The script may be stopped, and checkpoints taken, while it is at a shard: a shard takes many steps.
    long = True
    #: Samples are the script's.
    samples = 0

    def __init__(
        self,
        shards: Sequence[Any],
        epochs: int,
        *,
        seed: int = 0,
        rank: int = 0,
        ranks: Callable[[], Collection[int]] | None = None,
        crew: Crew | None = None,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            shards: The names of all shards, the same at every peer.
            epochs: How often the swarm goes through them.
            seed: The key of their order, the same at every peer.
            rank: The rank of this peer.
            ranks: Returns the live ranks in this peer's present view; by default only this peer.
            crew: The processes that hold this peer's replica: all rows get the same shards.
            on_progress: Called when this peer has done a chunk.
        """
        self._shards, self._seed = shards, seed
        self._claims = Claims(
            *(len(shards), epochs, draw(seed, len(shards), 1, 2)),
            rank=rank,
            ranks=ranks,
            on_progress=on_progress,
            crew=crew,
        )
        #: The shards that the swarm has done.
        self.progress = self._claims.progress
        #: The number of shards that the swarm goes through in all epochs.
        self.total_samples = epochs * len(shards)

    def __iter__(self) -> Iterator[Any]:
        claims = self._claims
        self.progress.release()
        for place in claims.places():
            claims.hand_out(place, 1)
            (index,) = shuffled(len(self._shards), self._seed, place.epoch, np.array([claims.batch(place)], np.int64))
            yield self._shards[index]
            claims.consumed()

    def state(self) -> bytes:
        """Return this peer's position, for a checkpoint: the shard that was handed out last is not done."""
        return self._claims.state(finished=False)

    def restore(self, state: bytes) -> None:
        """Continue from a `state`, before the first shard; see `Claims.restore`."""
        self._claims.restore(state)
