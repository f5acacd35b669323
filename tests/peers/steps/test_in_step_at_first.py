"""``warmup``: methods that do not wait are synchronous at first, to the last digits (decision 30)."""

from __future__ import annotations

import numpy as np
import pytest
from lockstep import RATE, assert_same, gradients, mixing, run, start


def averaged(topology: str, steps: int) -> np.ndarray:
    """Return each step's values: a step of SGD and a turn of mixing."""
    z, trace = start(), []
    for turn in range(steps):
        z = mixing(topology, turn) @ (z - RATE * gradients(z))
        trace.append(z)
    return np.stack(trace)


@pytest.mark.parametrize(
    ("algorithm", "topology", "steps"),
    [
        ("osgp:warmup=50", "one-peer-exponential", 50),
        ("osgp:tau=3,warmup=50", "ring", 12),
        ("adpsgd:warmup=50", "one-peer-hypercube", 50),
        ("adpsgd:warmup=50", "random-matching", 12),
    ],
)
def test_while_it_warms_up_it_is_its_synchronous_kin(algorithm: str, topology: str, steps: int) -> None:
    assert_same(run(algorithm, topology, steps=steps), averaged(topology, steps))


@pytest.mark.parametrize("algorithm", ["osgp:tau=1", "adpsgd"])
def test_with_the_end_of_it_waiting_ends(algorithm: str) -> None:
    """The first steps are the same, and what comes then is not: who is first goes on without the other's part."""
    name, _, options = algorithm.partition(":")
    told = f"{name}:{options},warmup=5" if options else f"{name}:warmup=5"
    expected = averaged("one-peer-hypercube", 5)
    found = run(told, "one-peer-hypercube", steps=15)
    assert_same(found[:5], expected)
    with pytest.raises(AssertionError):
        assert_same(found, averaged("one-peer-hypercube", 15))
