"""A stream is shared out among peers and workers, and ends when the swarm has done its number of samples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from peers.data.dataset_checks import StreamError
from peers.data.progress import ProgressError
from peers.data.stream_batches import StreamBatches

FORKS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Numbers(IterableDataset[int]):
    """The same everywhere, and begun anew as often as one likes."""

    def __init__(self, count: int = 10**9) -> None:
        self.count = count
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class OfWorkers(IterableDataset[int]):
    """Leaves out what other workers have, as torch's documents say."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(start, 10**6, step))


def part_of(count: int) -> Any:
    return lambda part, parts: range(part, count, parts)


def plain(batches: StreamBatches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def flat(found: list[list[int]]) -> list[int]:
    return [one for batch in found for one in batch]


def alone(stream: Any, batch_size: int, batches: int, **options: Any) -> list[list[int]]:
    return plain(StreamBatches(stream, batch_size, batches, **options))


def swarm(stream: Any, count: int, batches: int, size: int = 3, **options: Any) -> list[StreamBatches]:
    """Return the loops of some peers, all of which hear at once what one of them has done."""
    loops: list[StreamBatches] = []

    def tell() -> None:
        for one in loops:
            for other in loops:
                other.progress.merge(one.progress.encode())

    def loop(rank: int) -> StreamBatches:
        return StreamBatches(stream, size, batches, rank=rank, ranks=lambda: range(count), on_progress=tell, **options)

    loops.extend(loop(rank) for rank in range(count))
    return loops


def in_turns(loops: list[StreamBatches]) -> list[list[int]]:
    """Let each peer take a batch in turn; return the samples of each."""
    taken: list[list[int]] = [[] for _ in loops]
    streams = dict(enumerate(map(iter, loops)))
    while streams:
        for rank in list(streams):
            batch = next(streams[rank], None)
            if batch is None:
                del streams[rank]
            else:
                taken[rank] += batch.tolist()
    return taken


def test_alone_a_peer_reads_the_stream_as_it_is_and_begins_it_anew_at_its_end() -> None:
    stream = Numbers(10)
    assert flat(alone(stream, 4, 6)) == [*range(10), *range(10), *range(4)]
    assert stream.epochs == [1, 2], "a stream that shuffles gets the number of the pass"


def test_a_function_opens_the_stream_anew() -> None:
    assert flat(alone(lambda part, parts: (one for one in [5, 6, 7, 8][part::parts]), 2, 4)) == [5, 6, 7, 8] * 2


@pytest.mark.parametrize("stream", [Numbers(), part_of(10**6)])
@pytest.mark.parametrize("workers", [0, 2])
@FORKS
def test_peers_and_workers_read_different_samples_and_leave_none_out(stream: Any, workers: int) -> None:
    loops = swarm(stream, 3, 24, num_workers=workers)
    taken = in_turns(loops)
    counts = Counter(one for part in taken for one in part)
    assert max(counts.values()) == 1
    # All are equally fast. Only near the end some have read further than others.
    assert set(range(60)) <= set(counts) < set(range(96))
    assert all(loop.progress.finished for loop in loops)
    assert [loop.samples for loop in loops] == [len(part) for part in taken]


@FORKS
def test_a_stream_that_looks_at_its_worker_loses_nothing() -> None:
    """It would leave out half for the other worker, and of the rest the peer would take every fourth sample."""
    taken = in_turns(swarm(OfWorkers(), 2, 16, num_workers=2))
    found = taken[0] + taken[1]
    assert len(set(found)) == len(found)
    assert set(range(36)) <= set(found)


@FORKS
def test_a_sharded_stream_is_taken_as_it_is_and_sees_its_worker() -> None:
    found = flat(alone(OfWorkers(), 3, 8, sharded=True, num_workers=2))
    assert sorted(found) == list(range(24))
    both = in_turns(swarm(Numbers(), 2, 8, sharded=True))
    assert both[0][:12] == both[1][:12] == list(range(12)), "the script said that they are different samples"


def test_more_parts_than_samples_leave_no_peer_without_any() -> None:
    assert [set(part) for part in in_turns(swarm(Numbers(3), 5, 20))] == [{0, 1, 2}] * 5
    # Of the function's parts two are empty. Their peers read the whole.
    assert [set(part) for part in in_turns(swarm(part_of(3), 5, 20))] == [{0}, {1}, {2}, {0, 1, 2}, {0, 1, 2}]


@pytest.mark.parametrize("seed", range(60))
def test_it_ends_with_the_swarms_total_whoever_lags_dies_or_joins(seed: int) -> None:
    rng = random.Random(seed)
    count, batches = rng.randint(2, 6), rng.randint(1, 60)
    live = set(range(count))
    believed = {rank: set(live) for rank in range(count + 1)}
    loops: dict[int, StreamBatches] = {}

    def begin(rank: int) -> Iterator[Any]:
        loops[rank] = StreamBatches(Numbers(), 2, batches, rank=rank, ranks=lambda: believed[rank], seed=seed)
        for other in loops.values():
            loops[rank].progress.merge(other.progress.encode())
        return iter(loops[rank])

    streams = {rank: begin(rank) for rank in range(count)}
    weights = {rank: rng.choice([1, 1, 10]) for rank in range(count + 1)}
    steps: Counter[int] = Counter()
    dies_at, joins_at = rng.randint(0, batches), rng.randint(0, batches)
    while streams:
        now = steps.total()
        assert now < 40 * (batches + 10), "the loop does not end"
        if now == dies_at and len(streams) > 1:
            dead = rng.choice(sorted(streams))
            del streams[dead]
            live.discard(dead)
            dies_at = -1
        if now == joins_at:
            streams[count] = begin(count)
            live.add(count)
            joins_at = -1
        if rng.random() < 0.3:  # somebody notices who is there
            believed[rng.randrange(count + 1)] = set(live)
        rank = rng.choices(sorted(streams), [weights[one] for one in sorted(streams)])[0]
        if next(streams[rank], None) is None:
            assert loops[rank].progress.finished
            del streams[rank]
        else:
            steps[rank] += 1
        met = loops[rng.choice(sorted(loops))]
        met.progress.merge(loops[rank].progress.encode())
        loops[rank].progress.merge(met.progress.encode())
    assert steps.total() >= batches, "it ended before the swarm was through"
    assert steps.total() <= 3 * batches + 4 * (count + 1), "what others have done is not done again by all"


def test_a_part_goes_over_to_the_others_when_a_peer_dies() -> None:
    live = [0, 1]
    loop = StreamBatches(Numbers(), 2, 100, rank=0, ranks=lambda: live)
    stream = iter(loop)
    assert [next(stream).tolist() for _ in range(2)] == [[0, 2], [4, 6]]
    live.remove(1)
    assert [next(stream).tolist() for _ in range(2)] == [[7, 8], [9, 10]]
    live.extend([1, 2])
    assert next(stream).tolist() == [12, 15]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["same", "parts", "sharded"])
@FORKS
def test_a_resumed_stream_goes_on_with_the_very_next_batch(workers: int, kind: str) -> None:
    stream = {"same": Numbers(50), "parts": part_of(50), "sharded": OfWorkers()}[kind]
    options = {"num_workers": workers, "sharded": kind == "sharded", "rank": 1, "ranks": lambda: [0, 1]}
    whole = alone(stream, 4, 20, **options)
    # With workers each stop costs processes.
    for stop in (0, 1, 2, 7, 19, 20) if not workers else (3, 16):
        first = StreamBatches(stream, 4, 20, **options)
        running = iter(first)
        before = [next(running).tolist() for _ in range(stop)]
        state = first.state()
        del running
        second = StreamBatches(stream, 4, 20, **options)
        second.restore(state)
        assert second.samples == first.samples == 4 * stop
        assert before + plain(second) == whole


def test_another_number_of_workers_leaves_no_sample_out() -> None:
    first = StreamBatches(Numbers(), 2, 100, num_workers=0)
    first._workers = 2  # as if two had read
    first._reading.positions = [first._reading.positions[0]._replace(read=8, total=8)] * 2
    first._reading.positions[1] = first._reading.positions[1]._replace(read=5, total=5)
    second = StreamBatches(Numbers(), 2, 100)
    second.restore(first.state())
    assert next(iter(second)).tolist() == [5, 6]


def test_a_part_that_has_changed_is_read_from_its_start() -> None:
    first = StreamBatches(part_of(100), 2, 10, rank=1, ranks=lambda: [0, 1])
    assert next(iter(first)).tolist() == [1, 3]
    for ranks, goes_on in (([0, 1], [5, 7]), ([0, 1, 2], [1, 4])):
        second = StreamBatches(part_of(100), 2, 10, rank=1, ranks=lambda ranks=ranks: ranks)
        second.restore(first.state())
        assert next(iter(second)).tolist() == goes_on


@pytest.mark.parametrize("workers", [0, 2])
@FORKS
def test_a_generator_that_is_used_up_ends_this_peers_loop_and_says_so(workers: int) -> None:
    said: list[str] = []
    found = alone((one for one in range(7)), 2, 50, warn=said.append, num_workers=workers)
    assert sorted(flat(found)) == list(range(7))
    assert len(said) == 1
    assert "the stream generator has ended after 7 samples at this peer" in said[0]
    assert "of 100 samples" in said[0]


@pytest.mark.parametrize("stream", [Numbers(0), [].__iter__(), part_of(0)])
def test_a_stream_without_any_sample_is_an_error(stream: Any) -> None:
    with pytest.raises(StreamError, match=r"yields no sample at rank 3\. Check what it reads"):
        alone(stream, 2, 5, rank=3)


def test_a_stream_that_fails_says_why() -> None:
    def failing(part: int, parts: int) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError(f"part {part} of {parts}")

    with pytest.raises(ZeroDivisionError, match="part 0 of 1"):
        alone(failing, 1, 5)


def test_random_numbers_of_a_resumed_run_do_not_depend_on_the_interruption() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    next(iter(StreamBatches(Numbers(), 1, 3)))
    assert torch.rand(1) == expected


@pytest.mark.parametrize("where", range(0, 110, 4))
def test_a_damaged_state_is_refused_or_leads_nowhere_bad(where: int) -> None:
    made = StreamBatches(Numbers(), 2, 10)
    next(iter(made))
    state = bytearray(made.state())
    state[min(where, len(state) - 1)] ^= 0xFF
    for bad in (bytes(state), bytes(state[:where])):
        again = StreamBatches(Numbers(), 2, 10)
        before = again.state()
        try:
            again.restore(bad)
        except ProgressError:
            assert again.state() == before
        else:
            assert again._reading.positions[0] >= (0, 0, 0)


def test_the_state_of_another_loop_is_refused() -> None:
    state = StreamBatches(Numbers(), 2, 10).state()
    with pytest.raises(ProgressError, match="another data set"):
        StreamBatches(Numbers(), 2, 11).restore(state)
    with pytest.raises(ProgressError, match="of a loop over something else"):
        StreamBatches(Numbers(), 2, 10).restore(b"gba1" + state)
