"""How a newcomer gets the state: asked for piece by piece, from whoever has it.

A state is the values of all shards and an *annex*, bytes that mean something to the layers above. Whoever has a piece
can give it, so a newcomer spreads its asks over its donors, a few at a time, asks another one for what does not
come, and passes on what it has got while it still waits for the rest. A donor keeps on training: pieces are cut at its
step boundaries, when the values are the core's. Pieces are copies. They move no mass, and may be lost, doubled or late
without harm.

The annex comes first, and the values last: they go on being trained, and a newcomer that enters with old ones takes the
swarm back. How many pieces there are stands in every piece, so the first one is asked for alone, to find that out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gossip.books.mass import Mass
from gossip.view.view import View
from gossip.wire.limits import ANNEX_BYTES
from gossip.wire.messages import Address, Piece, Want

__all__ = ["Handover"]

#: Pieces that a newcomer asks for at a time: enough to keep a link busy, few enough to bound what a donor copies.
_AT_A_TIME = 8
#: Seconds until a piece that has not come is asked for again, at first and at most. A donor remembers what it was asked
#: for until its next step boundary, so asking it again costs nothing; asking another one may bring the piece twice.
_FIRST, _CEILING = 0.25, 16.0
#: Asks of one donor before it is another's turn: about 4 seconds.
_PATIENCE = 4
#: Asks that are kept, of all newcomers together; an honest one has `_AT_A_TIME`, and asks again.
_WANTED_LIMIT = 4096


@dataclass
class _Ask:
    attempts: int
    again_at: float


class Handover:
    """What this peer has of the state, what it still asks for, and what is asked of it."""

    def __init__(self, mass: Mass, turns: list[int]) -> None:
        """Hand over the mass, and where each shard is in the schedule."""
        self._mass = mass
        self._turns = turns
        self._shards = shards = mass.layout.shards
        self._got: set[int] = set()
        self._annex: dict[int, bytes] = {}
        #: How many pieces there are; at least as many as shards until somebody says more.
        self.pieces = shards
        #: Whether somebody has said so.
        self._counted = False
        self._donors: Sequence[int] = ()
        self._asked: dict[int, _Ask] = {}
        self._wanted: dict[tuple[Address, int], None] = {}

    def donate(self, annex: bytes) -> None:
        """Have the whole state, with this annex."""
        parts = [annex[start : start + ANNEX_BYTES] for start in range(0, len(annex), ANNEX_BYTES)]
        self._annex = {self._shards + index: part for index, part in enumerate(parts)}
        self.pieces = self._shards + len(parts)
        self._got = set(range(self.pieces))
        self._asked = {}

    def adopt(self, donors: Sequence[int]) -> None:
        """Have nothing, and ask these ranks for everything."""
        self._donors = list(donors)
        self._got, self._annex, self._asked = set(), {}, {}
        self._counted = False

    # What others want

    def want(self, newcomer: Address, piece: int) -> None:
        """Note that somebody wants a piece; twice counts once."""
        if len(self._wanted) < _WANTED_LIMIT:
            self._wanted[newcomer, piece] = None

    def given(self, me: Address) -> list[Piece]:
        """Take out what somebody wants and we have, to be called when the values are the core's.

        A shard that is not finite here is given to nobody; what there is nowhere is forgotten.
        """
        out = []
        for newcomer, piece in list(self._wanted):
            if piece in self._got:
                if piece >= self._shards:
                    values = np.frombuffer(self._annex[piece], np.uint8)
                    out.append(Piece(me, newcomer, piece, self.pieces, 0, values))
                elif (copy := self._mass.snapshot(piece)) is not None:
                    out.append(Piece(me, newcomer, piece, self.pieces, self._turns[piece], copy.values))
            elif not self.whole or piece < self.pieces:
                continue
            del self._wanted[newcomer, piece]
        return out

    # What we want

    @property
    def whole(self) -> bool:
        """Whether everything is there."""
        return bool(self._got) and len(self._got) == self.pieces

    @property
    def lacking(self) -> int:
        """How many pieces have not come yet."""
        return self.pieces - len(self._got)

    @property
    def _lacks_annex(self) -> bool:
        return len(self._annex) < self.pieces - self._shards

    @property
    def annex(self) -> bytes:
        """What came behind the shards."""
        return b"".join(self._annex[piece] for piece in sorted(self._annex))

    @property
    def deadline(self) -> float | None:
        """When a piece is to be asked for again."""
        return min([ask.again_at for ask in self._asked.values()], default=None)

    def asks(self, me: Address, view: View, now: float) -> list[Want]:
        """Return what is to be asked now, of those donors who are members."""
        donors = [rank for rank in self._donors if view.incarnation(rank) is not None]
        if not donors:  # none is a member, for now
            for ask in self._asked.values():
                ask.again_at = max(ask.again_at, now + _FIRST)
            return []
        return [Want(me, view.address(rank), piece) for rank, piece in self._due(donors, now)]

    def take(self, piece: Piece) -> bool:
        """Take a piece in, if it was asked for; return whether that made the state whole."""
        if self._asked.pop(piece.piece, None) is None:
            return False  # an old one must not overwrite what is ours
        self.pieces = max(self.pieces, piece.pieces)
        self._counted = True
        if piece.piece < self._shards and self._lacks_annex:
            return False  # it told how many there are; its values will be older than the rest
        self._got.add(piece.piece)
        if piece.piece >= self._shards:
            self._annex[piece.piece] = piece.values.tobytes()
        else:
            # The weight stays: the 1 of a newcomer, and what others have pushed to it in the meantime.
            self._mass.view(piece.piece)[:] = piece.values
            self._turns[piece.piece] = max(self._turns[piece.piece], piece.turn)
        return self.whole

    def _due(self, donors: Sequence[int], now: float) -> list[tuple[int, int]]:
        """Return whom of the donors to ask for which piece now, as (rank, piece)."""
        if self.whole:
            return []
        out = []
        for piece, ask in self._asked.items():
            if ask.again_at <= now:
                ask.attempts += 1
                # Longer and longer with one donor, and anew with the next; a whole tour in vain makes all slower.
                tour, asked = divmod(ask.attempts - 1, _PATIENCE * len(donors))
                ask.again_at = now + min(_CEILING, _FIRST * 2.0 ** (asked % _PATIENCE + min(tour, 8)))
                out.append((_donor(donors, piece, ask.attempts), piece))
        most = _AT_A_TIME if self._counted else 1
        for piece in range(self._shards, self.pieces) if self._lacks_annex else range(self._shards):
            if len(self._asked) >= most:
                break
            if piece not in self._got and piece not in self._asked:
                self._asked[piece] = _Ask(1, now + _FIRST)
                out.append((_donor(donors, piece, 1), piece))
        return out


def _donor(donors: Sequence[int], piece: int, attempts: int) -> int:
    return donors[(piece + (attempts - 1) // _PATIENCE) % len(donors)]
