"""The chunks of each epoch that the swarm has done, and the choice of the next chunk, without a coordinator.

A chunk is a fixed number of consecutive batches of the epoch's permutation. `Progress` is a grow-only set of chunks.
Peers send each other their sets, and a merge takes the union, so messages may be lost, duplicated, late or out of
order. Complete epochs collapse to a counter, and bits exist only for the `WINDOW` epochs after it.

**The claim rule.** Each live rank in this peer's view owns a stripe of each epoch, in an order drawn for (epoch,
owner). In the oldest incomplete epoch a peer takes

1. the first undone chunk of its own stripe;
2. else an undone chunk of another's stripe that falls to it: a keyed draw shares these out among the ranks that have
   nothing left in their own stripes. It takes them from the end of the owner's order, and never the first undone one:
   its owner is presumably working at that;
3. else, when other peers are presumably working at all that remains, it looks into the next epoch, up to the window.
   When that is exhausted too, or the run ends there, it does what remains: the oldest epoch first, and chunks that step
   2 gives to others before those that owners are working at. These peers may be dead or slow.

A chunk that this peer has claimed and not finished (a data loader claims ahead) is not claimed again. It counts as done
when the peer determines how far ahead it may go.

**No peer is stuck.** `next_chunk` returns None only when every chunk of every epoch is done or claimed by this peer
itself, and otherwise an undone chunk: step 3 excludes nothing. So each chunk that a peer finishes makes its set grow,
and a peer that receives no messages, with any view, right or wrong, finishes alone after a bounded number of chunks.
Nothing waits for a message, a rank or a clock, and no step needs two peers to agree. With a wrong view two peers do the
same chunk, which costs time and no data. (Each owner has a different order, so that peers whose stripes overlap,
because their views differ, do not follow each other chunk by chunk.)

**The run does not end early.** A bit is set by `mark` at a peer that has consumed the chunk, or copied by `merge` from
a peer where it is set. The counter moves past an epoch only when all its bits are set. By induction over messages, some
peer has consumed every chunk that counts as done. When a peer dies, at most the chunks that it told no other peer about
are lost: they stay undone elsewhere and are done again. A peer that returns with an old set knows a subset of the
truth. So every chunk is done at least once.

**The window always suffices.** A claim is at most WINDOW - 1 epochs after the first incomplete one, where own claims
count as complete. These are finished in the order of the claims, so the counter has passed them by the time of the
`mark`. And the union of two sets within their windows is within the window of the larger counter.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.errors import GossipError
from topologies.draws import draw, draw_array

__all__ = ["CHUNK_LIMIT", "WINDOW", "OtherDataError", "Progress", "ProgressError"]

#: An epoch has at most this many chunks: 512 bytes of bits.
CHUNK_LIMIT = 4096
#: The number of epochs, from the oldest incomplete one on, that may be worked on. Part of the wire format.
WINDOW = 4
#: magic, batches, epochs, key, complete epochs, how many bitmaps follow
_HEAD = struct.Struct("<4sQQQQB")
_MAGIC = b"gpr1"
#: The most (helper, chunk) pairs that are examined to divide the work among helpers: some milliseconds.
_PAIRS = 1 << 18

Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class ProgressError(GossipError, ValueError):
    """The progress is malformed, of another data set, or impossible. Nothing has changed."""


class OtherDataError(ProgressError):
    """The progress is of another data set, batch size, seed or number of epochs. Nothing has changed."""


class Progress:
    """The chunks that the swarm has done, as far as this peer knows. Safe to use from several threads."""

    def __init__(self, batches: int, epochs: int, key: int = 0) -> None:
        """Begin with nothing done.

        Args:
            batches: The number of batches of an epoch.
            epochs: The number of epochs of the run.
            key: The key of the draws. It also stands for what peers must agree on: data set, seed, batch size.
        """
        if not 1 <= batches < 1 << 63 or not 1 <= epochs < 1 << 63:
            raise ProgressError(f"batches and epochs must be 1 or more, not {batches} and {epochs}")
        self.batches, self.epochs, self.key = batches, epochs, key & ((1 << 64) - 1)
        self._size = -(-batches // CHUNK_LIMIT)
        self.chunks = -(-batches // self._size)
        self._lock = threading.Lock()
        #: Epochs before this one are done; the bits are those of the epochs from it on.
        self._complete = 0
        self._bits: list[Bits] = [np.zeros(self.chunks, np.bool_) for _ in range(WINDOW)]
        self._claims: set[tuple[int, int]] = set()

    def span(self, chunk: int) -> range:
        """Return the batches of a chunk."""
        return range(chunk * self._size, min((chunk + 1) * self._size, self.batches))

    @property
    def finished(self) -> bool:
        """Whether every chunk of every epoch is done."""
        return self._complete == self.epochs

    @property
    def epoch(self) -> int:
        """The oldest incomplete epoch; the number of epochs when all are complete."""
        return self._complete

    @property
    def fraction(self) -> float:
        """The part of the whole run that is done, from 0 to 1."""
        with self._lock:
            done = self._complete * self.chunks + sum(int(bits.sum()) for bits in self._bits)
        return done / (self.epochs * self.chunks)

    def done(self, epoch: int, chunk: int | None = None) -> bool:
        """Return whether the epoch, or one chunk of it, is known to be done."""
        with self._lock:
            place = epoch - self._complete
            if place < 0 or place >= WINDOW:
                return place < 0
            return bool(self._bits[place].all() if chunk is None else self._bits[place][chunk])

    def mark(self, epoch: int, chunk: int) -> bool:
        """Note that this peer has consumed the chunk; return whether it was undone before."""
        with self._lock:
            if not (0 <= epoch < min(self.epochs, self._complete + WINDOW) and 0 <= chunk < self.chunks):
                raise ProgressError(f"chunk {chunk} of epoch {epoch} is beyond the window, or does not exist")
            self._claims.discard((epoch, chunk))
            place = epoch - self._complete
            if place < 0 or self._bits[place][chunk]:
                return False
            self._bits[place][chunk] = True
            self._collapse()
            return True

    def encode(self) -> bytes:
        """Return the whole set, for `merge` at another peer: 37 bytes, and up to 512 for each open epoch."""
        with self._lock:
            used = max((place + 1 for place, bits in enumerate(self._bits) if bits.any()), default=0)
            head = _HEAD.pack(_MAGIC, self.batches, self.epochs, self.key, self._complete, used)
            return head + b"".join(np.packbits(bits, bitorder="little").tobytes() for bits in self._bits[:used])

    def merge(self, data: bytes | bytearray | memoryview, *, longer: bool = False) -> bool:
        """Merge the set of another peer; return whether anything was new.

        Args:
            data: The result of the other peer's `encode`. It is not trusted.
            longer: Accept data of a run with fewer epochs than this one, to continue from a checkpoint.

        Raises:
            ProgressError: If the data is malformed, or of another data set or run. Nothing has changed then.
        """
        complete, maps = self._decode(data, longer)
        with self._lock:
            news = complete > self._complete
            self._advance(complete)
            for epoch, theirs in enumerate(maps, start=complete):
                if epoch >= self._complete:
                    ours = self._bits[epoch - self._complete]
                    news = news or bool((theirs & ~ours).any())
                    ours |= theirs
            self._collapse()
            return news

    def follow(self, epoch: int) -> None:
        """Take it that all epochs before this one are done: the lead row of the crew knows it, and decides."""
        with self._lock:
            self._advance(min(epoch, self.epochs))

    def claim(self, epoch: int, chunk: int) -> None:
        """Note that this peer is working at the chunk, so that `next_chunk` does not return it."""
        with self._lock:
            self._claims.add((epoch, chunk))

    def release(self) -> None:
        """Forget the chunks that this peer has claimed and not done."""
        with self._lock:
            self._claims.clear()

    def next_chunk(self, rank: int, ranks: Iterable[int]) -> tuple[int, int] | None:
        """Claim a chunk by the rule above and return (epoch, chunk); None when there will be nothing more to claim.

        Args:
            rank: The rank of this peer.
            ranks: The live ranks in this peer's view; its own rank may be missing.
        """
        live = tuple(sorted({*ranks, rank}))
        with self._lock:
            oldest: tuple[int, Ints] | None = None
            epoch = self._complete
            while epoch < self.epochs and (oldest is None or epoch < oldest[0] + WINDOW):
                undone, free = self._left(epoch)
                if free.any():
                    due, others = _divide(_stripes(self.key, epoch, self.chunks, live), undone, free, rank)
                    if due is not None:
                        self._claims.add((epoch, due))
                        return epoch, due
                    oldest = oldest or (epoch, others)
                epoch += 1
            if oldest is None:
                return None
            epoch, others = oldest
            # Keyed by the rank, so that peers with almost the same candidates choose differently.
            chunk = int(others[draw_array((self.key, epoch, rank), others).argmax()])
            self._claims.add((epoch, chunk))
            return epoch, chunk

    def _left(self, epoch: int) -> tuple[Bits, Bits]:
        """Return the undone chunks of the epoch, and those of them that this peer has not claimed."""
        place = epoch - self._complete
        # If this peer's own claims complete all epochs of the window, the next one is beyond it, and no chunk is done.
        undone = ~self._bits[place] if place < WINDOW else np.ones(self.chunks, np.bool_)
        free = undone.copy()
        free[[chunk for claimed, chunk in self._claims if claimed == epoch]] = False
        return undone, free

    def _collapse(self) -> None:
        complete = self._complete
        for bits in self._bits:
            if not bits.all():
                break
            complete += 1
        self._advance(complete)

    def _advance(self, complete: int) -> None:
        for _ in range(min(complete - self._complete, WINDOW)):
            self._bits = [*self._bits[1:], np.zeros(self.chunks, np.bool_)]
        if complete > self._complete:
            self._complete = complete
            self._claims = {claim for claim in self._claims if claim[0] >= complete}

    def _decode(self, data: bytes | bytearray | memoryview, longer: bool) -> tuple[int, list[Bits]]:
        """Return the counter and the bitmaps in the data, or raise `ProgressError`."""
        if len(data) < _HEAD.size:
            raise ProgressError(f"the progress is truncated: it has {len(data)} bytes instead of {_HEAD.size} or more")
        magic, batches, epochs, key, complete, count = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ProgressError(
                f"a progress begins with {_MAGIC!r}, not with {magic!r}: it is damaged, or of another version"
            )
        if (batches, key) != (self.batches, self.key):
            raise OtherDataError(
                f"the progress is of another data set, batch size or seed: it has {batches} batches and the key "
                f"{key:#x}, this run has {self.batches} and {self.key:#x}"
            )
        if epochs != self.epochs and not (longer and epochs < self.epochs):
            raise OtherDataError(f"the progress is of a run of {epochs} epochs, but this run has {self.epochs}")
        if count > WINDOW or complete + count > epochs:
            raise ProgressError(
                f"the progress has bitmaps of {count} epochs from epoch {complete} on, but at most {WINDOW} of the "
                f"{epochs} epochs can be open"
            )
        width = (self.chunks + 7) // 8
        if len(data) != _HEAD.size + count * width:
            raise ProgressError(f"the progress has {len(data)} bytes instead of {_HEAD.size + count * width}")
        body = np.frombuffer(data, np.uint8, offset=_HEAD.size).reshape(count, width)
        bits = np.unpackbits(body, axis=1, bitorder="little").astype(np.bool_)
        if bits[:, self.chunks :].any():
            raise ProgressError(f"the progress has chunks that do not exist: an epoch has {self.chunks}")
        return complete, list(bits[:, : self.chunks])


class _Stripes(NamedTuple):
    """The owner of each chunk of an epoch, under one view."""

    live: Ints
    #: The owner of each chunk, and the place of each chunk in its owner's order.
    owner: Ints
    order: npt.NDArray[np.uint64]
    #: All chunks, by owner and then in its order.
    by_owner: Ints
    keys: tuple[int, int]


@lru_cache(maxsize=16)
def _stripes(key: int, epoch: int, chunks: int, live: tuple[int, ...]) -> _Stripes:
    ranks = np.array(live, np.int64)
    index = np.arange(chunks, dtype=np.int64)
    # Each epoch begins at another rank, so that with fewer chunks than peers it is not always the same peers' turn. The
    # shift is a fraction, so that one rank more or less moves the stripes only a little.
    shift = draw(key, epoch) >> 32
    owner = ranks[((((index << 32) // chunks + shift) * len(ranks)) >> 32) % len(ranks)]
    order = draw_array((key, epoch), _pair(owner, index))
    return _Stripes(ranks, owner, order, np.lexsort((order, owner)), (key, epoch))


def _divide(stripes: _Stripes, undone: Bits, free: Bits, rank: int) -> tuple[int | None, Ints]:
    """Return the chunk that steps 1 and 2 give to the rank, if any, and the candidates of step 3 otherwise."""
    listed = stripes.by_owner[undone[stripes.by_owner]]
    owners = stripes.owner[listed]
    own = listed[(owners == rank) & free[listed]]
    if len(own):
        return int(own[0]), own
    first = np.ones(len(listed), np.bool_)
    first[1:] = owners[1:] != owners[:-1]
    rest = listed[~first & free[listed]]
    if not len(rest):
        return None, np.flatnonzero(free)
    rest = rest[np.argsort(stripes.order[rest])[::-1]]
    # The highest draw wins (rendezvous hashing): peers whose lists of idle ranks differ in one rank still agree on most
    # chunks.
    idle = np.union1d(np.setdiff1d(stripes.live, owners), [rank])
    some = rest[: max(1, _PAIRS // len(idle))]
    winner = idle[draw_array((*stripes.keys, 1), _pair(idle[:, None], some)).argmax(axis=0)]
    falling = some[winner == rank]
    return (int(falling[0]) if len(falling) else None), rest


def _pair(ranks: Ints, chunks: Ints) -> npt.NDArray[Any]:
    return ranks * CHUNK_LIMIT + chunks
