"""What Kubernetes promises a pod, and what the manifests rely on: three pods, one of which moves to another node."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pods import Pods
from proxies import until

from gossip.net.shared_secret import write_secret

SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"
SOON = 200.0
MOVED = 1
#: While a pod starts, the others leave it the cores.
SLOWLY = [f"{index}=+100ms" for index in range(3)]

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def pods(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pods]:
    one = Pods(request.param, tmp_path, 4)
    yield one
    one.close()


def parameters(model: dict[str, Any]) -> Any:
    return np.concatenate([np.ravel(v) for k, (_, v) in sorted(model.items()) if "running" not in k and "num" not in k])


@pytest.mark.parametrize(
    ("pods", "number"),
    [
        ("indexed-job.yaml", signal.SIGTERM),
        pytest.param("indexed-job.yaml", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("statefulset.yaml", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("statefulset.yaml", signal.SIGKILL, marks=pytest.mark.slow),
    ],
    indirect=["pods"],
)
def test_a_pod_that_moves_to_another_node_comes_back(pods: Pods, tmp_path: Path, number: signal.Signals) -> None:
    write_secret(tmp_path / "secret" / "secret")
    places = {"/secret": str(tmp_path / "secret"), "/run-dir": str(tmp_path / "run")}
    stop = tmp_path / "stop"

    def start(index: int, node: int) -> Any:
        files = {"announce": str(tmp_path / f"trains-{index}"), "out": str(tmp_path / f"result-{index}")}
        options = {"epochs": 1_000_000, "stop_file": str(stop), "stragglers": SLOWLY, **files}
        return pods.start(f"train-{index}", node, pods.environment(index, places), str(SCRIPT), json.dumps(options))

    def trains(index: int) -> None:
        def sign() -> bool:
            assert running[index].poll() is None, pods.log(f"train-{index}")
            return (tmp_path / f"trains-{index}").exists()

        until(sign, f"pod {index} trains", SOON)

    running = [start(index, index) for index in range(3)]
    for index in range(3):
        trains(index)
    running[MOVED].send_signal(number)
    ended = running[MOVED].wait(SOON)
    assert ended == (128 + number if number == signal.SIGTERM else -number), pods.log(f"train-{MOVED}")
    (tmp_path / f"trains-{MOVED}").unlink()
    running[MOVED] = start(MOVED, 3)
    trains(MOVED)
    stop.touch()
    for index, process in enumerate(running):
        assert process.wait(SOON) == 0, pods.log(f"train-{index}")
    results = [json.loads((tmp_path / f"result-{index}").read_text()) for index in range(3)]
    assert [(one["rank"], one["world_size"]) for one in results] == [(index, 3) for index in range(3)]
    for one in results[1:]:
        assert np.allclose(parameters(one["model"]), parameters(results[0]["model"]), atol=1e-2)
    saved = tmp_path / "run" / f"rank-{MOVED}" / "checkpoints"
    assert bool(list(saved.glob("step-*"))) == (number == signal.SIGTERM)
    invitation = json.loads((tmp_path / "run" / "watch.json").read_text())
    assert invitation["keys"], "encrypted"
    assert sorted(invitation["members"]) == [f"train-{index}.train:7000" for index in range(3)]
