"""What crews do besides training, as real processes: batches, evaluation, checkpoints, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from crew_runs import LONGEST_RUN, Found, run
from crew_script import Case
from torch import Tensor

pytestmark = pytest.mark.timeout(LONGEST_RUN)

#: The batches of `crew_jobs.batches`: 45 samples, four in a batch.
SAMPLES, BATCHES = 45, 12
CASES = [
    Case("batches", "fsdp", algorithm="osgp", lockstep=False, job="batches", options={"workers": [0, 2]}),
    Case("evaluated", "fsdp", lockstep=False, job="evaluated"),
    Case("resumed-fsdp", "fsdp", job="resumed"),
    Case("resumed-tp", "tp", optimizer="adamw", job="resumed"),
    Case("refused", "whole", job="refused"),
    Case("drawn", "tp", lockstep=False, job="drawn"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Found]]:
    """What the processes found, which go through all cases one after the other."""
    return run(CASES, tmp_path_factory.mktemp("jobs"))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two models are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("split", ["none", "batch", "rows"])
def test_the_rows_of_a_crew_share_each_batch(split: str, workers: int, found: dict[str, list[Found]]) -> None:
    batches: dict[frozenset[int], int] = {}
    for replica in (0, 1):
        rows = [result for result in found["batches"] if result["place"][0] == replica]
        assert [result["place"][1] for result in rows] == [0, 1]
        first, second = (result["seen"][f"{split}-{workers}"] for result in rows)
        assert len(first) == len(second)
        for (indices, heights), (others, other_heights) in zip(first, second, strict=True):
            if split == "batch" and len(indices + others) > 2:
                assert not set(indices) & set(others)
                assert len(indices) == len(others) == 2
            elif split == "batch":  # the last batch has one sample, and no row can do without
                assert indices == others
            else:
                assert indices == others
            assert [heights, other_heights] == (
                [[0, 1, 2], [3, 4]] if split == "rows" else [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
            )
            batch = frozenset(indices + others)
            batches[batch] = batches.get(batch, 0) + 1
    # Replicas claim whole batches. At the end of an epoch, one without work repeats what another has not reported yet.
    assert sorted(map(len, batches)) == [1] + [4] * (BATCHES - 1)
    assert sorted(index for batch in batches for index in batch) == list(range(SAMPLES))
    assert sum(batches.values()) >= BATCHES


def test_rows_count_the_samples_of_their_replica(found: dict[str, list[Found]]) -> None:
    for result in found["batches"]:
        whole = [indices for key, seen in result["seen"].items() if "batch" not in key for indices, _ in seen]
        split = [indices for key, seen in result["seen"].items() if "batch" in key for indices, _ in seen]
        # Each row has half of a batch of four, and the one sample of the last batch.
        expected = sum(map(len, whole)) + sum(1 if len(indices) == 1 else 2 * len(indices) for indices in split)
        assert result["samples"] == expected


def test_an_evaluation_is_of_the_average_and_gives_the_own_values_back(found: dict[str, list[Found]]) -> None:
    results = found["evaluated"]
    for result in results:
        assert same(result["own"], result["before"])
        assert same(result["after"], result["before"])
    for lead, other in (results[:2], results[2:]):
        for what in ("before", "average", "last"):
            assert same(lead[what], other[what])
    for name, average in results[0]["average"].items():
        torch.testing.assert_close(average, results[2]["average"][name], rtol=1e-2, atol=1e-2)
        first, second = (results[rank]["before"][name] for rank in (0, 2))
        if name != "seen":  # the replicas were moved one apart, and the average is between them
            assert (average > first + 0.1).all()
            assert (average < second - 0.1).all()


@pytest.mark.parametrize("name", ["resumed-fsdp", "resumed-tp"])
def test_all_rows_resume_from_the_newest_checkpoint_that_each_has(name: str, found: dict[str, list[Found]]) -> None:
    for rank, result in enumerate(found[name]):
        newest = [] if rank % 2 else ["step-00000006"]  # row 1 has lost it
        assert result["left"] == [".lock", "step-00000004", *newest]
        assert (result["first began"], result["second began"]) == (0, 4)
        assert same(result["second"], result["first"]), "two steps of a resumed run are those of the first"


def test_a_checkpoint_of_another_grid_is_refused(found: dict[str, list[Found]]) -> None:
    for result in found["resumed-tp"]:
        assert result["other grid"] == (
            "CheckpointError: the checkpoint is of a grid 2xREPLICAS, and the grid of this run is 1xREPLICAS: resume "
            "with --grid 2xREPLICAS and any number of replicas, or begin a new run"
        )


def test_rows_whose_checkpoints_have_no_step_in_common_do_not_begin_anew(found: dict[str, list[Found]]) -> None:
    for rank, result in enumerate(found["resumed-tp"]):
        assert result["in common"].endswith(
            f"the 2 rows of replica {rank // 2} have no checkpoint of the same step, and row 1 has none that is older: "
            "bring its checkpoints back, or begin a new run"
        )
        assert "the checkpoint is of a grid 2xREPLICAS, and the grid of this run is 4xREPLICAS" in result["more rows"]


def test_a_checkpoint_of_a_model_that_was_spread_otherwise_is_refused(found: dict[str, list[Found]]) -> None:
    for rank, result in enumerate(found["resumed-tp"]):
        assert result["other way"] == (
            "CheckpointError: the checkpoint is of a model that was spread over its rows in another way: "
            f"narrow.weight was torch.float64 (5, 8) [('Shard(dim=1)', 2, {rank % 2})], and is torch.float64 (5, 8) "
            f"[('Shard(dim=0)', 2, {rank % 2})]. Resume with the script that saved it, or begin a new run"
        )


@pytest.mark.parametrize("algorithm", ["allreduce", "parameter-server", "outer"])
def test_algorithms_of_all_processes_are_refused(algorithm: str, found: dict[str, list[Found]]) -> None:
    for result in found["refused"]:
        assert result[algorithm] == (
            f"SettingsError: algorithm={algorithm}: all its processes exchange with each other, and replicas of 2 "
            "processes only gossip, row by row: use sgp, osgp or another algorithm that gossips"
        )


def test_a_mesh_of_some_rows_is_refused_by_all_rows(found: dict[str, list[Found]]) -> None:
    why = (
        "SettingsError: head.weight is spread over a mesh that row 1 of the crew has no place in: spread the model "
        "over peer.crew.mesh, or over a mesh of all rows"
    )
    for rank, result in enumerate(found["refused"]):
        own = rank % 2 == 1
        other = f"CrewError: row 1 of replica {rank // 2} failed, so its whole crew ends: {why}"
        assert result["mesh"] == (why if own else other)


def test_parts_that_torch_drew_alike_are_told(
    found: dict[str, list[Found]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert {one["before"] for one in found["drawn"]} == {None}
    assert {one["after"] for one in found["drawn"]} == {"wide.weight"}
    log = (tmp_path_factory.getbasetemp() / "jobs0" / "log").read_text()
    assert log.count("draw the plain model before it is spread") == 2, "once for each replica"


def test_rows_that_would_drop_different_values_are_told(
    found: dict[str, list[Found]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for one in found["drawn"]:
        assert {name: one[name] for name in ("without dropout", "apart", "alike")} == {
            "without dropout": False,
            "apart": True,
            "alike": False,
        }
    log = (tmp_path_factory.getbasetemp() / "jobs0" / "log").read_text()
    assert log.count("would draw different numbers for dropout") == 2, "once for each replica"
