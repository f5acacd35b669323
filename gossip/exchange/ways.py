"""Which way of exchanging goes with a policy and a coding."""

from __future__ import annotations

from gossip.exchange.difference_exchange import DifferenceExchange
from gossip.exchange.exchange import Exchange
from gossip.exchange.outgoing import Outgoing
from gossip.exchange.pair_exchange import PairExchange
from gossip.exchange.pull import Pulls
from gossip.exchange.push import Push

__all__ = ["way_of"]


def way_of(outgoing: Outgoing) -> Exchange:
    """Return the way of exchanging that the policy and the codec of a peer ask for."""
    coding = outgoing.coding
    if outgoing.state.policy.pulls:
        return Pulls(outgoing)
    if coding.pairs is not None:
        return PairExchange(outgoing, coding.pairs)
    if coding.differences is not None:
        return DifferenceExchange(outgoing, coding.differences)
    return Push(outgoing)
