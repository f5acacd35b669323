"""The protocol under simulated time: the same core and codec as in real runs, with a heap of events as the network.

`Scenario` describes a run, and `simulate` runs it and returns a `Result`. The same scenario and seed give the same
trace.
"""

from gossip.simulation.result import Result
from gossip.simulation.scenario import Scenario
from gossip.simulation.swarm import simulate

__all__ = ["Result", "Scenario", "simulate"]
