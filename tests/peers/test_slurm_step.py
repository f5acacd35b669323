"""What a task of `srun` is told. The variables are those that Slurm 22.05 sets."""

from __future__ import annotations

import itertools

import pytest

from gossip.errors import SettingsError
from peers.setup import from_environment
from peers.slurm_step import SlurmStep, restarts

#: The second of three tasks, each on a node of its own.
TASK = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_JOB_NODELIST": "n[0-4]",
    "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURMD_NODENAME": "n2",
}


def test_a_task_finds_its_place_and_the_others() -> None:
    setup = from_environment(TASK)
    assert (setup.rank, setup.world_size, setup.local_rank) == (1, 3, 0)
    # Rank 0 is on the first node of the step, which need not be the first one of the job.
    assert (setup.environment["MASTER_ADDR"], setup.environment["MASTER_PORT"]) == ("n1", "14711")
    step = SlurmStep.found(TASK)
    assert step is not None
    assert step.others == ["n1", "n3"]


def test_tasks_of_one_node_meet_on_loopback() -> None:
    setup = from_environment({**TASK, "SLURM_STEP_NODELIST": "n1"})
    assert setup.environment["MASTER_ADDR"] == "127.0.0.1"


def test_where_the_user_says_where_to_meet_that_counts() -> None:
    setup = from_environment({**TASK, "MASTER_ADDR": "elsewhere", "MASTER_PORT": "5"})
    assert (setup.environment["MASTER_ADDR"], setup.environment["MASTER_PORT"]) == ("elsewhere", "5")
    assert from_environment({**TASK, "MASTER_PORT": "5"}).environment["MASTER_ADDR"] == "n1"
    assert from_environment({**TASK, "RANK": "0", "WORLD_SIZE": "2"}).world_size == 2


@pytest.mark.parametrize(
    "environment",
    [
        {name: text for name, text in TASK.items() if name != "SLURM_STEP_ID"},
        {**TASK, "SLURM_STEP_ID": str(0xFFFFFFFA)},
        {},
    ],
)
def test_a_batch_script_and_the_shell_of_salloc_are_no_tasks(environment: dict[str, str]) -> None:
    assert SlurmStep.found(environment) is None
    assert from_environment(environment).world_size == 1


def test_jobs_and_steps_that_run_together_have_ports_of_their_own() -> None:
    def port(job: int, step: int) -> int:
        found = SlurmStep.found({**TASK, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)})
        assert found is not None
        return found.port

    for first in (0, 1, 19_500, 67_000_000):
        ports = [port(job, step) for job, step in itertools.product(range(first, first + 1000), range(19))]
        assert len(set(ports)) == len(ports)
        assert 10_000 <= min(ports) <= max(ports) < 30_000


def test_nonsense_is_named() -> None:
    with pytest.raises(SettingsError, match="SLURM_NTASKS='many' in the environment must be a whole number"):
        from_environment({**TASK, "SLURM_NTASKS": "many"})
    with pytest.raises(SettingsError, match="is not a list of hosts"):
        from_environment({**TASK, "SLURM_STEP_NODELIST": "n[1-"})


def test_restarts_are_counted() -> None:
    assert (restarts({}), restarts({"SLURM_RESTART_COUNT": "2"})) == (0, 2)
