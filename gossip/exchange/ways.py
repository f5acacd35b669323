"""Which way of exchanging goes with a policy and a coding."""

from __future__ import annotations

from gossip.exchange.difference_exchange import DifferenceExchange
from gossip.exchange.exchange import Exchange
from gossip.exchange.pair_exchange import PairExchange
from gossip.exchange.pull import Pulls
from gossip.exchange.push import Push
from gossip.exchange.sender import Sender

__all__ = ["way_of"]


def way_of(sender: Sender) -> Exchange:
    """Return the way of exchanging that the policy and the codec of a peer ask for."""
    coding = sender.coding
    if sender.state.policy.pulls:
        return Pulls(sender)
    if coding.pairs is not None:
        return PairExchange(sender, coding.pairs)
    if coding.differences is not None:
        return DifferenceExchange(sender, coding.differences)
    return Push(sender)
