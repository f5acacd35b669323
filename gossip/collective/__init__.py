"""Exchanges that need everybody, or a centre: the contrast to gossip, sans-I/O like the core.

`plans` says who sends which part of a vector to whom, `attempt` carries one such plan out, `coded` averages through a
codec, `reduction` makes one average after the other of either, among whoever is there, and `server` is the exchange
with a centre.
"""

from gossip.collective.interface import Collective
from gossip.collective.plans import PLANS, Plan, choose, plan
from gossip.collective.reduction import Reduction
from gossip.collective.server import ParameterServer

__all__ = ["PLANS", "Collective", "ParameterServer", "Plan", "Reduction", "choose", "plan"]
