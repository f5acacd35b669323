"""The format of sparse pair exchanges: ``topk-pair:share=1%,values=int8,told=bf16``.

This is not a codec of parcels. Its payloads are not mass that a receiver could hold, but an offer and the move that
answers it (`gossip.exchange.sparse_pairs`). Both are payloads of `gossip.codecs.topk` with exactly the share of a
shard's values:

    told      the values themselves, in the codec ``told``. Their rounding error is an error of the difference, so it
              must be small compared with each value. int8 rounds relative to the largest value of a block and leaves
              replicas apart by 1/250 of it; bf16 leaves them apart by 1/500 of each value; none does not round.
    moved     the amount that moves from one peer to the other, in the codec ``values``. Its rounding error is moved in
              a later exchange, so int8 is enough.

``told`` cannot be fp16: its range ends at 65504, and an offer of a larger value would pull the replicas apart.
"""

from __future__ import annotations

from gossip.codecs.topk import TopK
from gossip.errors import SettingsError
from topologies.spec import convert, parameters_of, split
from topologies.topology_errors import BadParameter

__all__ = ["PAIRS", "PairCoding"]

#: The name on the command line.
PAIRS = "topk-pair"
_TOLD = ("none", "bf16", "int8")


class _Some(TopK):
    """The codec topk, under the name that the user gave."""

    name = PAIRS


class PairCoding:
    """The two codecs of sparse pairs, and their name."""

    def __init__(self, *, share: float | str = "1%", values: str = "int8", told: str = "bf16") -> None:
        if told not in _TOLD:
            raise SettingsError(f"{PAIRS}: told must be one of {', '.join(_TOLD)}, not {told!r}")
        self.moved = _Some(share=share, values=values)
        self.told = _Some(share=self.moved.share, values=told)
        #: The text from which `parse` makes this coding, with all parameters. Equal texts mean equal payloads.
        self.spelled = f"{PAIRS}:share={self.moved.share},values={values},told={told}"

    @classmethod
    def parse(cls, text: str) -> PairCoding | None:
        """Return the coding for the text ``topk-pair[:key=value,...]``, or None for a text of another kind."""
        try:
            name, parameters = split(text)
            if name != PAIRS:
                return None
            return cls(**convert(PAIRS, parameters_of(PAIRS, cls.__init__), parameters))
        except BadParameter as error:
            raise SettingsError(str(error)) from None
