"""What a row says when its crew is no longer whole: one sentence, whichever of torch's errors it came by."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.grids import Grid
from peers.crew.crew import Crew, CrewError
from peers.data.progress import WINDOW, Progress, ProgressError
from peers.joining import _crew
from peers.session.cards import Card
from peers.setup import Setup

CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:19362."
SILENT = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv"


def crew(rows: int = 2) -> Crew:
    return Crew(Grid(rows, 4), rank=3 * rows + 1 % rows, device=torch.device("cpu"), timeout=5.0)


def test_the_errors_of_a_row_that_died_become_one_sentence() -> None:
    for error in (RuntimeError(CLOSED), dist.DistBackendError("NCCL error: remote process exited")):
        assert str(crew().loss(error)) == (
            "row 1 of replica 3 lost another row of its crew, so the replica ends: its connection was closed, and its "
            "own log says why it ended"
        )


def test_a_row_that_was_silent_for_too_long_is_told_from_one_that_died() -> None:
    for error in (RuntimeError(SILENT), dist.DistStoreError("wait timeout after 5000ms")):
        assert "it did not answer within 5 s (--inner-timeout)" in str(crew().loss(error))


def test_an_error_of_the_crew_itself_stays_as_it_is() -> None:
    error = CrewError("row 0 of replica 3 failed")
    assert crew().loss(error) is error


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ValueError(CLOSED), RuntimeError("shapes do not fit")])
def test_other_errors_are_the_scripts_own(error: BaseException | None) -> None:
    assert crew().loss(error) is None


def test_a_process_that_has_no_crew_loses_none() -> None:
    assert crew(rows=1).loss(RuntimeError(CLOSED)) is None


def test_a_crew_on_two_hosts_is_refused_unless_it_is_permitted_by_name() -> None:
    cards = {rank: Card(rank, Endpoint(f"10.0.0.{rank}", 9000)) for rank in range(2)}
    with pytest.raises(SettingsError, match=r"on several hosts, 10\.0\.0\.0, 10\.0\.0\.1, and torch does not encrypt"):
        _crew(Setup(rank=0, world_size=2, grid="2x1"), cards, None)


def test_a_row_takes_over_which_epochs_the_lead_row_knows_to_be_done() -> None:
    """Each row hears of the others in a swarm of its own; what the lead row claims may be far ahead of its news."""
    progress = Progress(batches=10, epochs=9)
    with pytest.raises(ProgressError):
        progress.mark(WINDOW + 1, 0)
    progress.follow(WINDOW)
    assert progress.mark(WINDOW + 1, 0)
    assert progress.epoch == WINDOW
    progress.follow(1)
    assert progress.epoch == WINDOW, "what is done stays done"
