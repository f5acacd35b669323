"""Memory is used again once nobody refers to it, and never before."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest
from hand_swarm import ONE_WAY, Hand, only

from gossip import events
from gossip.values.blocks import BFLOAT16
from gossip.values.pool import Pool
from gossip.wire.messages import Address, Parcel, Refusal

F4 = np.dtype(np.float32)


def place(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_what_nobody_refers_to_is_used_again() -> None:
    pool = Pool(1 << 20)
    first = pool.take(1000, F4)
    where = place(first)
    assert pool.free_bytes == 0
    del first
    assert pool.free_bytes == 4000
    assert place(pool.take(1000, F4)) == where


def test_another_size_is_other_memory() -> None:
    pool = Pool(1 << 20)
    pool.take(1000, F4)
    assert pool.take(1001, F4).size == 1001
    assert pool.take(2000, BFLOAT16).size == 2000, "as many bytes, and so the same memory"
    assert pool.free_bytes == 4000 + 4004


@pytest.mark.parametrize(
    "refer",
    [
        lambda array: array[10:20],
        lambda array: array[10:][:5][::2],
        lambda array: array.view(np.uint8),
        lambda array: array.view(np.uint8).data,
        lambda array: array.view(np.uint8).data[3:],
        lambda array: memoryview(array),
        lambda array: np.frombuffer(array.view(np.uint8).data, np.uint8),
        lambda array: array.reshape(10, 100).T[3],
        lambda array: [array],
    ],
)
def test_any_reference_keeps_the_memory(refer) -> None:
    pool = Pool(1 << 20)
    array = pool.take(1000, F4)
    where = place(array)
    held = refer(array)
    del array
    assert pool.free_bytes == 0
    assert place(pool.take(1000, F4)) != where, "somebody may read it still"
    del held
    assert place(pool.take(1000, F4)) in {where} or pool.free_bytes


def test_what_is_beyond_the_limit_is_given_up() -> None:
    pool = Pool(10_000)
    arrays = [pool.take(1000, F4) for _ in range(5)]
    del arrays
    assert pool.free_bytes == 8000


def test_memory_comes_back_from_any_thread_and_after_the_pool_is_gone() -> None:
    pool = Pool(1 << 20)
    held = [pool.take(1000, F4)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert pool.free_bytes == 4000
    last, gone = pool.take(1000, F4), weakref.ref(pool)
    del pool
    last[:] = 1.0
    del last
    assert gone() is None


def swarm() -> Hand:
    return Hand([1.0] * 8, [3.0] * 8, turns=[ONE_WAY], algorithm="osgp", resend_first=0.1)


def test_a_parcel_on_its_way_keeps_its_memory_and_an_answered_one_gives_it_back() -> None:
    hand = swarm()
    hand.step(0)
    (where,) = {place(entry.parcel.values) for entry in hand.cores[0].outbox}
    hand.settle()
    hand.step(1)  # in one process the receiver has the sender's memory until it merges
    hand.step(0)
    (again,) = {place(entry.parcel.values) for entry in hand.cores[0].outbox}
    assert again == where, "answered, and nobody has it any more"


def test_a_late_copy_keeps_the_values_that_it_was_sent_with() -> None:
    """The parcel is answered by way of its second copy, while the first is still on its way."""
    hand = swarm()
    hand.step(0)
    late = hand.post[0]
    hand.tick(0, 1.0)
    assert len(hand.post) == 2
    hand.post.remove(late)
    hand.settle()
    assert not len(hand.cores[0].outbox)
    hand.cores[0].mass.values[:] = 7.0
    hand.step(0)
    (first,) = [message for message in (hand.read(late),) if isinstance(message, Parcel)]
    assert first.values.tolist() == [1.0] * 8, "a seal would not fit if the memory had been used again"


def test_what_was_taken_back_and_waits_is_not_overwritten_by_the_next_push() -> None:
    hand = Hand([1.0] * 8, [3.0] * 8, turns=[ONE_WAY], algorithm="osgp", weight_floor=0.0)
    hand.step(0)
    hand.post.clear()
    assert only(hand.tell(0, Refusal(Address(1, 0), Address(0, 0), 0)), events.TakenBack)
    (pile,) = hand.cores[0].inbox
    where = place(pile.values)
    core = hand.cores[0]
    others = [core.mass.snapshot(0) for _ in range(4)]
    assert all(one is not None and place(one.values) != where for one in others)
    assert pile.values.tolist() == [1.0] * 8


def test_values_that_are_not_finite_leave_no_memory_behind() -> None:
    hand = swarm()
    hand.cores[0].mass.values[3] = np.nan
    assert hand.cores[0].mass.snapshot(0) is None
    assert only(hand.step(0), events.NotFinite)
    assert hand.cores[0].mass._pool.free_bytes == 64
