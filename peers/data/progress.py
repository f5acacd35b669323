"""Which chunks of which epoch the swarm has done, and which this peer does next. Nobody coordinates.

A chunk is a fixed number of consecutive batches of the epoch's permutation. `Progress` is a grow-only set of chunks:
peers send each other what they know, and to merge is to take the union, so news may be lost, doubled, late or out of
order. Epochs that are complete collapse to a counter, and bits exist only for the `WINDOW` epochs from there on.

**The claim rule.** The live ranks, as this peer believes, own a stripe of each epoch each, in an order drawn for
(epoch, owner). In the oldest incomplete epoch a peer takes

1. the first undone chunk of its own stripe;
2. else an undone chunk of another's stripe that falls to it: a keyed draw shares these out among the ranks that have
   nothing left of their own. From the end of the owner's order, and never the first undone: its owner is presumably
   at that;
3. else, when all that remains is presumably in somebody's hands, it looks into the next epoch, up to the window; and
   when that is exhausted too, or the run ends there, it does what remains, oldest epoch first and what step 2 gives
   to others before what owners are at: they may be dead or slow.

What this peer has claimed and not finished (a data loader claims ahead) it does not claim again, and counts as done
when it looks how far ahead it may go.

**Nobody is stuck.** `next_chunk` returns None only when every chunk of every epoch is done or claimed by this very
peer, and otherwise an undone chunk: step 3 refuses nothing. So each chunk that a peer finishes makes its set grow,
and a peer that hears from nobody, with any view, right or wrong, finishes alone after a bounded number of chunks.
Nothing waits for a message, a rank or a clock, and no step needs two peers to agree: a wrong view makes two peers do
the same chunk, which costs time and no data. (Each owner has an order of its own so that peers whose stripes overlap,
having different views, do not follow each other chunk by chunk.)

**The run does not end early.** A bit is set by `mark`, by a peer that has consumed the chunk, or copied by `merge`
from one that has; the counter moves over an epoch only when all its bits are set. By induction over messages, what
counts as done was consumed by somebody. A peer that dies takes along at most what it told nobody, which stays undone
elsewhere and is done again; one that comes back with old knowledge knows a subset of what is true. So every chunk is
done at least once.

**The window always suffices.** A claim is at most WINDOW - 1 epochs after the first that is not complete, own claims
counted as complete; these are finished in the order they were claimed, so by the time of its `mark` the counter has
passed them. And the union of two sets within their windows is within the window of the larger counter.
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

__all__ = ["CHUNK_LIMIT", "WINDOW", "Progress", "ProgressError"]

#: An epoch has at most this many chunks: 512 bytes of bits.
CHUNK_LIMIT = 4096
#: So many epochs from the oldest incomplete one may be worked on. Part of the wire format.
WINDOW = 4
#: magic, batches, epochs, key, complete epochs, how many bitmaps follow
_HEAD = struct.Struct("<4sQQQQB")
_MAGIC = b"gpr1"
#: So many (helper, chunk) pairs are looked at to divide the work among helpers: some milliseconds.
_PAIRS = 1 << 18

Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class ProgressError(GossipError, ValueError):
    """Progress that is malformed, of another data set, or impossible. Nothing was changed."""


class Progress:
    """The chunks that the swarm has done, as far as this peer knows. Safe to use from several threads."""

    def __init__(self, batches: int, epochs: int, key: int = 0) -> None:
        """Begin with nothing done.

        Args:
            batches: How many batches an epoch has.
            epochs: How many epochs the run has.
            key: What else peers must agree on (data set, seed, batch size), and the key of the draws.
        """
        if not 1 <= batches < 1 << 63 or not 1 <= epochs < 1 << 63:
            raise ProgressError(f"progress needs at least one batch and one epoch, not {batches} and {epochs}")
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
        """The oldest epoch that is not complete; the number of epochs when all are."""
        return self._complete

    @property
    def fraction(self) -> float:
        """How much of the whole run is done, from 0 to 1."""
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
        """Note that this peer has consumed the chunk; return whether that was news."""
        with self._lock:
            if not (0 <= epoch < min(self.epochs, self._complete + WINDOW) and 0 <= chunk < self.chunks):
                raise ProgressError(f"chunk {chunk} of epoch {epoch} cannot be done yet, or does not exist")
            self._claims.discard((epoch, chunk))
            place = epoch - self._complete
            if place < 0 or self._bits[place][chunk]:
                return False
            self._bits[place][chunk] = True
            self._collapse()
            return True

    def encode(self) -> bytes:
        """Return all that is known, for `merge` at another peer: 37 bytes, and up to 512 for each open epoch."""
        with self._lock:
            used = max((place + 1 for place, bits in enumerate(self._bits) if bits.any()), default=0)
            head = _HEAD.pack(_MAGIC, self.batches, self.epochs, self.key, self._complete, used)
            return head + b"".join(np.packbits(bits, bitorder="little").tobytes() for bits in self._bits[:used])

    def merge(self, data: bytes | bytearray | memoryview, *, longer: bool = False) -> bool:
        """Learn what another peer knows; return whether anything was new.

        Args:
            data: What the other peer's `encode` returned. It is not trusted.
            longer: Accept that the data speaks of a run of fewer epochs than this one: to go on with a checkpoint.

        Raises:
            ProgressError: The data is malformed, or of another data set or run. Nothing was changed.
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

    def claim(self, epoch: int, chunk: int) -> None:
        """Note that this peer is at the chunk, so that `next_chunk` does not return it."""
        with self._lock:
            self._claims.add((epoch, chunk))

    def release(self) -> None:
        """Forget what this peer has claimed and not done."""
        with self._lock:
            self._claims.clear()

    def next_chunk(self, rank: int, ranks: Iterable[int]) -> tuple[int, int] | None:
        """Claim a chunk by the rule above and return (epoch, chunk); None when nothing is left to claim, for good.

        Args:
            rank: This peer.
            ranks: The live ranks, as this peer believes; itself may be missing.
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
            # Keyed by the rank, so that peers with almost the same choice choose differently.
            chunk = int(others[draw_array((self.key, epoch, rank), others).argmax()])
            self._claims.add((epoch, chunk))
            return epoch, chunk

    def _left(self, epoch: int) -> tuple[Bits, Bits]:
        """Return which chunks of the epoch are undone, and which of these this peer has not claimed either."""
        place = epoch - self._complete
        # Own claims may complete, and thereby lead beyond, epochs of the window. Nobody has done anything there.
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
            raise ProgressError(f"progress of {len(data)} bytes: it is truncated")
        magic, batches, epochs, key, complete, count = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ProgressError(f"these bytes are no progress, or of another version: they begin with {magic!r}")
        if (batches, key) != (self.batches, self.key):
            raise ProgressError(
                f"progress of another data set, batch size or seed: {batches} batches under the key {key:#x}, "
                f"here {self.batches} under {self.key:#x}"
            )
        if epochs != self.epochs and not (longer and epochs < self.epochs):
            raise ProgressError(f"progress of a run of {epochs} epochs, this one has {self.epochs}")
        if count > WINDOW or complete + count > epochs:
            raise ProgressError(f"progress in {count} epochs from epoch {complete} of {epochs}: that cannot be")
        width = (self.chunks + 7) // 8
        if len(data) != _HEAD.size + count * width:
            raise ProgressError(f"progress of {len(data)} bytes, {_HEAD.size + count * width} were announced")
        body = np.frombuffer(data, np.uint8, offset=_HEAD.size).reshape(count, width)
        bits = np.unpackbits(body, axis=1, bitorder="little").astype(np.bool_)
        if bits[:, self.chunks :].any():
            raise ProgressError(f"progress of chunks that do not exist: an epoch has {self.chunks}")
        return complete, list(bits[:, : self.chunks])


class _Stripes(NamedTuple):
    """Who owns which chunks of an epoch, under one view."""

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
    # Each epoch begins somewhere else on the circle of ranks: with fewer chunks than peers it is not always the same
    # ones' turn. The shift is a fraction, so that one rank more or less moves the stripes only a little.
    shift = draw(key, epoch) >> 32
    owner = ranks[((((index << 32) // chunks + shift) * len(ranks)) >> 32) % len(ranks)]
    order = draw_array((key, epoch), _pair(owner, index))
    return _Stripes(ranks, owner, order, np.lexsort((order, owner)), (key, epoch))


def _divide(stripes: _Stripes, undone: Bits, free: Bits, rank: int) -> tuple[int | None, Ints]:
    """Return the chunk that is the rank's by steps 1 and 2, if any, and else what step 3 may choose from."""
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
    # Highest draw wins (rendezvous hashing): peers whose lists of idle ranks differ in one rank still agree on most
    # chunks.
    idle = np.union1d(np.setdiff1d(stripes.live, owners), [rank])
    some = rest[: max(1, _PAIRS // len(idle))]
    winner = idle[draw_array((*stripes.keys, 1), _pair(idle[:, None], some)).argmax(axis=0)]
    falling = some[winner == rank]
    return (int(falling[0]) if len(falling) else None), rest


def _pair(ranks: Ints, chunks: Ints) -> npt.NDArray[Any]:
    return ranks * CHUNK_LIMIT + chunks
