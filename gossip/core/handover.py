"""How a newcomer gets the state: asked for piece by piece, from whoever has it.

A state is the values of all shards and an *annex*, of which only what differs is sent (`gossip.core.annex`). Whoever
has a piece can give it, so a newcomer spreads its asks over its donors, a few at a time, asks another one for what does
not come, and passes on what it has got while it still waits for the rest. A donor keeps on training: pieces are cut at
its step boundaries, when the values are the core's. Pieces are copies. They move no mass, and may be lost, doubled or
late without harm.

The annex comes first, and the values last: they go on being trained, and a newcomer that enters with old ones takes the
swarm back. How many pieces there are stands in every piece. The first one is asked for alone, to find out whether the
donor has the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossip.books.mass import Mass
from gossip.core.annex import Annex
from gossip.errors import Reason, Rejected
from gossip.view.view import View
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

    def __init__(self, mass: Mass, turns: list[int], annex: Annex) -> None:
        """Hand over the mass, where each shard is in the schedule, and the annex."""
        self._mass = mass
        self._turns = turns
        self._annex = annex
        self._shards = mass.layout.shards
        #: How many pieces there are.
        self.pieces = self._shards + annex.pieces
        #: The pieces that have not come yet, in the order in which they are asked for: a part when the one before is
        #: complete. They are the list of the annex, its blocks, and the shards.
        self._parts: list[dict[int, None]] = []
        self._lack_all()
        #: Whether a donor has answered.
        self._answered = False
        self._donors: Sequence[int] = ()
        self._asked: dict[int, _Ask] = {}
        self._wanted: dict[tuple[Address, int], None] = {}

    def donate(self) -> None:
        """Have the whole state."""
        self._parts = []
        self._annex.forget_donors()
        self._asked = {}

    def adopt(self, donors: Sequence[int]) -> None:
        """Have nothing, and ask these ranks for everything."""
        self._donors = list(donors)
        self._lack_all()
        self._annex.forget_donors()
        self._asked = {}
        self._answered = False

    def _lack_all(self) -> None:
        bounds = [self._shards, self._shards + self._annex.lists, self.pieces]
        ranges = [range(*bounds[:2]), range(*bounds[1:]), range(self._shards)]
        self._parts = [dict.fromkeys(one) for one in ranges]

    # What others want

    def want(self, newcomer: Address, piece: int) -> None:
        """Note that somebody wants a piece; twice counts once."""
        if len(self._wanted) < _WANTED_LIMIT:
            self._wanted[newcomer, piece] = None

    def given(self, me: Address, step: int) -> list[Piece]:
        """Take out what somebody wants and we have. For a step boundary, when the values are the core's.

        A shard that is not finite here is given to nobody; what there is nowhere is forgotten.
        """
        out = []
        for newcomer, piece in list(self._wanted):
            if self._has(piece):
                if piece >= self._shards:
                    values, changes = self._annex.read(piece - self._shards, step)
                    out.append(Piece(me, newcomer, piece, self.pieces, int(changes), values))
                elif (copy := self._mass.snapshot(piece)) is not None:
                    out.append(Piece(me, newcomer, piece, self.pieces, self._turns[piece], copy.values))
            elif piece < self.pieces:
                continue
            del self._wanted[newcomer, piece]
        return out

    # What we want

    @property
    def whole(self) -> bool:
        """Whether everything is there."""
        return not any(self._parts)

    @property
    def lacking(self) -> int:
        """How many pieces have not come yet."""
        return sum(map(len, self._parts))

    def _has(self, piece: int) -> bool:
        return piece < self.pieces and not any(piece in part for part in self._parts)

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
        """Take a piece in, if it was asked for; return whether that made the state whole.

        Raises:
            Rejected: it is not a piece of this model's state. It is asked for again, and of another donor at last.
        """
        number = piece.piece
        if number not in self._asked:
            return False  # an old one must not overwrite what is ours
        if piece.pieces != self.pieces:
            raise Rejected(
                Reason.SHAPE,
                f"Piece: pieces must be {self.pieces}, as many as the state has here, not {piece.pieces}",
                piece.origin.rank,
            )
        came = [number]
        if number >= self._shards:
            try:
                taken = self._annex.take(number - self._shards, piece.values, changes=piece.turn > 0)
            except Rejected as error:
                raise Rejected(error.reason, error.detail, piece.origin.rank) from None
            came = [self._shards + one for one in taken]
        else:
            # The weight stays: the 1 of a newcomer, and what others have pushed to it in the meantime.
            self._mass.view(number)[:] = piece.values
            self._turns[number] = max(self._turns[number], piece.turn)
        self._answered = True
        del self._asked[number]
        for part in self._parts:
            for one in came:
                part.pop(one, None)
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
        most = _AT_A_TIME if self._answered else 1
        for piece in next(part for part in self._parts if part):
            if len(self._asked) >= most:
                break
            if piece not in self._asked:
                self._asked[piece] = _Ask(1, now + _FIRST)
                out.append((_donor(donors, piece, 1), piece))
        return out


def _donor(donors: Sequence[int], piece: int, attempts: int) -> int:
    return donors[(piece + (attempts - 1) // _PATIENCE) % len(donors)]
