"""The order of a data set in an epoch, the same on every peer, and a sampler of one rank's part of it.

The order is `topologies.draws.Shuffle` under the keys (seed, epoch), a function of the position. So with a billion
samples a peer computes the few indices that it needs and stores no permutation. No library's random stream is involved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from gossip.errors import SettingsError
from peers.data.dataset_checks import check_indexed
from topologies.draws import Shuffle, draw_array

__all__ = ["PeerSampler", "shuffled"]

#: For fewer samples the scalar code is used: it takes more rounds if the grid is tiny.
_SMALL = 256
_ROUNDS = 8
#: The number of indices that are computed at a time.
_BLOCK = 4096

Indices = npt.NDArray[np.int64]


def shuffled(n: int, seed: int, epoch: int, positions: Indices) -> Indices:
    """Return ``Shuffle(n, seed, epoch)(p)`` for every ``p`` in ``positions``, bit for bit, many times faster."""
    if n <= _SMALL:
        scalar = Shuffle(n, seed, epoch)
        return np.array([scalar(int(p)) for p in positions], np.int64)
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    values = positions.astype(np.int64)
    # Values outside go through the network again; a grid is hardly larger than n, so they are few.
    outside = np.arange(len(values))
    while len(outside):
        high, low = np.divmod(values[outside], b)
        for r in range(_ROUNDS):
            if r % 2:
                low = (low + _add(seed, epoch, r, high)) % b
            else:
                high = (high + _add(seed, epoch, r, low)) % a
        values[outside] = high * b + low
        outside = outside[values[outside] >= n]
    return values


def _add(seed: int, epoch: int, r: int, half: Indices) -> Indices:
    return np.asarray(draw_array((seed, epoch, r), half) >> np.uint64(32), np.int64)


class PeerSampler(Sampler[int]):
    """A rank's part of a data set, for a `DataLoader` of your own.

    The parts of the ranks are disjoint, together they are the data set, and their lengths differ by at most one. By
    default no sample is repeated to make them equal, since no peer waits for another's last batch. The parts are fixed:
    when a peer dies, its part of the epoch remains unseen. If the data set has a length and an index, use
    `peer.batches`, which has neither limit.

    Call `set_epoch` before each epoch, otherwise every epoch has the same order.
    """

    def __init__(
        self,
        dataset: int | Sized,
        rank: int,
        world_size: int,
        seed: int = 0,
        shuffle: bool = True,
        pad: bool = False,
    ) -> None:
        """Take a part.

        Args:
            dataset: The data set, or its length.
            rank: The number of the part, from 0.
            world_size: The number of parts.
            seed: The key of the order, the same at every peer.
            shuffle: Whether each epoch has a new order; otherwise it is the data set's own.
            pad: Repeat samples from the beginning of the order until all parts are equally long.
        """
        if not isinstance(dataset, int):
            check_indexed(dataset)
        self._n = dataset if isinstance(dataset, int) else len(dataset)
        if self._n < 1:
            raise SettingsError(f"dataset has {self._n} samples; it must have at least one")
        if world_size < 1 or not 0 <= rank < world_size:
            raise SettingsError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
        self._rank, self._world_size, self._seed, self._shuffle = rank, world_size, seed, shuffle
        whole = -(-self._n // world_size) * world_size
        self._length = len(range(rank, whole if pad else self._n, world_size))
        self.epoch = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        for start in range(0, self._length, _BLOCK):
            count = min(_BLOCK, self._length - start)
            positions = (self._rank + np.arange(start, start + count, dtype=np.int64) * self._world_size) % self._n
            yield from (shuffled(self._n, self._seed, epoch, positions) if self._shuffle else positions).tolist()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration: its number is a key of the order."""
        self.epoch = epoch
