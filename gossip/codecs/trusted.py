"""The codecs that a peer decodes parcels of: its own run's, and the usual ones."""

from __future__ import annotations

from functools import lru_cache

from gossip import codecs
from gossip.codecs.codec import Codec
from gossip.codecs.pair_coding import PairCoding

__all__ = ["AUTO", "trusted"]

#: What users call the choice of a codec by measuring (`gossip.exchange.coding`). It is no codec itself.
AUTO = "auto"


@lru_cache(maxsize=64)
def trusted(text: str, own: str) -> Codec | None:
    """Return the codec that a parcel names, if this peer decodes it; otherwise None.

    It decodes the run's own codec, and every codec that carries mass with its default parameters. Parameters from the
    wire are not believed: the receiver would have to allocate a block of a billion values.

    Args:
        text: what the parcel says.
        own: what the run's settings say, which may be empty or `AUTO`.
    """
    usual = {codecs.spell(codecs.get(name)): codecs.get(name) for name in codecs.names()}
    pairs = PairCoding.parse(own)
    if pairs is not None:
        if text == pairs.spelled:
            return pairs.moved
    elif own not in ("", AUTO):
        codec = codecs.parse(own)
        usual[codecs.spell(codec)] = codec
    found = usual.get(text)
    return found if found is not None and found.carries_mass else None
