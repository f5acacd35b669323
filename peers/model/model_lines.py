"""What a model is made of, line by line: told to the others only once models are found not to be the same.

A fingerprint is enough to see that two models differ, and is short enough to be told all the time. Where they differ
takes a line for each tensor, which is told for the moment between that discovery and the error that speaks of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ModelLines"]

#: Bytes of the lines that are told, compressed: some hundred tensors, and the news have other things to say.
_LIMIT = 4 << 10
#: Bytes that they may have when they are unpacked.
_UNPACKED_LIMIT = 1 << 20
#: Characters of a name that are shown.
_NAME = 120


class _Lines(NamedTuple):
    """The tensors of a model, name and description, as far as they were told, and how many there are."""

    told: dict[str, str]
    total: int

    @property
    def whole(self) -> bool:
        return len(self.told) == self.total


class ModelLines:
    """A topic of the bulletin: each peer tells its own lines, and remembers those of others."""

    def __init__(self, rank: int, lines: Sequence[tuple[str, str]]) -> None:
        """Prepare.

        Args:
            rank: of this peer.
            lines: a name and a description for each tensor, in their order.
        """
        self._rank = rank
        self._own = _Lines(dict(lines), len(lines))
        self._others: dict[int, _Lines] = {}
        self._encoded = b""

    def encode(self) -> bytes:
        """Return this peer's lines; of a very large model, as many of the first as there is room for."""
        if not self._encoded:
            lines = [f"{name}\t{description}" for name, description in self._own.told.items()]
            packed = zlib.compress("\n".join(lines).encode(), 9)
            while len(packed) > _LIMIT:
                lines = lines[: len(lines) * 3 // 4]
                packed = zlib.compress("\n".join(lines).encode(), 9)
            self._encoded = b"%d %d\n" % (self._rank, self._own.total) + packed
        return self._encoded

    def merge(self, data: bytes) -> bool:
        """Take in another's lines; they are new if nothing was heard of that peer, which may not have heard us."""
        head, _, packed = data.partition(b"\n")
        try:
            rank, total = (int(number) for number in head.split())
            text = zlib.decompressobj().decompress(packed, _UNPACKED_LIMIT).decode()
        except (ValueError, zlib.error) as error:
            raise ValueError(f"not the lines of a model: {error}") from None
        lines = (line.partition("\t") for line in text.split("\n") if line)
        known = rank in self._others
        self._others[rank] = _Lines({name: description for name, _, description in lines}, total)
        return not known

    def complaint(self, other: int) -> str:
        """Say how this peer's model differs from that of a rank that is known to have another one."""
        ranks = [other] if other in self._others else sorted(self._others)  # any that differs will do
        found = [(rank, where) for rank in ranks for where in self._differences(rank)]
        rank = found[0][0] if found else other
        more = f", and {len(found) - 1} more differ" if len(found) > 1 else ""
        return (
            f"rank {self._rank} and rank {rank} have different models: {found[0][1] if found else self._vague(rank)}"
            f"{more}. Names, shapes, kinds of number and frozen parameters must be the same everywhere"
        )

    def _differences(self, rank: int) -> list[str]:
        own, other, found = self._own.told, self._others[rank], []
        for name, here in own.items():
            there = other.told.get(name)
            if there is not None and there != here:
                found.append(f"{name:.{_NAME}} is {here} at rank {self._rank} and {there:.{_NAME}} at rank {rank}")
            elif there is None and other.whole:
                found.append(f"{name:.{_NAME}}, {here}, is not there at rank {rank}")
        return found + [
            f"{name:.{_NAME}}, {there:.{_NAME}}, is not there at rank {self._rank}"
            for name, there in other.told.items()
            if name not in own
        ]

    def _vague(self, rank: int) -> str:
        """Say what can be said without a line that differs."""
        other = self._others.get(rank)
        if other is None:
            return f"rank {rank} has not told in time in what"
        if other.total != self._own.total:
            return f"of {self._own.total} and {other.total} tensors"
        return "their tensors have another order" if other.whole else f"beyond the first {len(other.told)} tensors"
