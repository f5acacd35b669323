"""The books of the weights alone: values are trained meanwhile, so that their sum is nobody's to check."""

from __future__ import annotations

import numpy as np

from gossip.books.inbox import Pile
from gossip.core.core import Core
from gossip.events import Drawn
from gossip.simulation.accounts import Accounts, Amount
from gossip.values.layout import Layout
from gossip.wire.messages import Parcel

__all__ = ["WeightBooks"]


class WeightBooks(Accounts):
    """As `Accounts`, with the weight of a shard in the place of the shard's mass."""

    def __init__(self, shards: int) -> None:
        super().__init__(Layout.uniform(shards, shards, np.float64))

    def _held(self, core: Core) -> Amount:
        return np.array([sum(core.mass.weights), *core.mass.weights])

    def _add(self, amount: Amount, parcel: Parcel | Pile, sign: int) -> None:
        amount[0] += sign * parcel.weight
        amount[1 + parcel.shard] += sign * parcel.weight

    def _move(self, effect: Drawn) -> None:
        """Book nothing: it moves values, and no weight."""
