"""What a candidate would do in a situation: the seconds of a step, what it is worth, and so the progress per second.

With S bytes of a model in the codec, R bytes per second, a round trip of r, c seconds of computing and s the share:

    sgp     c + s S / R + r / 2             the parcels of the turn are waited for
    osgp    max(c, (s S / R + r / 2) / 0.8) sending overlaps with computing, if there is a little room to spare
    outer   c + (2 (n-1)/n S / R + r lg n) / h + the wait for the slowest peer

A slow peer costs gossip the steps that it does not make, for which nobody waits. With `outer` the others wait for it,
though not for longer than slack times the round and one step of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gossip import codecs, policies
from gossip.choosing.situations import Situation
from gossip.choosing.worths import worth
from gossip.policies.policy import Policy

__all__ = ["CANDIDATES", "Candidate", "Forecast", "forecast"]

#: Nanoseconds of CPU for a value, encoded and decoded once (`python -m benchmarks.codecs`, docs/results/codecs.md).
#: That of int2 was not measured; it is int4's.
_CODING = {"none": 0.32, "bf16": 1.16, "int8": 1.83, "int4": 2.99, "int2": 2.99}
#: The part of a step's computing behind which sending is hidden: as `gossip.exchange.headroom` has it.
_ROOM = 0.8
#: Values by which the size of a codec's payload is found: many, so that rests of a block do not count.
_MANY = 1 << 20
_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its parameters, a codec, and the share of the shards that goes with a step."""

    algorithm: str
    compress: str = "none"
    share: float = 1.0

    def __str__(self) -> str:
        part = "" if self.share == 1 else f", {100 * self.share:.3g}% of the shards"
        return f"{self.algorithm} with {self.compress}{part}"


@dataclass(frozen=True)
class Forecast:
    """What is predicted for a candidate."""

    candidate: Candidate
    #: Seconds of a step, and the seconds of sending that belong to it.
    seconds: float
    sending: float
    #: Bytes that a peer sends in a step.
    size: float
    #: What a step is worth, in steps of all-reduce.
    worth: float

    @property
    def progress(self) -> float:
        """Steps of all-reduce that a second is worth."""
        return self.worth / self.seconds


#: From the heaviest: of two that are equally good, the first is taken.
CANDIDATES = (
    *(Candidate(name, codec) for codec in ("none", "bf16", "int8") for name in ("sgp", "osgp")),
    *(Candidate(name, "int8", share) for share in (1 / 2, 1 / 4, 1 / 8, 1 / 16) for name in ("sgp", "osgp")),
    *(Candidate(f"outer:h={h}", "int2") for h in (8, 16, 32)),
)


def forecast(candidate: Candidate, known: Situation) -> Forecast:
    """Return what a candidate is predicted to do."""
    policy = policies.parse(candidate.algorithm)
    name = candidate.compress.partition(":")[0]
    model = codecs.parse(candidate.compress).size(_MANY, _FLOAT) / _MANY * known.parameters * candidate.share
    coding = _CODING.get(name, _CODING["int4"]) * 1e-9 * known.parameters * candidate.share
    if known.peers == 1:
        return Forecast(candidate, known.compute, 0.0, 0.0, 1.0)
    if policy.collective:
        size = 2 * (known.peers - 1) / known.peers * model
        sending = (size / known.rate + known.round_trip * math.ceil(math.log2(known.peers))) / policy.every
        seconds = known.compute + sending + coding / policy.every + _waiting(policy, known)
        size /= policy.every
    else:
        size, sending = model, model / known.rate + known.round_trip / 2
        seconds = known.compute + coding + sending if policy.lag == 0 else max(known.compute + coding, sending / _ROOM)
    made = (known.peers - 1 + 1 / known.slowest) / known.peers
    return Forecast(candidate, seconds, sending, size, made * _worth(candidate, policy, known.peers))


def _worth(candidate: Candidate, policy: Policy, peers: int) -> float:
    return worth(policy.name, policy.every if policy.collective else candidate.share, peers)


def _waiting(policy: Policy, known: Situation) -> float:
    """Return the seconds of a step in which the others wait for the slowest peer of a round."""
    behind = (known.slowest - 1) * known.compute
    return min(behind, policy.slack * known.compute + known.slowest * known.compute / policy.every)
