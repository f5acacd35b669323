"""The protocol under simulated time: the very same core and codec, a network made of a heap.

`Scenario` says what happens, `simulate` runs it and returns a `Result`. Same scenario, same seed, same trace.
"""

from gossip.simulation.result import Result
from gossip.simulation.scenario import Scenario
from gossip.simulation.swarm import simulate

__all__ = ["Result", "Scenario", "simulate"]
