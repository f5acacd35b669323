"""How the exchanges of sparse pairs are written: ``topk-pair:share=1%,values=int8,told=bf16``.

Not a codec of parcels: what it writes is no mass that a receiver could hold, but an offer and the move that answers it
(`gossip.exchange.sparse_pairs`). Both are payloads of `gossip.codecs.topk` with exactly the share of a shard's values:

    told      the values themselves, in the codec ``told``. What rounding takes off them is an error of the difference,
              so it must be small against each value: int8, which rounds by the largest of a block, leaves replicas
              apart by 1/250 of that, bf16 by 1/500 of each value, none by nothing.
    moved     what is moved from one end to the other, in the codec ``values``. What rounding takes off it is
              moved some other time, so int8 is enough.

fp16 is not offered for ``told``: it ends at 65504, and what is said of a larger value would pull it away, not together.
"""

from __future__ import annotations

from gossip.codecs.topk import TopK
from gossip.errors import SettingsError
from topologies.errors import BadParameter
from topologies.spec import convert, parameters_of, split

__all__ = ["PAIRS", "PairCoding"]

#: What users call it.
PAIRS = "topk-pair"
_TOLD = ("none", "bf16", "int8")


class _Some(TopK):
    """As topk, under the name that the user gave."""

    name = PAIRS


class PairCoding:
    """The two codecs of sparse pairs, and what they are called."""

    def __init__(self, *, share: float | str = "1%", values: str = "int8", told: str = "bf16") -> None:
        if told not in _TOLD:
            raise SettingsError(f"{PAIRS}: told is what values are offered as: {', '.join(_TOLD)}; not {told!r}")
        self.moved = _Some(share=share, values=values)
        self.told = _Some(share=self.moved.share, values=told)
        #: The text that `parse` makes this of, with all parameters: equal texts, equal payloads.
        self.spelled = f"{PAIRS}:share={self.moved.share},values={values},told={told}"

    @classmethod
    def parse(cls, text: str) -> PairCoding | None:
        """Return what the command line calls ``topk-pair[:key=value,...]``; None: that is something else."""
        try:
            name, parameters = split(text)
            if name != PAIRS:
                return None
            return cls(**convert(PAIRS, parameters_of(PAIRS, cls.__init__), parameters))
        except BadParameter as error:
            raise SettingsError(str(error)) from None
