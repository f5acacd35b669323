"""The order of an epoch is the same everywhere, and the ranks' parts of it make up the data set."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from torch.utils.data import DataLoader

from gossip.errors import SettingsError
from peers.data.sampler import PeerSampler, shuffled
from topologies.draws import Shuffle


@pytest.mark.parametrize("n", [1, 2, 6, 64, 255, 256, 257, 258, 1000, 4099])
def test_the_order_is_the_shuffle_of_the_topologies_bit_for_bit(n: int) -> None:
    for seed, epoch in ((0, 0), (7, 3), (-1, 2**40)):
        scalar = Shuffle(n, seed, epoch)
        found = shuffled(n, seed, epoch, np.arange(n)).tolist()
        assert found == [scalar(position) for position in range(n)]
        assert sorted(found) == list(range(n))


def test_a_few_of_a_billion_cost_nothing() -> None:
    scalar = Shuffle(10**9, 5, 1)
    positions = [0, 1, 2, 10**8, 10**9 - 1]
    assert shuffled(10**9, 5, 1, np.array(positions)).tolist() == [scalar(p) for p in positions]


def test_the_order_is_the_same_for_ever() -> None:
    assert list(PeerSampler(10, 0, 1, seed=3)) == [0, 7, 1, 4, 6, 2, 5, 8, 9, 3]
    assert list(PeerSampler(1000, 1, 100, seed=3)) == [30, 609, 435, 858, 636, 655, 999, 895, 807, 474]


@pytest.mark.parametrize(("n", "ranks"), [(10, 3), (9, 3), (1, 1), (2, 5), (10_000, 2), (300, 300)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_parts_are_disjoint_and_complete_and_differ_by_at_most_one(n: int, ranks: int, shuffle: bool) -> None:
    parts = [PeerSampler(n, rank, ranks, shuffle=shuffle) for rank in range(ranks)]
    lists = [list(part) for part in parts]
    assert [len(part) for part in parts] == [len(found) for found in lists]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert sorted(index for found in lists for index in found) == list(range(n))
    if not shuffle:
        assert lists[0] == list(range(0, n, ranks))


@pytest.mark.parametrize(("n", "ranks"), [(10, 3), (9, 3), (2, 5)])
def test_padding_makes_all_parts_equally_long(n: int, ranks: int) -> None:
    lists = [list(PeerSampler(n, rank, ranks, pad=True)) for rank in range(ranks)]
    assert {len(found) for found in lists} == {-(-n // ranks)}
    counts = Counter(index for found in lists for index in found)
    assert set(counts) == set(range(n))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_each_epoch_and_seed_has_its_order() -> None:
    sampler = PeerSampler(range(1000), 0, 2, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(PeerSampler(1000, 0, 2, seed=2)) != first


def test_it_works_in_a_loader() -> None:
    data = [10 * i for i in range(21)]
    seen = [
        int(value)
        for rank in range(2)
        for batch in DataLoader(data, batch_size=4, sampler=PeerSampler(data, rank, 2))  # type: ignore[arg-type]
        for value in batch
    ]
    assert sorted(seen) == data


def test_a_loader_or_a_stream_is_refused_with_advice() -> None:
    with pytest.raises(SettingsError, match=r"peer\.sampler\(loader\.dataset\) for a loader of your own"):
        PeerSampler(DataLoader([1, 2]), 0, 1)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="no length and index"):
        PeerSampler(iter([1, 2]), 0, 1)  # type: ignore[arg-type]


def test_a_loader_that_shuffles_as_well_is_refused_by_torch() -> None:
    with pytest.raises(ValueError, match="sampler option is mutually exclusive with shuffle"):
        DataLoader([1, 2], sampler=PeerSampler(2, 0, 1), shuffle=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "rank", "ranks"), [(0, 0, 1), (5, 2, 2), (5, -1, 2), (5, 0, 0)])
def test_nonsense_is_refused(n: int, rank: int, ranks: int) -> None:
    with pytest.raises(SettingsError):
        PeerSampler(n, rank, ranks)
