"""Peers as jobs of a real Slurm: slurmctld, munge, and three nodes with networks of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from slurm_cluster import SOON, Cluster, find_programs

SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"

# Longer than everything that a test waits for, so that what it started is ended by the test itself.
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    programs = find_programs(tmp_path_factory.mktemp("packages"))
    one = Cluster(programs, tmp_path_factory.mktemp("slurm"))
    yield one
    one.close()


def agree(paths: list[Path]) -> list[dict[str, object]]:
    """Check that peers have come to the same model, and return what they noted."""
    results = [json.loads(path.read_text()) for path in paths]
    for result in results:
        for name, (_, values) in results[0]["model"].items():
            if "running" not in name and "num_batches" not in name:
                assert np.allclose(values, result["model"][name][1], atol=1e-2)
    return results


def test_srun_needs_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    options = {"out": str(tmp_path / "result-{rank}"), "epochs": 1}
    command = ["srun", "-N3", "-n3", sys.executable, str(SCRIPT), json.dumps(options)]
    code, output = cluster.run(*command, cwd=tmp_path, seconds=2 * SOON, GOSSIP_START_TIMEOUT="100")
    assert code == 0, output
    assert "3 peers train together" in output
    results = agree([tmp_path / f"result-{rank}" for rank in range(3)])
    assert [(one["rank"], one["world_size"]) for one in results] == [(rank, 3) for rank in range(3)]
