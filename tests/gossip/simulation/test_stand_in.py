"""One of eight dies, the topology does not exist for seven, and the others go on agreeing."""

from __future__ import annotations

import pytest

from gossip.faults import parse_incident
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate


@pytest.mark.parametrize(
    ("algorithm", "topology", "compress"),
    [
        ("choco", "hypercube", "int8"),
        ("choco", "hypercube", "topk:share=10%"),
        ("local:h=2,differences=true", "hypercube", "sign"),
        ("slowmo:h=2,differences=true", "hypercube", "none"),
        ("ssd:k=2,warmup=2,differences=true", "hypercube", "none"),
        ("noloco:h=2", "one-peer-hypercube", "none"),
        ("dpsgd", "hypercube", "none"),
        ("adpsgd", "one-peer-hypercube", "none"),
        ("sgp", "hypercube", "none"),
    ],
)
def test_the_survivors_of_a_cube_go_on_agreeing(algorithm: str, topology: str, compress: str) -> None:
    """The death is early, so that there is much left to agree on."""
    result = simulate(
        Scenario(
            peers=8,
            steps=200,
            algorithm=algorithm,
            topology=topology,
            size=40,
            kills=(parse_incident("3@3"),),
            detect=1.0,
            settings=Settings(compress=compress),
        )
    )
    early, late = result.curve[len(result.curve) // 4][1], result.disagreement
    assert late < 0.3 * early or late < 1e-12
