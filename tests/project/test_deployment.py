"""The manifests for Kubernetes fit its schemas and themselves, and the container file fits the repository."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pods import MANIFESTS, pod_template, resources

from peers.environment_settings import settings_from
from peers.setup import Setup

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.name for path in MANIFESTS.glob("*.yaml"))
#: What the manifests use of the API of JobSet, whose schemas no package has.
JOBSET = {
    "spec": {"network", "failurePolicy", "replicatedJobs"},
    "network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
    "job": {"name", "replicas", "template"},
}


def validated(resource: dict[str, Any], version: str) -> None:
    """Check a resource against the schemas of a version of Kubernetes; unknown fields are errors as well."""
    validate = pytest.importorskip(
        "kubernetes_validate", reason="there are no schemas of Kubernetes: pip install -e .[kubernetes]"
    )
    if resource["kind"] == "JobSet":
        assert resource["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
        assert resource["spec"].keys() == JOBSET["spec"]
        assert resource["spec"]["network"].keys() == JOBSET["network"]
        (job,) = resource["spec"]["replicatedJobs"]
        assert job.keys() == JOBSET["job"]
        metadata = {"name": f"{resource['metadata']['name']}-{job['name']}-0"}
        resource = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **job["template"]}
    validate.validate(resource, version, strict=True)


def test_there_are_manifests() -> None:
    assert NAMES == ["indexed-job.yaml", "jobset.yaml", "statefulset.yaml"]


@pytest.mark.parametrize("version", ["1.30", "1.34"])
@pytest.mark.parametrize("name", NAMES)
def test_each_resource_fits_the_schema(name: str, version: str) -> None:
    for resource in resources(name):
        validated(resource, version)


def test_what_does_not_fit_is_noticed() -> None:
    (job,) = [one for one in resources("indexed-job.yaml") if one["kind"] == "Job"]
    for path, value in (
        (("spec", "completionModes"), "Indexed"),
        (("spec", "completions"), "three"),
        (("spec", "template", "spec", "containers"), [{"image": "train:1"}]),
    ):
        wrong = copy.deepcopy(job)
        part = wrong
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        with pytest.raises(Exception, match=r"completionModes|three|name"):
            validated(wrong, "1.34")


@pytest.mark.parametrize("name", NAMES)
def test_the_pods_are_those_of_the_list_of_hosts(name: str) -> None:
    workload = next(one for one in resources(name) if one["kind"] in ("Job", "StatefulSet", "JobSet"))
    pod = pod_template(name)
    (container,) = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    setup = Setup().changed(rank=0, **settings_from(environment))
    called, spec, subdomain = workload["metadata"]["name"], workload["spec"], pod.get("subdomain")
    if workload["kind"] == "JobSet":
        subdomain = spec["network"]["subdomain"]
        assert spec["network"]["publishNotReadyAddresses"]
        (job,) = spec["replicatedJobs"]
        assert job["replicas"] == 1
        called, spec = f"{called}-{job['name']}-0", job["template"]["spec"]
    else:
        (service,) = [one for one in resources(name) if one["kind"] == "Service"]
        subdomain = subdomain or spec["serviceName"]
        assert service["metadata"]["name"] == subdomain
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"]
        assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    count = spec.get("completions", spec.get("replicas"))
    assert spec.get("parallelism", count) == count, "peers wait for each other"
    (port,) = [one["containerPort"] for one in container["ports"]]
    assert setup.hosts == tuple(f"{called}-{index}.{subdomain}:{port}" for index in range(count))
    assert setup.bind == f"0.0.0.0:{port}"
    assert setup.stop_within == pod["terminationGracePeriodSeconds"]
    # The files are in volumes, and the secret is for those who run as the user of the pod.
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert setup.secret_file.startswith(mounts["secret"] + "/")
    assert volumes["secret"]["secret"]["defaultMode"] & 0o007 == 0
    assert setup.run_dir == mounts["run-dir"]
    claims = [one["metadata"]["name"] for one in resources(name) if one["kind"] == "PersistentVolumeClaim"]
    assert claims == [volumes["run-dir"]["persistentVolumeClaim"]["claimName"]]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file, without comments and with long lines joined."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_container_file_fits_the_repository() -> None:
    found = instructions()
    assert found[0][0] == "FROM"
    assert {word for word, _ in found} <= {
        "FROM",
        "RUN",
        "COPY",
        "USER",
        "WORKDIR",
        "ENV",
        "EXPOSE",
        "ENTRYPOINT",
        "CMD",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    python = re.fullmatch(r"python:(\d+)\.(\d+)-slim", found[0][1])
    assert python is not None, "a version, not whatever is the newest"
    least = re.fullmatch(r">=(\d+)\.(\d+)", project["project"]["requires-python"])
    assert least is not None
    assert [*map(int, python.groups())] >= [*map(int, least.groups())]
    copied = {source for word, rest in found if word == "COPY" for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    packages = {one.removesuffix("*") for one in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    files = {"pyproject.toml", "constraints.txt", project["project"]["readme"], *project["project"]["license-files"]}
    assert copied >= packages | files, "the package cannot be built without these"
    (install,) = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    assert "-c /source/constraints.txt /source" in install


def test_the_container_passes_signals_on_and_does_not_run_as_root() -> None:
    found = dict(instructions())
    assert json.loads(found["ENTRYPOINT"]) == ["tini", "--"], "process 1 would ignore SIGTERM until it handles it"
    assert "apt-get install -y --no-install-recommends tini" in next(
        rest for word, rest in instructions() if word == "RUN"
    )
    assert isinstance(json.loads(found["CMD"]), list), "not a shell, which would not pass signals on"
    assert found["USER"] == "1000"
    for name in NAMES:
        assert pod_template(name)["securityContext"]["runAsUser"] == int(found["USER"])
        assert {one["containerPort"] for one in pod_template(name)["containers"][0]["ports"]} == {int(found["EXPOSE"])}
