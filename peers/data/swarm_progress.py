"""How far the swarm is in a loop over data, for scripts: a picture of one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SwarmProgress"]


@dataclass(frozen=True)
class SwarmProgress:
    """How far the swarm as a whole is in a loop over `Peer.batches` or `Peer.shards`, as far as this peer has heard."""

    #: The part of the loop that is done, from 0 to 1.
    fraction: float = 0.0
    #: The samples that are done, by whichever peer, and those of the whole loop; each epoch counts anew. In a loop over
    #: the names of data shards, these are shards.
    samples: int = 0
    total_samples: int = 0
    #: The oldest epoch that is not complete, from 0 on, and the number of epochs.
    epoch: int = 0
    epochs: int = 0
    #: The number of the loop, from 0 on; -1 before the first one begins.
    loop: int = -1
    #: With `allreduce`, the part of the loop that one step of all peers does; otherwise 0. There all peers have to move
    #: alike, so schedules count the steps, which all know, and not the fraction, of which one hears before another. In
    #: a loop over data shards it is NaN: nobody knows how many steps a shard takes.
    step_share: float = 0.0
