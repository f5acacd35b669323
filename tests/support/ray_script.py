"""Starts a Ray cluster of two raylets on loopback, and goes through what the tests ask for.

python ray_script.py OUTPUT SCENARIO...: writes what came of each scenario into OUTPUT/SCENARIO.json.

Nothing here is seen by another Ray, and nothing is left: ports are free ones, and the directory is its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Before ray is imported. Sockets have short names, so the directory is not one of pytest's.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TMPDIR": tempfile.mkdtemp(prefix="gossip-ray-"),
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all on 127.0.0.1, as on a Mac
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_TRAIN_ENABLE_CONTROLLER_LOGGING": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # to no other cluster, whatever happens here
    # A machine that is busy is no dead node, and a worker may take its time to start.
    "RAY_health_check_failure_threshold": "60",
    "RAY_worker_register_timeout_seconds": "300",
    "OMP_NUM_THREADS": "1",
    "RAY_DEDUP_LOGS": "0",
}

import ray
import ray_functions
from ray.cluster_utils import Cluster

from gossip.errors import SettingsError
from peers.integrations.ray import NoRoom, Swarm, SwarmError, SwarmResult
from topologies import TopologyError

#: Arguments of a swarm that are refused, each with what is right otherwise.
WRONG: list[dict[str, Any]] = [
    {"function": 3},
    {"function": ray_functions.fails, "config": {"lr": 0.1}},
    {"config": 0.1},
    {"num_peers": 0},
    {"num_peers": True},
    {"restarts": -1},
    {"cpus": -1},
    {"cpus": 0},
    {"gpus": "all"},
    {"resources": {"CPU": 1}},
    {"strategy": "NEAR"},
    {"placement_timeout": 0},
    {"stop_timeout": None},
    {"rank": 1},
    {"keys": None},
    {"hosts": ["10.0.0.1:1"]},
    {"grid": "2x1"},
    {"topologie": "ring"},
    {"topology": "moebius"},
    {"algorithm": "sgd"},
    {"compress": "zip"},
    {"faults": "kill:7@3"},
    {"faults": ["kill:1@3", "restart:1@9"]},
    {"stragglers": "9=4x"},
    {"checkpoint_every": 5},
    {"preset": "moon"},
]
#: Nothing here takes this many seconds, unless it hangs.
LONGEST = 300.0
#: The exit code if Ray did not start.
NOT_STARTED = 75
PATIENT: dict[str, Any] = {"placement_timeout": LONGEST, "stop_timeout": LONGEST}


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that happens in another process."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


class Scenarios:
    """What the tests ask for, each on the same cluster."""

    def __init__(self, output: Path, cluster: Cluster, second: Any) -> None:
        self._output, self._cluster, self._second = output, cluster, second

    def refused(self) -> dict[str, Any]:
        """Arguments that are wrong: nothing starts."""
        said: dict[str, Any] = {}
        for arguments in WRONG:
            try:
                Swarm(**{"function": ray_functions.never_joins, "num_peers": 2, **arguments})
            except (SettingsError, TopologyError) as error:
                said[repr(arguments)] = str(error)
        return {"said": said, "wrong": [repr(arguments) for arguments in WRONG]}

    def failing(self) -> dict[str, Any]:
        """A function that raises, one that never joins, and more peers than there is room for."""
        said: dict[str, Any] = {}
        for name, swarm in {
            "raises": Swarm(ray_functions.fails, num_peers=2, restarts=3, **PATIENT),
            "never joins": Swarm(ray_functions.never_joins, num_peers=1, config={"value": 3}, **PATIENT),
            "no room": Swarm(ray_functions.fails, num_peers=9, placement_timeout=1.0),
        }.items():
            try:
                swarm.fit()
            except SwarmError as error:
                said[name] = {
                    "error": str(error),
                    "cause": repr(error.__cause__),
                    "restarts": [peer.restarts for peer in error.result.peers],
                }
            except NoRoom as error:
                said[name] = {"error": str(error)}
        return said

    def losses(self) -> dict[str, Any]:
        """Three peers: one is killed and comes back, then a node is removed, and those who are left agree."""
        stop, signs = self._output / "stop", self._output / "signs"
        signs.mkdir()
        swarm = Swarm(
            ray_functions.until_told,
            num_peers=3,
            config={"stop": str(stop), "signs": str(signs)},
            restarts=1,
            run_dir=self._output / "run",
            faults="kill:0@30",
            start_timeout=LONGEST,
            **PATIENT,
        )
        results: list[Any] = []
        fitting = threading.Thread(target=lambda: results.append(_result(swarm.fit)))
        fitting.start()

        def lives() -> list[str]:
            assert not results, results
            return sorted(sign.name.partition("-")[0] for sign in signs.iterdir())

        try:
            until(lambda: lives() == ["0", "0", "1", "2"], "rank 0 was killed and trains again")
            self._cluster.remove_node(self._second)
            until(lambda: self._nodes() == 1, "the head node has noticed")
            time.sleep(1.0)  # the others go on
        finally:
            stop.touch()
            fitting.join(LONGEST)
        return results[0]

    def interrupted(self) -> dict[str, Any]:
        """Ctrl-C: the peer saves a checkpoint, and `fit` raises."""
        signs, run = self._output / "signs-2", self._output / "run-2"
        signs.mkdir()
        config = {"stop": str(self._output / "never"), "signs": str(signs)}
        swarm = Swarm(ray_functions.until_told, 1, config=config, run_dir=run, checkpoint_every=1_000_000, **PATIENT)

        def press() -> None:
            until(lambda: any(signs.iterdir()), "it trains")
            signal.raise_signal(signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        began = time.monotonic()
        try:
            swarm.fit()
        except KeyboardInterrupt:
            return {"files": sorted(str(path.relative_to(run)) for path in run.rglob("*")), "began": began}
        return {"files": []}

    def ray_train(self) -> dict[str, Any]:
        """Peers in the workers of a TorchTrainer."""
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            ray_functions.in_a_worker,
            train_loop_config={"start_timeout": LONGEST, "output": str(self._output)},
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=RunConfig(storage_path=str(self._output / "storage")),
        )
        trainer.fit()
        return {"workers": [json.loads(path.read_text()) for path in sorted(self._output.glob("worker-*"))]}

    def _nodes(self) -> int:
        return sum(node["Alive"] for node in ray.nodes())


def _result(fit: Callable[[], SwarmResult]) -> dict[str, Any]:
    try:
        result = fit()
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        return {"failed": "".join(traceback.format_exception(error))}
    return {
        "values": result.values,
        "errors": {rank: str(error) for rank, error in result.errors.items()},
        "restarts": [peer.restarts for peer in result.peers],
        "nodes": [peer.node for peer in result.peers],
        "metrics": [dict(peer.metrics) for peer in result.peers],
        "run_dir": result.run_dir,
    }


@contextmanager
def cluster() -> Iterator[tuple[Cluster, Any]]:
    """Two raylets: one with room for two peers, and one for a third."""
    small = {"object_store_memory": 80 << 20}
    head = {"num_cpus": 2, "include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
    try:
        made = Cluster(initialize_head=True, head_node_args={**small, **head, "dashboard_agent_listen_port": 0})
        second = made.add_node(num_cpus=1, **small)
        ray.init(address=made.address, log_to_driver=False, configure_logging=False)
    except Exception:  # noqa: BLE001 - of whatever kind: Ray gives a node 30 seconds, and cannot be told another number
        traceback.print_exc()
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)
        sys.exit(NOT_STARTED)
    try:
        yield made, second
    finally:
        ray.shutdown()
        made.shutdown()
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def main() -> None:
    output = Path(sys.argv[1])
    with cluster() as (made, second):
        scenarios = Scenarios(output, made, second)
        for name in sys.argv[2:]:
            began = time.monotonic()
            try:
                said = getattr(scenarios, name)()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                said = {"failed": "".join(traceback.format_exception(error))}
            sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")
            (output / f"{name}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
