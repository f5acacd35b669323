"""Exchanges that need everybody, or a centre: the contrast to gossip, sans-I/O like the core.

`plans` says who sends which part of a vector to whom, `attempt` carries one such plan out, `reduction` makes one
average after the other of it, among whoever is there, and `server` is the exchange with a centre.
"""

from gossip.collective.exchange import Exchange
from gossip.collective.plans import PLANS, Plan, choose, plan
from gossip.collective.reduction import Reduction
from gossip.collective.server import ParameterServer

__all__ = ["PLANS", "Exchange", "ParameterServer", "Plan", "Reduction", "choose", "plan"]
