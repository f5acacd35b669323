"""What crews do besides steps, as real processes: batches, evaluation, checkpoints, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from crew_runs import LONGEST_RUN, Found, run
from crew_script import Case

pytestmark = pytest.mark.timeout(LONGEST_RUN)

SAMPLES, HEIGHT = 45, 5
CASES = [
    Case("batches", "tp", job="batches", lockstep=False, options={"workers": [0]}),
    Case("evaluated", "fsdp", job="evaluated", lockstep=False),
    Case("resumed", "fsdp", job="resumed", optimizer="adamw", algorithm="sgp:variance=own"),
    Case("refused", "whole", job="refused", lockstep=False),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Found]]:
    """What the processes of all cases found."""
    return run(CASES, tmp_path_factory.mktemp("crew_jobs"))


def test_the_rows_of_a_crew_see_the_same_samples_or_each_its_part(found: dict[str, list[Found]]) -> None:
    for replica in (0, 1):
        first, second = found["batches"][2 * replica : 2 * replica + 2]
        assert [first["place"], second["place"]] == [(replica, 0), (replica, 1)]
        assert first["seen"]["none-0"] == second["seen"]["none-0"]
        for one, other in zip(first["seen"]["batch-0"], second["seen"]["batch-0"], strict=True):
            assert one[1] == other[1] == list(range(HEIGHT)), "whole images"
            # A last batch of one sample goes to both, for a row without any could not compute.
            assert not {*one[0]} & {*other[0]} or (one[0] == other[0] and len(one[0]) == 1), "different samples"
        for one, other in zip(first["seen"]["rows-0"], second["seen"]["rows-0"], strict=True):
            assert one[0] == other[0], "the same samples"
            assert [*one[1], *other[1]] == list(range(HEIGHT)), "each its rows of the images"


def test_an_epoch_of_all_replicas_has_every_sample(found: dict[str, list[Found]]) -> None:
    leads = found["batches"][::2]
    assert {index for one in leads for batch, _ in one["seen"]["none-0"] for index in batch} == set(range(SAMPLES))
    both = found["batches"]
    assert {index for one in both for batch, _ in one["seen"]["batch-0"] for index in batch} == set(range(SAMPLES))


def test_an_evaluation_is_of_the_whole_model_and_leaves_it_as_it_was(found: dict[str, list[Found]]) -> None:
    results = found["evaluated"]
    for first, second in (results[:2], results[2:]):
        for result in (first, second):
            for name, before in result["before"].items():
                assert torch.equal(result["own"][name], before)
                assert torch.equal(result["after"][name], before)
        assert all(torch.equal(first["average"][name], second["average"][name]) for name in first["average"])


def test_a_crew_resumes_from_the_newest_checkpoint_that_all_its_rows_have(found: dict[str, list[Found]]) -> None:
    """The newest one of row 1 of each replica was taken away."""
    for result in found["resumed"]:
        assert result["first began"] == 0
        assert result["second began"] == 4
        for name, values in result["first"].items():
            torch.testing.assert_close(result["second"][name], values, rtol=1e-9, atol=1e-10)


def test_a_checkpoint_of_another_grid_is_refused_with_what_to_do(found: dict[str, list[Found]]) -> None:
    for result in found["resumed"]:
        assert "the checkpoint is of replicas of 2 processes, and this run has replicas of 1" in result["other grid"]


def test_what_crews_cannot_do_is_refused_by_name(found: dict[str, list[Found]]) -> None:
    for result in found["refused"]:
        for algorithm in ("allreduce", "parameter-server", "outer"):
            assert "only gossip, row by row: use sgp, osgp" in result[algorithm]
        # The mesh of the first row alone: the other row says so, and the first one that the other did.
        assert "is spread over a mesh that row 1 of the crew has no place in: spread the model" in result["mesh"]
