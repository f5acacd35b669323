"""Exchanges that need all peers, or a centre: references for gossip, sans-I/O like the core.

`reduction_plans` defines which place sends which part of a vector to which other place. `attempt` carries out one such
plan. `coded` averages through a codec. `reduction` computes one average after the other, by a plan or a codec, among
the present members. `server` is the exchange with a centre.
"""

from gossip.collective.interface import Collective
from gossip.collective.reduction import Reduction
from gossip.collective.reduction_plans import PLANS, ReductionPlan, choose, plan
from gossip.collective.server import ParameterServer

__all__ = ["PLANS", "Collective", "ParameterServer", "Reduction", "ReductionPlan", "choose", "plan"]
