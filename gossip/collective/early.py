"""Chunks that arrived before their round, within a bound of memory: a peer asks again for a missing chunk."""

from __future__ import annotations

from collections.abc import Iterator

from gossip.wire.messages import Chunk

__all__ = ["Early"]


class Early:
    """Keeps chunks until this peer reaches their round."""

    def __init__(self, limit: int) -> None:
        """Keep at most ``limit`` bytes."""
        self._limit = limit
        self._chunks: dict[tuple[int, int, int, int], Chunk] = {}

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk, if there is room."""
        if sum(one.values.nbytes for one in self._chunks.values()) + chunk.values.nbytes <= self._limit:
            self._chunks[chunk.origin.rank, chunk.round, chunk.step, chunk.index] = chunk

    def has(self, number: int) -> bool:
        """Whether there are chunks of a round."""
        return any(chunk.round == number for chunk in self._chunks.values())

    def due(self, number: int) -> Iterator[Chunk]:
        """Take out the chunks of a round, and drop older ones."""
        chunks, self._chunks = self._chunks, {}
        for key, chunk in chunks.items():
            if chunk.round > number:
                self._chunks[key] = chunk
            elif chunk.round == number:
                yield chunk

    def clear(self) -> None:
        """Drop everything."""
        self._chunks.clear()
