"""How long a part of a message may be, and how large a number in it."""

from __future__ import annotations

__all__ = [
    "ANNEX_BYTES",
    "CHUNK_LIMIT",
    "COUNT_LIMIT",
    "HEADER_LIMIT",
    "LACK_LIMIT",
    "NEWS_LIMIT",
    "PIECES_LIMIT",
    "SHOWN_LIMIT",
    "WEIGHT_LIMIT",
]

#: Bytes of a header, its checksums included.
HEADER_LIMIT = 256
#: Ranks, incarnations, turns, sequences and lengths are below it: a float holds each of them exactly.
COUNT_LIMIT = 2**53
#: No honest peer holds more weight: the cap on the weight that a peer accepts is far below.
WEIGHT_LIMIT = 1e6
#: Bytes of news, and of the other short bodies: `Roll`, `Look`, `Lack`.
NEWS_LIMIT = 16 << 10
#: Bytes of a picture of a swarm.
SHOWN_LIMIT = 1 << 20
#: The annex of a state goes in pieces of this size; the last may be shorter.
ANNEX_BYTES = 1 << 20
#: Pieces of a state, those of the annex included.
PIECES_LIMIT = 1 << 20
#: Bytes of a chunk.
CHUNK_LIMIT = 8 << 20
#: Chunks that one `Lack` asks for.
LACK_LIMIT = 1024
