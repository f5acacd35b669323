"""Crews as real processes, over gloo on the loopback interface: against dense float64, and against whole replicas.

The processes are started once, and go through all cases of a group.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from crew_runs import LONGEST_RUN, Found, run
from crew_script import Case, reference
from torch import Tensor

from gossip import policies
from gossip.grids import Grid

pytestmark = pytest.mark.timeout(LONGEST_RUN)

#: Whole replicas, with which crews are compared.
WHOLE = [
    Case("whole", "whole", "1x2"),
    Case("whole-variance", "whole", "1x2", "adamw"),
    Case("whole-mixed", "whole", "1x2", "adamw", algorithm="sgp:momentum=mixed"),
    Case("whole-quasi", "whole", "1x2", algorithm="sgp:momentum=quasi-global"),
    Case("whole-slowmo", "whole", "1x2", algorithm="slowmo:h=2", steps=8),
]
#: Equal to dense float64: plain torch for each replica, and the mean of both after each step.
DENSE = [
    WHOLE[0],
    Case("fsdp", "fsdp", clip=0.5, hidden=7),
    Case("fsdp-adamw", "fsdp", optimizer="adamw", algorithm="sgp:variance=own", clip=0.5, frozen=True),
    Case("tp", "tp", frozen=True),
    Case("tp-adamw", "tp", optimizer="adamw", algorithm="sgp:variance=own"),
    Case("both", "both", grid="4x1"),
    Case("rows", "rows", hidden=7, clip=0.5),
    Case("rows-adamw", "rows", optimizer="adamw", algorithm="sgp:variance=own", frozen=True),
    *(Case(f"{kind}-of-one", kind, "1x2") for kind in ("fsdp", "tp", "both", "rows")),
]
#: Equal to the whole replicas of the same algorithm.
LIKE_WHOLE = [
    (Case("fsdp-variance", "fsdp", optimizer="adamw"), WHOLE[1]),
    (Case("tp-variance", "tp", optimizer="adamw"), WHOLE[1]),
    (Case("fsdp-mixed", "fsdp", optimizer="adamw", algorithm="sgp:momentum=mixed"), WHOLE[2]),
    (Case("fsdp-quasi", "fsdp", algorithm="sgp:momentum=quasi-global"), WHOLE[3]),
    (Case("tp-quasi", "tp", algorithm="sgp:momentum=quasi-global"), WHOLE[3]),
    (Case("fsdp-slowmo", "fsdp", algorithm="slowmo:h=2", steps=8), WHOLE[4]),
]
#: Asynchronous, so without a reference.
FREE = [
    Case("fsdp-osgp", "fsdp", algorithm="osgp", dtype="float32", steps=10, lockstep=False),
    Case("tp-osgp", "tp", algorithm="osgp", dtype="bfloat16", steps=10, lockstep=False),
    Case("tp-int8", "tp", algorithm="osgp", dtype="float32", steps=10, lockstep=False, join={"compress": "int8"}),
    Case("tp-adpsgd", "tp", algorithm="adpsgd", dtype="float32", steps=10, lockstep=False, join={"share": 0.5}),
    Case("rows-osgp", "rows", algorithm="osgp", dtype="float32", steps=10, lockstep=False, hidden=7),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Found]]:
    """What the processes of all cases found."""
    # Those of all processes come first: the others would wait for the end of the rest.
    cases = [*DENSE[1:], *(case for case, _ in LIKE_WHOLE), *FREE, *WHOLE]
    cases.sort(key=lambda case: -Grid.parse(case.grid).size)
    return run(cases, tmp_path_factory.mktemp("crews"))


def assert_close(traces: list[dict[str, Tensor]], expected: list[dict[str, Tensor]]) -> None:
    assert len(traces) == len(expected)
    for step, (one, other) in enumerate(zip(traces, expected, strict=True)):
        assert one.keys() == other.keys()
        for name, values in other.items():
            torch.testing.assert_close(
                one[name], values, rtol=1e-9, atol=1e-10, msg=lambda text, at=(step, name): f"{at}: {text}"
            )


def assert_one_replica(results: list[Found]) -> None:
    """Check that the rows of a replica hold the same after each step, to the last bit."""
    replicas: dict[int, list[Found]] = {}
    for result in results:
        replicas.setdefault(result["place"][0], []).append(result)
    for first, *others in replicas.values():
        for other in others:
            for one, same in zip([*first["trace"], first["end"]], [*other["trace"], other["end"]], strict=True):
                assert all(torch.equal(one[name], same[name]) for name in one)


def assert_mass(results: list[Found]) -> None:
    """Check that the weights of each shard add up to the number of replicas, in the swarm of each row."""
    rows: dict[int, list[list[float]]] = {}
    for result in results:
        rows.setdefault(result["place"][1], []).append(result["weights"])
    for weights in rows.values():
        assert [sum(one) for one in zip(*weights, strict=True)] == pytest.approx([len(weights)] * len(weights[0]))


def assert_dense(case: Case, results: list[Found]) -> None:
    expected = reference(case)
    for result in results:
        assert_close(result["trace"], expected)
    assert_one_replica(results)
    assert_mass(results)


@pytest.mark.parametrize("case", DENSE, ids=lambda case: case.name)
def test_a_crew_in_lockstep_equals_dense_training(case: Case, found: dict[str, list[Found]]) -> None:
    assert_dense(case, found[case.name])


@pytest.mark.parametrize(("case", "like"), LIKE_WHOLE, ids=lambda case: case.name)
def test_a_crew_equals_whole_replicas_of_the_same_algorithm(
    case: Case, like: Case, found: dict[str, list[Found]]
) -> None:
    for result in found[case.name]:
        assert_close(result["trace"], found[like.name][result["place"][0]]["trace"])
    assert_one_replica(found[case.name])
    assert_mass(found[case.name])


@pytest.mark.parametrize("case", FREE, ids=lambda case: case.name)
def test_rows_stay_one_replica_though_their_partners_come_when_they_will(
    case: Case, found: dict[str, list[Found]]
) -> None:
    results = found[case.name]
    assert_one_replica(results)
    assert_mass(results)
    assert {result["disagreement"] for result in results[:2]} == {results[0]["disagreement"]}
    assert all(result["view"] == (0, 1) for result in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case("both", "both", grid="4x2", optimizer="adamw", algorithm="sgp:variance=own"),
        Case("fsdp", "fsdp", grid="4x2", hidden=7, clip=0.5),
        Case("tp", "tp", grid="4x2"),
        Case("rows", "rows", grid="4x2", hidden=7, clip=0.5),
        Case("uneven", "rows", grid="3x2", hidden=11, optimizer="adamw", algorithm="sgp:variance=own"),
        Case("thin", "fsdp", grid="3x2", hidden=2),
    ],
    ids=lambda case: case.name,
)
def test_larger_crews_equal_dense_training(case: Case, tmp_path: Path) -> None:
    assert_dense(case, run([case], tmp_path)[case.name])


@pytest.mark.slow
def test_rows_stay_one_replica_under_every_asynchronous_algorithm(tmp_path: Path) -> None:
    """Each with the kind of crew in which several rows hold the most of the same."""
    names = [name for name in policies.names() if not policies.parse(name).collective]
    cases = [
        Case(f"{kind}-{name}", kind, algorithm=name, dtype="float32", steps=12, lockstep=False, hidden=7)
        for name in names
        for kind in ("fsdp", "rows")
    ]
    for name, results in run(cases, tmp_path).items():
        assert_one_replica(results)
        assert {result["disagreement"] for result in results[:2]} == {results[0]["disagreement"]}, name
