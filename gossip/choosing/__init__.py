"""Which algorithm, codec and share suit a swarm: a cost model, as pure functions of what is known of it.

`recommend` predicts for each candidate the seconds of a step and what the step is worth, and takes the candidate that
gets furthest in a second. All peers that know the same recommend the same, so nobody has to coordinate. Decision 43 has
the assumptions.
"""

from gossip.choosing.forecasts import Candidate, Forecast, forecast
from gossip.choosing.recommending import ANY, Recommendation, recommend
from gossip.choosing.situations import Situation, parse_link, situation

__all__ = [
    "ANY",
    "Candidate",
    "Forecast",
    "Recommendation",
    "Situation",
    "forecast",
    "parse_link",
    "recommend",
    "situation",
]
