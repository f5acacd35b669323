"""Which rank a process has where no launcher says it: by the number of a pod, or by the name of its host."""

from __future__ import annotations

import pytest

import peers
from gossip.errors import SettingsError
from peers.own_place import rank_here
from peers.setup import Setup, check_environment, from_environment

HOSTS = ["train-0.train:7000", "train-1.train:7000", "10.0.0.3:7000", "gpu-03:7000", "gpu-03:7001", "[::1]:7000"]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("train-0", 0),
        ("train-1", 1),
        ("TRAIN-1", 1),
        ("train-1.train", 1),
        ("train-1.train.default.svc.cluster.local", None),
        ("train-2", None),
        ("train", None),
        ("gpu-03", None),
        ("10", None),
        ("10.0.0.3", None),
    ],
)
def test_a_host_is_found_by_its_name_if_that_is_there_once(name: str, rank: int | None) -> None:
    assert rank_here({}, HOSTS, name) == rank


def test_the_number_of_a_pod_comes_first() -> None:
    assert rank_here({"JOB_COMPLETION_INDEX": "1"}, HOSTS, "train-0") == 1
    with pytest.raises(SettingsError, match="JOB_COMPLETION_INDEX='-1' in the environment must be a whole number"):
        rank_here({"JOB_COMPLETION_INDEX": "-1"}, HOSTS)


def test_a_pod_needs_no_more_than_hosts() -> None:
    pod = {"JOB_COMPLETION_INDEX": "1", "GOSSIP_HOSTS": "127.0.0.[1-3]:0"}
    with peers.join(pod) as peer:
        assert (peer.rank, peer.world_size) == (1, 3)
    # Who is told a rank has that one, and an index that is too large is an error.
    with peers.join({**pod, "GOSSIP_RANK": "2"}) as peer:
        assert peer.rank == 2
    with peers.join(pod, rank=0) as peer:
        assert peer.rank == 0
    with pytest.raises(SettingsError, match="rank 3 is out of range: with 3 peers"):
        peers.join({**pod, "JOB_COMPLETION_INDEX": "3"})


def test_with_a_world_size_the_number_is_a_rank_as_well() -> None:
    assert from_environment({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4"}).rank == 2
    assert from_environment({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4", "RANK": "1"}).rank == 1
    assert check_environment({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4"}) == ""


def test_a_pod_that_trains_alone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with peers.join({"JOB_COMPLETION_INDEX": "2"}) as peer:
        assert peer.world_size == 1
    assert "trains alone, though it is number 2 of an Indexed Job: set GOSSIP_HOSTS" in caplog.text
    caplog.clear()
    with peers.join({"JOB_COMPLETION_INDEX": "2", "GOSSIP_WORLD_SIZE": "1"}) as peer:
        assert peer.world_size == 1
    assert "trains alone" not in caplog.text


def test_hosts_may_be_written_short() -> None:
    short = Setup().changed(rank=2, hosts=["train-[0-1].train:7000", "[fd00::3]:7000"])
    assert short.hosts == ("train-0.train:7000", "train-1.train:7000", "[fd00::3]:7000")
    assert short.world_size == 3
    with pytest.raises(SettingsError, match="is not a list of hosts"):
        Setup().changed(hosts=["train-[0-.train:7000"])
