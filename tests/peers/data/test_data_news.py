"""What peers say of their data: a few bytes, and nothing that is heard can do harm."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from peers.data.data_news import DataNews, Loop, Sampled
from peers.data.fingerprints import rows_hash, sketch_of
from peers.data.inputs import NO_EVIDENCE

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**63) | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)


def speaking(rank: int) -> tuple[DataNews, list[str]]:
    warnings: list[str] = []
    news = DataNews(rank, warnings.append)
    news.begin(Loop(0, 100, 4, 2, 0.5))
    news.sample(Sampled(100, None))
    news.saw(1 << 60, constant=False)
    return news, warnings


def test_it_takes_few_bytes() -> None:
    assert len(speaking(3)[0].encode()) < 50


@given(st.binary(max_size=60) | anything.map(msgpack.packb))
def test_hostile_bytes_are_refused_or_change_nothing(data: bytes) -> None:
    news, _ = speaking(0)
    before = news.encode()
    with suppress(ValueError):
        assert news.merge(data) is False
    assert news.encode() == before


def test_what_a_later_release_adds_is_passed_over() -> None:
    news, warnings = speaking(0)
    news.merge(msgpack.packb([1, 1 << 60, [0, 100, 4, 2, 0.5, "more"], [[100, None, "more"]], "more"]))
    assert [("draw the same" in text) for text in warnings] == [True]


def test_a_former_life_of_this_peer_is_not_another_peer() -> None:
    news, warnings = speaking(0)
    news.merge(news.encode())
    assert warnings == []


@pytest.mark.parametrize(("again", "constant", "notices"), [(False, False, 1), (True, False, 0), (False, True, 0)])
def test_a_later_life_and_inputs_that_never_change_bring_no_notice(again: bool, constant: bool, notices: int) -> None:
    warnings: list[str] = []
    other, news = DataNews(1, warnings.append), DataNews(0, warnings.append, again=again)
    other.saw(7, constant=False)
    news.saw(NO_EVIDENCE, constant=constant)
    for _ in range(2):
        news.merge(other.encode())
        other.merge(news.encode())
    assert ["neither peer.batches nor peer.sampler" in text for text in warnings] == [True] * notices


def test_what_was_heard_before_this_peer_had_something_to_compare_counts() -> None:
    other, _ = speaking(1)
    warnings: list[str] = []
    news = DataNews(0, warnings.append)
    news.merge(other.encode())
    assert warnings == []
    news.begin(Loop(0, 99, 4, 2, 0.5))
    news.other_progress(0, "of other data")
    assert len(warnings) == 1
    assert "99 samples in batches of 4 for 2 epochs, but rank 1 goes through 100" in warnings[0]


def test_a_peer_that_says_nothing_of_its_data_is_told_of_by_its_progress() -> None:
    news, warnings = speaking(0)
    for _ in range(3):
        news.other_progress(0, "the progress is of a run of 3 epochs, but this run has 2")
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(4, 3),
        torch.linspace(-1, 1, 12).reshape(4, 3).to(torch.bfloat16),
        torch.linspace(-1, 1, 40).reshape(4, 2, 5).to(torch.complex64),
        torch.eye(4) > 0.5,
        torch.linspace(-1, 1, 280_000).reshape(4, 70_000),
    ],
)
def test_rows_count_in_any_order_and_differences_are_seen(tensor: torch.Tensor) -> None:
    assert rows_hash(tensor, 1) == rows_hash(tensor[[2, 0, 3, 1]], 1)
    assert rows_hash(tensor, 1) != rows_hash(tensor, 2)
    assert rows_hash(tensor[:3], 1) != rows_hash(tensor[1:], 1)
    assert rows_hash(tensor.flatten()[0], 1) == rows_hash(tensor.flatten()[0].clone(), 1)


def parts(kind: str, rank: int) -> object:
    indices = list(range(rank, 1000, 4))
    whole = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    match kind:
        case "list":
            return [f"shard-{one}.tar" for one in indices]
        case "numbers":
            return indices
        case "array":
            return whole.numpy()[rank::4]
        case "tensors":
            return TensorDataset(whole[rank::4], torch.zeros(250))
        case "subset":
            return Subset(range(1000), indices)  # type: ignore[arg-type]
        case "nested":
            return ConcatDataset([Subset(TensorDataset(whole), np.array(indices))])  # type: ignore[arg-type]
    return [{"x": one, "label": 0} for one in whole[rank::4]]


@pytest.mark.parametrize("kind", ["list", "numbers", "array", "tensors", "subset", "nested", "dicts"])
def test_parts_of_a_data_set_differ_and_equal_ones_do_not(kind: str) -> None:
    sketches = [sketch_of(parts(kind, rank)) for rank in range(4)]
    assert all(one is not None for one in sketches)
    apart = [abs(one - other) for one in sketches for other in sketches if one is not other]  # type: ignore[operator]
    assert min(apart) > 1e-3
    assert sketch_of(parts(kind, 0)) == sketches[0]


@pytest.mark.parametrize("empty", [[], (), [object()], TensorDataset(torch.zeros(3, 0)), np.array([["a"]])])
def test_odd_data_sets_have_a_sketch_or_none(empty: object) -> None:
    assert isinstance(sketch_of(empty), float)
    assert sketch_of(object()) is None


class Stored:
    """As much of a Hugging Face data set as a sketch looks at: rows come only as they are stored."""

    def __init__(self, rows: range, form: str = "") -> None:
        self.rows, self.form, self.num_rows = rows, form, len(rows)

    def with_format(self, form: str) -> Stored:
        return Stored(self.rows, form)

    def __getitem__(self, chosen: list[int]) -> Table:
        assert self.form == "arrow", "or a transform is made, which may be random"
        return Table([{"text": f"text {self.rows[index]}", "label": 1} for index in chosen])


@dataclass
class Table:
    """Some rows as they are stored."""

    rows: list[dict[str, object]]

    def to_pylist(self) -> list[dict[str, object]]:
        return self.rows


def test_stored_rows_are_compared_before_any_transform() -> None:
    parts = [sketch_of(Stored(range(rank, 40, 4))) for rank in range(4)]
    assert len({round(one or 0.0, 3) for one in parts}) == 4
    assert sketch_of(Stored(range(0, 40, 4))) == parts[0]
