"""Progress is a set that only grows, whatever the network does, and the claim rule gets a swarm through every chunk."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from data_cases import Swarm, Worker
from hypothesis import given
from hypothesis import strategies as st

from peers.data.progress import CHUNK_LIMIT, WINDOW, Progress, ProgressError
from topologies.draws import chance

CHUNKS, EPOCHS = 11, 6
PAIRS = st.tuples(st.integers(0, EPOCHS - 1), st.integers(0, CHUNKS - 1))
STATES = st.tuples(st.integers(0, EPOCHS), st.sets(PAIRS, max_size=30))


def progress(state: tuple[int, set[tuple[int, int]]]) -> Progress:
    """Return progress with some epochs complete and some chunks of the window beyond."""
    made = Progress(CHUNKS, EPOCHS)
    complete, marks = state
    for epoch in range(complete):
        for chunk in range(CHUNKS):
            made.mark(epoch, chunk)
    for epoch, chunk in sorted(marks):
        if epoch < made.epoch + WINDOW:
            made.mark(epoch, chunk)
    return made


def known(of: Progress) -> set[tuple[int, int]]:
    return {(epoch, chunk) for epoch in range(of.epochs) for chunk in range(of.chunks) if of.done(epoch, chunk)}


def merged(*parts: Progress) -> Progress:
    result = Progress(CHUNKS, EPOCHS)
    for part in parts:
        result.merge(part.encode())
    return result


@given(STATES, STATES, STATES)
def test_merging_is_the_union_in_any_order_and_any_number_of_times(
    a: tuple[int, set[tuple[int, int]]], b: tuple[int, set[tuple[int, int]]], c: tuple[int, set[tuple[int, int]]]
) -> None:
    x, y, z = progress(a), progress(b), progress(c)
    whole = merged(x, y, z)
    assert known(whole) == known(x) | known(y) | known(z)
    for other in (merged(z, y, x), merged(merged(x, y), z), merged(x, merged(y, z)), merged(x, x, y, z, y, x)):
        assert other.encode() == whole.encode()
    assert not whole.merge(x.encode())
    assert not whole.merge(whole.encode())
    assert x.merge(y.encode()) == bool(known(y) - known(progress(a)))


@given(STATES)
def test_what_is_known_survives_the_wire(state: tuple[int, set[tuple[int, int]]]) -> None:
    one, other = progress(state), Progress(CHUNKS, EPOCHS)
    assert other.merge(one.encode()) == bool(known(one))
    assert known(other) == known(one)
    assert (other.epoch, other.fraction, other.finished) == (one.epoch, one.fraction, one.finished)
    assert other.fraction == len(known(other)) / (CHUNKS * EPOCHS)
    assert other.finished == (len(known(other)) == CHUNKS * EPOCHS)
    assert [other.done(e) for e in range(EPOCHS)] == [
        all(other.done(e, c) for c in range(CHUNKS)) for e in range(EPOCHS)
    ]


@pytest.mark.parametrize(
    ("batches", "chunks", "size"),
    [(1, 1, 1), (100, 100, 1), (4096, 4096, 1), (4097, 2049, 2), (10**9 // 32, 4096, 7630), (10**9, 4096, 244141)],
)
def test_chunks_cover_the_epoch_and_are_as_many_as_the_limit_allows(batches: int, chunks: int, size: int) -> None:
    made = Progress(batches, 3)
    assert (made.chunks, len(made.span(0))) == (chunks, size)
    assert made.chunks <= CHUNK_LIMIT
    ends = [made.span(chunk) for chunk in range(made.chunks)]
    assert ends[0].start == 0
    assert ends[-1].stop == batches
    assert all(left.stop == right.start and len(right) >= 1 for left, right in itertools.pairwise(ends))


def test_a_billion_samples_fit_into_two_kilobytes_at_the_worst() -> None:
    made = Progress(10**9, 1000)
    for epoch in range(WINDOW):
        for chunk in range(1, made.chunks):
            made.mark(epoch, chunk)
    assert len(made.encode()) == 37 + 4 * 512
    for epoch in range(WINDOW):
        made.mark(epoch, 0)
    assert (made.epoch, len(made.encode())) == (WINDOW, 37)


def head(
    magic: bytes = b"gpr1", batches: int = 11, epochs: int = 6, key: int = 0, complete: int = 0, maps: int = 0
) -> bytes:
    return struct.pack("<4sQQQQB", magic, batches, epochs, key, complete, maps)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "truncated"),
        (head()[:-1], "truncated"),
        (head(magic=b"gpr9"), "another version"),
        (head(batches=12), "another data set"),
        (head(key=1), "another data set"),
        (head(epochs=7), "7 epochs"),
        (head(epochs=5), "5 epochs"),
        (head(complete=7), "epochs can be open"),
        (head(complete=2**64 - 1), "epochs can be open"),
        (head(complete=5, maps=2) + bytes(4), "epochs can be open"),
        (head(maps=5) + bytes(10), "epochs can be open"),
        (head(maps=1) + bytes(1), "bytes instead of"),
        (head(maps=1) + bytes(3), "bytes instead of"),
        (head(maps=0) + bytes(10**6), "bytes instead of"),
        (head(maps=2) + b"\xff\x07\x00\x08", "do not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_bad_bytes_get_a_clear_error_and_change_nothing(data: bytes, says: str) -> None:
    made = progress((1, {(1, 2), (3, 4)}))
    before = made.encode()
    with pytest.raises(ProgressError, match=says) as caught:
        made.merge(data)
    assert isinstance(caught.value, ValueError)
    assert made.encode() == before


@given(st.binary(max_size=80), st.integers(0, 60), STATES)
def test_random_damage_is_refused_or_harmless(
    noise: bytes, start: int, state: tuple[int, set[tuple[int, int]]]
) -> None:
    made, good = progress((0, {(0, 3)})), progress(state).encode()
    for data in (noise, good[:start] + noise + good[start + len(noise) :], good + noise[:1]):
        before = known(made)
        try:
            made.merge(data)
        except ProgressError:
            assert known(made) == before
        assert known(made) >= before
        assert len(made.encode()) <= 37 + WINDOW * 2


def test_a_longer_run_goes_on_with_a_shorter_one_only_when_asked_to() -> None:
    short, long = Progress(5, 2), Progress(5, 3)
    for epoch in range(2):
        for chunk in range(5):
            short.mark(epoch, chunk)
    with pytest.raises(ProgressError):
        long.merge(short.encode())
    assert long.merge(short.encode(), longer=True)
    assert (long.epoch, long.finished) == (2, False)
    with pytest.raises(ProgressError):
        short.merge(long.encode(), longer=True)


@pytest.mark.parametrize(("epoch", "chunk"), [(0, 11), (0, -1), (-1, 0), (6, 0), (WINDOW, 0)])
def test_impossible_marks_are_refused(epoch: int, chunk: int) -> None:
    made = Progress(CHUNKS, EPOCHS)
    with pytest.raises(ProgressError):
        made.mark(epoch, chunk)
    assert made.fraction == 0


@pytest.mark.parametrize(("batches", "epochs"), [(0, 1), (1, 0), (-1, 1)])
def test_nothing_to_do_is_refused(batches: int, epochs: int) -> None:
    with pytest.raises(ProgressError):
        Progress(batches, epochs)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 40])
def test_the_stripes_of_one_view_share_out_the_epoch_evenly(n: int) -> None:
    swarm = [Progress(40, 1) for _ in range(n)]
    firsts = [
        [swarm[rank].next_chunk(rank, range(n)) for _ in range(40 // n)] for rank in range(n)
    ]  # only what is one's own: a helper's choice comes after it
    taken = [claim for claims in firsts for claim in claims]
    assert len(set(taken)) == len(taken) == 40 // n * n


def test_a_helper_leaves_the_first_chunk_of_each_owner_and_goes_on_with_the_next_epoch() -> None:
    owners = [Progress(12, 2) for _ in range(3)]
    own = {rank: [owners[rank].next_chunk(rank, range(3)) for _ in range(4)] for rank in range(3)}
    helper = Progress(12, 2)
    for claim in own[0]:
        assert claim is not None
        helper.mark(*claim)
    claims = [helper.next_chunk(0, range(3)) for _ in range(7)]
    assert set(claims[:6]) == {*own[1][1:], *own[2][1:]}
    assert claims[0] in (own[1][3], own[2][3]), "a helper begins at the end of the order"
    assert claims[6] is not None
    assert claims[6][0] == 1


def test_two_helpers_do_not_take_the_same() -> None:
    claims: dict[int, list[tuple[int, int] | None]] = {}
    for helper in (0, 1):
        made = Progress(400, 2)
        for rank in (0, 1):
            other = Progress(400, 2)
            for _ in range(100):
                claim = other.next_chunk(rank, range(4))
                assert claim is not None
                made.mark(*claim)
        claims[helper] = [made.next_chunk(helper, range(4)) for _ in range(80)]
    assert not set(claims[0]) & set(claims[1])


@pytest.mark.parametrize("view", [[], [0], [0, 1, 2], [7, 9], list(range(1000))])
def test_alone_a_peer_claims_everything_once_whatever_it_believes(view: list[int]) -> None:
    made = Progress(23, 9)
    claims = []
    while (claim := made.next_chunk(0, view)) is not None:
        claims.append(claim)
    assert sorted(claims) == [(epoch, chunk) for epoch in range(9) for chunk in range(23)]
    for claim in claims:
        assert not made.finished
        assert made.mark(*claim)
    assert made.finished
    assert made.next_chunk(0, view) is None


def test_claims_that_are_released_can_be_claimed_again() -> None:
    made = Progress(5, 1)
    first = [made.next_chunk(0, [0]) for _ in range(6)]
    assert first[5] is None
    made.release()
    assert [made.next_chunk(0, [0]) for _ in range(6)] == first
    made.release()
    assert first[0] is not None
    made.claim(*first[0])
    assert made.next_chunk(0, [0]) == first[1]


def slow(rank: int, pace: float) -> Callable[[], list[Worker]]:
    return lambda: [Worker(r, pace if r == rank else 1.0) for r in range(8)]


def fickle(worker: Worker, now: float) -> list[int]:
    """A view of its own for each peer, that changes all the time and holds the dead and the unborn."""
    return [r for r in range(12) if chance(0.7, worker.rank, r, int(now / 7))]


INCIDENTS: dict[str, tuple[Callable[[], list[Worker]], dict[str, object]]] = {
    "equal": (slow(0, 1), {}),
    "straggler": (slow(3, 10), {}),
    "straggler, claims ahead": (slow(3, 10), {"ahead": 4}),
    "hung": (slow(3, 200), {}),
    "death, noticed": (lambda: [Worker(r, dies=20 if r in (2, 5) else float("inf")) for r in range(8)], {}),
    "death, never noticed": (
        lambda: [Worker(r, dies=20 if r in (2, 5) else float("inf")) for r in range(8)],
        {"notice": 1e9},
    ),
    "only one survives": (
        lambda: [Worker(r, dies=float("inf") if r == 6 else 5 + r) for r in range(8)],
        {"notice": 1e9},
    ),
    "joins": (lambda: [Worker(r, joins=15 if r > 4 else 0) for r in range(8)], {}),
    "bad network": (slow(1, 4), {"fanout": 2, "loss": 0.3, "doubled": 0.3, "delay": 3.0, "ahead": 2}),
    "no news at all": (slow(1, 4), {"loss": 1.0}),
    "views differ": (slow(2, 3), {"view": fickle, "fanout": 2}),
    "all believe they are alone": (slow(2, 3), {"view": lambda worker, _: [worker.rank]}),
}


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_swarm_sees_every_chunk_of_every_epoch_and_ends(incident: str) -> None:
    for seed in range(12):
        for batches, epochs in ((100, 2), (7, 6), (1, 9)):
            workers, options = INCIDENTS[incident]
            Swarm(workers(), batches, epochs, seed, **options).run().check()  # type: ignore[arg-type]


#: At most this much work beyond the data. The test prints how much it is: `pytest -n 0 -s -k done_twice`.
BARS = {
    "equal": 0.015,
    "straggler": 0.03,
    "straggler, claims ahead": 0.05,
    "hung": 0.03,
    "death, noticed": 0.02,
    "death, never noticed": 0.04,
    "joins": 0.02,
    "bad network": 0.08,
    "views differ": 0.12,
    "all believe they are alone": 0.08,
}


@pytest.mark.parametrize("incident", BARS)
def test_little_is_done_twice(incident: str) -> None:
    found = []
    for seed in range(2):
        workers, options = INCIDENTS[incident]
        swarm = Swarm(workers(), 1000, 2, seed, **options).run()  # type: ignore[arg-type]
        swarm.check()
        found.append(swarm.duplicates)
    print(f"done twice: {max(found):6.2%}   8 peers, 1000 chunks, 2 epochs: {incident}")
    assert max(found) <= BARS[incident]


def test_a_stragglers_share_goes_to_the_others_and_nobody_waits_for_it() -> None:
    swarm = Swarm([Worker(r, 10.0 if r == 3 else 1.0) for r in range(8)], 1000, 2).run()
    swarm.check()
    done = {worker.rank: worker.chunks_done for worker in swarm.workers}
    fast = [count for rank, count in done.items() if rank != 3]
    assert done[3] <= 32  # a tenth of the others' 281, and not the eighth of 2000 that it owns
    assert min(fast) >= 0.95 * max(fast)
    # 7.1 normal peers need 2000 / 7.1 = 282 for it, alone at its own pace the straggler would need 2500.
    assert max(worker.ended or 0 for worker in swarm.workers if worker.rank != 3) <= 1.05 * 2000 / 7.1
    assert max(worker.ended or 0 for worker in swarm.workers) <= 1.05 * 2000 / 7.1 + 11


def test_a_peer_that_comes_back_with_old_knowledge_does_no_harm() -> None:
    one, other = Progress(30, 2), Progress(30, 2)
    old = b""
    for step in range(40):
        claim = one.next_chunk(0, [0, 1])
        assert claim is not None
        one.mark(*claim)
        old = one.encode() if step == 10 else old
    other.merge(one.encode())
    again = Progress(30, 2)
    again.merge(old)
    assert not other.merge(again.encode())
    assert again.merge(other.encode())
    assert known(again) == known(one)


class Watched(Progress):
    """Progress that notices when its bits are touched by somebody who does not hold the lock."""

    @property  # type: ignore[override]
    def _bits(self) -> list[np.ndarray]:
        assert self._lock.locked()
        return self._hidden

    @_bits.setter
    def _bits(self, value: list[np.ndarray]) -> None:
        assert self._lock.locked() or not hasattr(self, "_hidden")
        self._hidden = value


def test_the_network_thread_and_the_trainer_cannot_meet_in_the_bits() -> None:
    made = Watched(5, 2)
    for use in (
        made.encode,
        lambda: made.next_chunk(0, [0, 1]),
        lambda: made.mark(0, 1),
        lambda: made.merge(Progress(5, 2).encode()),
        lambda: made.done(0),
        lambda: made.done(0, 1),
        lambda: made.fraction,
    ):
        use()
        assert not made._lock.locked()
    with pytest.raises(ProgressError):
        made.mark(9, 9)
    with pytest.raises(ProgressError):
        made.merge(b"")
    assert not made._lock.locked(), "an error must not leave the lock behind"


def test_at_the_end_idle_peers_spread_over_what_others_are_at() -> None:
    """8 of 64 peers own a chunk; the other 56 can only do those too, and shall not all choose the same."""
    choices = Counter(Progress(8, 1).next_chunk(rank, range(64)) for rank in range(64))
    assert len(choices) == 8
    assert max(choices.values()) <= 16
