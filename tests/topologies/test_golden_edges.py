"""The edges that peers compute never change unnoticed; golden_edges.py says how to change them on purpose."""

from __future__ import annotations

import json

import pytest
from golden_edges import FILE, SIZES, TEXTS, compute
from topology_cases import exists

GOLDEN = json.loads(FILE.read_text())


@pytest.mark.parametrize("text", TEXTS)
def test_the_edges_are_those_of_the_golden_file(text: str) -> None:
    assert compute(text) == GOLDEN[text]


def test_the_golden_file_holds_what_is_asked_for_and_no_more() -> None:
    assert list(GOLDEN) == TEXTS
    assert all(list(sizes) == [str(n) for n in SIZES] for sizes in GOLDEN.values())


def test_the_golden_file_has_a_digest_wherever_the_topology_exists() -> None:
    refused = {(text, int(n)): d for text, sizes in GOLDEN.items() for n, d in sizes.items() if len(d) != 64}
    expected = {(text, n): "UnsupportedSize" for text in TEXTS for n in SIZES if not exists(text, n)}
    expected["random-regular:d=3", 33] = "BadParameter"  # an odd number of peers with an odd number of links
    assert refused == expected


def test_different_topologies_have_different_digests() -> None:
    """A hash that saw none of the edges would be equal everywhere. (At n = 33 all of these differ.)"""
    digests = [GOLDEN[text]["33"] for text in TEXTS if len(GOLDEN[text]["33"]) == 64]
    assert len(set(digests)) == len(digests)
