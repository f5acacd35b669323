"""The tensors of a model, one line each, which peers exchange only once they find that their models differ.

A fingerprint is enough to see that two models differ, and it is short enough to be sent all the time. To say where they
differ takes a line for each tensor. Peers send these lines between that discovery and the error that reports it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ModelLines"]

#: The most bytes of the lines that are sent, compressed: some hundred tensors. The news have other topics as well.
_LIMIT = 4 << 10
#: The most bytes of the lines when they are decompressed.
_UNPACKED_LIMIT = 1 << 20
#: Characters of a name that are shown.
_NAME = 120


class _TensorLines(NamedTuple):
    """The names and descriptions of a model's tensors, as far as they were sent, and the number of all tensors."""

    told: dict[str, str]
    total: int

    @property
    def whole(self) -> bool:
        return len(self.told) == self.total


class ModelLines:
    """A topic of the bulletin: each peer sends its own lines, and keeps those of others."""

    def __init__(self, rank: int, lines: Sequence[tuple[str, str]]) -> None:
        """Prepare.

        Args:
            rank: the rank of this peer.
            lines: a name and a description for each tensor, in order.
        """
        self._rank = rank
        self._own = _TensorLines(dict(lines), len(lines))
        self._others: dict[int, _TensorLines] = {}
        self._encoded = b""

    def encode(self) -> bytes:
        """Return this peer's lines; for a very large model, the first ones that fit."""
        if not self._encoded:
            lines = [f"{name}\t{description}" for name, description in self._own.told.items()]
            packed = zlib.compress("\n".join(lines).encode(), 9)
            while len(packed) > _LIMIT:
                lines = lines[: len(lines) * 3 // 4]
                packed = zlib.compress("\n".join(lines).encode(), 9)
            self._encoded = b"%d %d\n" % (self._rank, self._own.total) + packed
        return self._encoded

    def merge(self, data: bytes) -> bool:
        """Take in another peer's lines; return whether they are its first. That peer may not have this peer's lines."""
        head, _, packed = data.partition(b"\n")
        try:
            rank, total = (int(number) for number in head.split())
            text = zlib.decompressobj().decompress(packed, _UNPACKED_LIMIT).decode()
        except (ValueError, zlib.error) as error:
            raise ValueError(f"these bytes are not the lines of a model: {error}") from None
        lines = (line.partition("\t") for line in text.split("\n") if line)
        known = rank in self._others
        self._others[rank] = _TensorLines({name: description for name, _, description in lines}, total)
        return not known

    def complaint(self, other: int) -> str:
        """Return the message of how this peer's model differs from the model of another rank."""
        ranks = [other] if other in self._others else sorted(self._others)  # any rank that differs is enough
        found = [(rank, where) for rank in ranks for where in self._differences(rank)]
        rank = found[0][0] if found else other
        more = f", and {len(found) - 1} more differ" if len(found) > 1 else ""
        return (
            f"rank {self._rank} and rank {rank} have different models: {found[0][1] if found else self._vague(rank)}"
            f"{more}. Names, shapes, dtypes, frozen parameters and the kind of optimizer must be the same at all "
            "peers"
        )

    def _differences(self, rank: int) -> list[str]:
        own, other, found = self._own.told, self._others[rank], []
        for name, here in own.items():
            there = other.told.get(name)
            if there is not None and there != here:
                found.append(f"{name:.{_NAME}} is {here} at rank {self._rank} and {there:.{_NAME}} at rank {rank}")
            elif there is None and other.whole:
                found.append(f"{name:.{_NAME}}, {here}, does not exist at rank {rank}")
        return found + [
            f"{name:.{_NAME}}, {there:.{_NAME}}, does not exist at rank {self._rank}"
            for name, there in other.told.items()
            if name not in own
        ]

    def _vague(self, rank: int) -> str:
        """Return a description without a line that differs."""
        other = self._others.get(rank)
        if other is None:
            return f"rank {rank} did not send its tensors in time"
        if other.total != self._own.total:
            return f"they have {self._own.total} and {other.total} tensors"
        return "the order of their tensors differs" if other.whole else f"they differ after tensor {len(other.told)}"
