"""Where two models differ is named, whatever the difference and however large they are."""

from __future__ import annotations

import zlib

import pytest

from peers.model.model_lines import ModelLines

BASE = [("0.weight", "float32 (8, 6)"), ("0.bias", "float32 (8,)"), ("2.weight", "float32 (3, 8)")]


def complaint(ours: list[tuple[str, str]], theirs: list[tuple[str, str]]) -> str:
    here = ModelLines(1, ours)
    assert here.merge(ModelLines(4, theirs).encode()), "heard for the first time"
    assert not here.merge(ModelLines(4, theirs).encode())
    said = here.complaint(4)
    assert said.startswith("rank 1 and rank 4 have different models: ")
    return said.removeprefix("rank 1 and rank 4 have different models: ").partition(". Names, ")[0]


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ([*BASE[:2], ("2.weight", "float16 (3,)")], "2.weight is float32 (3, 8) at rank 1 and float16 (3,) at rank 4"),
        (BASE[:2], "2.weight, float32 (3, 8), does not exist at rank 4"),
        ([*BASE, ("2.bias", "float32 (3,)")], "2.bias, float32 (3,), does not exist at rank 1"),
        ([*BASE[:1], ("0.bias", "float32 (9,)"), ("x", "int64 ()")],
         "0.bias is float32 (8,) at rank 1 and float32 (9,) at rank 4, and 2 more differ"),
        (BASE[::-1], "the order of their tensors differs"),
    ],
)  # fmt: skip
def test_the_difference_is_named(theirs: list[tuple[str, str]], said: str) -> None:
    assert complaint(BASE, theirs) == said


def test_of_huge_models_what_was_told_is_compared() -> None:
    def huge(last: int) -> list[tuple[str, str]]:
        return [(f"layer{zlib.crc32(b'%d' % number):x}.weight", f"float32 ({number},)") for number in range(last)]

    letter = ModelLines(4, huge(5000)).encode()
    assert len(letter) < 5000, "there is room for other news"
    assert complaint(huge(5000), huge(4999)) == "they have 5000 and 4999 tensors"
    changed = [
        (name, "float32 (7, 7)") if number == 3 else (name, is_) for number, (name, is_) in enumerate(huge(5000))
    ]
    assert "is float32 (3,) at rank 1 and float32 (7, 7) at rank 4" in complaint(huge(5000), changed)
    changed = [*huge(4999), ("last", "float32 ()")]
    assert complaint(huge(5000), changed).startswith("they differ after tensor ")


def test_without_a_word_of_the_other_only_the_rank_is_named() -> None:
    told = ModelLines(1, BASE).complaint(4)
    assert "rank 1 and rank 4 have different models: rank 4 did not send its tensors in time" in told


@pytest.mark.parametrize(
    "data", [b"", b"1 2\nnot packed", b"x 1\n" + zlib.compress(b""), b"1\n" + zlib.compress(b"\xff")]
)
def test_hostile_bytes_change_nothing(data: bytes) -> None:
    lines = ModelLines(1, BASE)
    with pytest.raises(ValueError, match="not the lines of a model"):
        lines.merge(data)
    assert lines.encode() == ModelLines(1, BASE).encode()
