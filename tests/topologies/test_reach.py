"""How many peers an average takes in, against dense matrices and what is known of some graphs."""

from __future__ import annotations

import numpy as np
import pytest

from topologies import parse
from topologies.analysis import mixing_matrix
from topologies.reach import reach


@pytest.mark.parametrize("name", ["one-peer-exponential", "ring", "base", "star", "random-matching"])
@pytest.mark.parametrize("n", [2, 5, 16])
def test_it_is_that_of_the_dense_product(name: str, n: int) -> None:
    schedule = parse(name, n, seed=3)
    product = np.eye(n)
    for turn in range(6):
        product = np.asarray(mixing_matrix(schedule, turn)) @ product
    sources = range(0, n, -(-n // 4))
    expected = np.mean([1 / np.square(product[:, source]).sum() for source in sources])
    assert reach(schedule, 6) == pytest.approx(expected, rel=1e-12)


def test_known_ones() -> None:
    assert reach(parse("one-peer-exponential", 16), 4) == pytest.approx(16)
    assert reach(parse("one-peer-exponential", 16), 0) == 1
    assert reach(parse("complete", 7), 1) == pytest.approx(7)
    assert 5 < reach(parse("ring", 16), 10) < 6.5
    assert reach(parse("complete", 1), 3) == 1
