"""What a newcomer gets beside the values, compared before it is sent: only what differs travels.

The *annex* is memory that the layers above own: frozen weights, counters. It is a row of *blocks*, as many and as long
at every peer, since all have the same model. Its pieces are first the *list* of the hashes of all blocks, 16 bytes
each, and then the blocks themselves. A newcomer asks for the list, compares it with the hashes of its own memory, and
asks only for the blocks that differ. A block is written where it belongs as soon as it comes, so nobody holds more of
the annex than a few blocks, and a block that does not have the hash of the list is rejected.

Most of it never changes, but some may: counters, or weights that the user moves by hand. A donor therefore hashes its
memory anew when it is asked for the list and has trained since. A block that has changed since the first hash is given
as it is, and marked as such, for the next step may change it again: its hash need not be that of the list then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import xxhash

from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values
from gossip.wire.limits import ANNEX_BYTES

__all__ = ["Annex", "Blocks"]

_HASH_BYTES = 16
#: Hashes in a piece of the list.
_HASHES = ANNEX_BYTES // _HASH_BYTES


class Blocks(Protocol):
    """Memory in blocks. It is read and written only while the values are the core's."""

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each block, at most `ANNEX_BYTES`."""

    def read(self, block: int) -> Values:
        """Return a copy of a block, as bytes."""

    def write(self, block: int, content: Values) -> None:
        """Replace a block by these bytes."""


class Annex:
    """The blocks of one peer, their hashes, and those of its donors. Pieces are numbered from 0, the list first."""

    def __init__(self, blocks: Blocks | None = None, step: int = 0) -> None:
        """Hash the blocks, at a step; None: there are no blocks."""
        self._blocks = blocks
        self._sizes = [] if blocks is None else list(blocks.sizes)
        #: The number of pieces of the list.
        self.lists = -(-len(self._sizes) // _HASHES)
        #: The number of all pieces.
        self.pieces = self.lists + len(self._sizes)
        self._hashes = [_hash(blocks.read(block)) for block in range(len(self._sizes))] if blocks else []
        self._hashed_at = step
        self._changed: set[int] = set()
        #: The hashes of the donors, by piece of the list, while this peer adopts their annex.
        self._theirs: dict[int, list[bytes]] = {}

    def forget_donors(self) -> None:
        """Know nothing of donors: this peer has the whole annex, or is about to ask for it."""
        self._theirs = {}

    def read(self, piece: int, step: int) -> tuple[Values, bool]:
        """Return a piece as it is at a step, and whether the memory changes in training."""
        if piece >= self.lists:
            return self._current(piece - self.lists)
        if not self._theirs and step != self._hashed_at:
            for block in range(len(self._sizes)):
                self._current(block)
            self._hashed_at = step
        hashes = self._theirs.get(piece) or self._hashes[piece * _HASHES : (piece + 1) * _HASHES]
        return np.frombuffer(b"".join(hashes), np.uint8), False

    def take(self, piece: int, content: Values, changes: bool) -> list[int]:
        """Take a piece in; return the pieces that are not lacking any more, now that it is here.

        Raises:
            Rejected: it does not fit, or is not what the list says.
        """
        block = piece - self.lists
        size = self._sizes[block] if block >= 0 else _HASH_BYTES * len(self._listed(piece))
        if content.nbytes != size:
            raise Rejected(
                Reason.SHAPE, f"Piece: piece {piece} of the annex must have {size} bytes, not {content.nbytes}"
            )
        if block < 0:
            raw = content.tobytes()
            self._theirs[piece] = [raw[at : at + _HASH_BYTES] for at in range(0, size, _HASH_BYTES)]
            pairs = zip(self._listed(piece), self._theirs[piece], strict=True)
            return [piece, *(self.lists + block for block, theirs in pairs if theirs == self._hashes[block])]
        found = _hash(content)
        if changes:
            self._changed.add(block)
        elif found != self._theirs[block // _HASHES][block % _HASHES]:
            raise Rejected(Reason.CHECKSUM, f"Piece: block {block} of the annex is not what the list of hashes says")
        assert self._blocks is not None
        self._blocks.write(block, content)
        self._hashes[block] = found
        return [piece]

    def _listed(self, piece: int) -> range:
        """Return the blocks whose hashes are in a piece of the list."""
        return range(piece * _HASHES, min((piece + 1) * _HASHES, len(self._sizes)))

    def _current(self, block: int) -> tuple[Values, bool]:
        """Return a block as it is now, and whether it has changed since it was first hashed."""
        assert self._blocks is not None
        content = self._blocks.read(block)
        found = _hash(content)
        if found != self._hashes[block]:
            self._hashes[block] = found
            self._changed.add(block)
        return content, block in self._changed


def _hash(content: Values) -> bytes:
    return xxhash.xxh3_128_digest(content.data)
