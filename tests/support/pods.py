"""Processes with exactly what a pod has: an address, a host name, a list of names, and the environment of a manifest.

Each node is a network namespace. A pod that is replaced gets another address under the same name, as in Kubernetes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from ssh_server import Network
from swarms import clean_environment

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"


def resources(name: str) -> list[dict[str, Any]]:
    """Return the resources of a manifest."""
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def pod_template(name: str) -> dict[str, Any]:
    """Return the specification of the pods of a manifest."""
    found = next(one for one in resources(name) if one["kind"] in ("Job", "StatefulSet", "JobSet"))
    job = found["spec"] if found["kind"] != "JobSet" else found["spec"]["replicatedJobs"][0]["template"]["spec"]
    template: dict[str, Any] = job["template"]["spec"]
    return template


class Pods:
    """The pods of one manifest."""

    def __init__(self, manifest: str, directory: Path, nodes: int) -> None:
        self.directory = directory
        self._network = Network(nodes)
        self._nodes: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._manifest = manifest
        self._container = pod_template(manifest)["containers"][0]
        self._names = directory / "hosts"
        self._names.write_text("127.0.0.1 localhost\n")

    def environment(self, index: int, places: dict[str, str]) -> dict[str, str]:
        """Return the variables of a pod; volumes are mounted at other places here.

        Args:
            index: of the pod.
            places: where a mount path of the manifest is.
        """
        given = {one["name"]: str(one["value"]) for one in self._container["env"]}
        for name, text in given.items():
            mount = next((mount for mount in places if text.startswith(mount)), "")
            given[name] = places.get(mount, "") + text.removeprefix(mount)
        indexed = {} if self._manifest == "statefulset.yaml" else {"JOB_COMPLETION_INDEX": str(index)}
        return {**clean_environment(), **indexed, **given}

    def start(self, name: str, node: int, environment: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
        """Start a pod on a node. Only then its name has an address, and that of a former pod of this name has gone."""
        steps = f'mount --bind {self._names} /etc/hosts; hostname {name}; exec "$@"'
        namespace = f"--net=/run/netns/{self._network.machines[node]}"
        with (self.directory / f"log-{name}").open("ab") as log:
            process = subprocess.Popen(
                [
                    "nsenter",
                    namespace,
                    "unshare",
                    "--mount",
                    "--uts",
                    "sh",
                    "-ec",
                    steps,
                    "sh",
                    sys.executable,
                    *command,
                ],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        self._nodes[name] = node
        # Written in place: all pods see the same file.
        lines = [f"{self._network.address(there)} {one}.train {one}" for one, there in self._nodes.items()]
        self._names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        return process

    def log(self, name: str) -> str:
        return (self.directory / f"log-{name}").read_text()

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        self._network.close()
