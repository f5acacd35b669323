"""Layouts: every element in exactly one shard, and the shards as even as possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.errors import SettingsError
from gossip.values.layout import Layout

F4 = np.dtype(np.float32)


@given(st.integers(1, 5000), st.data())
def test_the_shards_cover_every_element_once_and_evenly(size: int, data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, min(size, 300)))
    layout = Layout.uniform(size, shards, F4)
    assert [i for start, stop in layout.bounds for i in range(start, stop)] == list(range(size))
    lengths = {stop - start for start, stop in layout.bounds}
    assert max(lengths) - min(lengths) <= 1
    assert sum(layout.nbytes(shard) for shard in range(shards)) == 4 * size


@given(st.integers(1, 10_000), st.integers(8, 4096), st.sampled_from(["f2", "f4", "f8"]))
def test_a_cut_has_as_few_shards_of_at_most_so_many_bytes_as_can_be(size: int, shard_bytes: int, dtype: str) -> None:
    layout = Layout.cut(size, shard_bytes, dtype)
    sizes = [layout.nbytes(shard) for shard in range(layout.shards)]
    assert max(sizes) <= shard_bytes
    assert min(sizes) > 0
    per_shard = shard_bytes // np.dtype(dtype).itemsize
    assert layout.shards == 1 or (layout.shards - 1) * per_shard < size


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Layout.uniform(3, 4, F4), "3 parameters can form 1 to 3 shards, not 4"),
        (lambda: Layout.uniform(3, 0, F4), "not 0"),
        (lambda: Layout.uniform(3, -1, F4), "not -1"),
        (lambda: Layout.uniform(3, 1, np.dtype(np.int32)), "dtype=int32: mass is made of floating-point numbers"),
        (
            lambda: Layout.uniform(3, 1, np.dtype(np.complex64)),
            "dtype=complex64: mass is made of floating-point numbers",
        ),
        (lambda: Layout.cut(0, 64), "size=0: there is nothing to share"),
        (lambda: Layout.cut(5, 3), "shard_bytes=3: a shard must hold at least one element of 4 bytes"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(make: object, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make()  # type: ignore[operator]
    assert said in str(caught.value)
