"""The paper's case, from the formulas: AlexNet on 512 processes, by how much a grid reduces communication."""

from __future__ import annotations

import pytest
from grid_models import ALEXNET, CORI, PAIR, all_reduced, flat

from gossip.costs import PAPER_KINDS, Layer, Prediction, choose, predict
from gossip.grids import Grid


def paper_seconds(split: Prediction) -> float:
    """Return the communication as the paper counts it: every layer has messages of its own, also across."""
    return sum(CORI.seconds(layer.inner + layer.across) for layer in split.layers)


def test_the_layers_are_alexnet() -> None:
    assert sum(layer.weights for layer in ALEXNET) == 62_367_776
    assert [layer.outputs for layer in ALEXNET] == [290_400, 186_624, 64_896, 64_896, 43_264, 4096, 4096, 1000]


@pytest.mark.parametrize(
    ("batch", "kind", "grid", "gain"),
    [
        (512, "1.5d", "8x64", 5.2),
        (512, "1.5d-mixed", "64x8", 10.1),
        (2048, "1.5d", "4x128", 2.7),
        (2048, "1.5d-mixed", "32x16", 7.4),
    ],
)
def test_the_best_grid_and_its_gain(batch: int, kind: str, grid: str, gain: float) -> None:
    splits = choose(all_reduced(ALEXNET, batch), flat(512), kinds=[kind]).splits
    whole, *others = splits
    best = min(others, key=paper_seconds)
    assert str(best.grid) == grid
    assert paper_seconds(whole) / paper_seconds(best) == pytest.approx(gain, abs=0.05)


def test_the_best_is_neither_extreme() -> None:
    choice = choose(all_reduced(ALEXNET, 512), flat(512), kinds=PAPER_KINDS)
    assert choice.best is not None
    assert (str(choice.best.grid), choice.best.kind) == ("64x8", "1.5d-mixed")


def test_the_mix_sends_what_an_all_reduce_over_all_processes_sends_for_convolutions() -> None:
    split = predict(all_reduced(ALEXNET, 512), flat(512), Grid(64, 8), "1.5d-mixed")
    conv = split.layers[0]
    assert conv.inner.size + conv.across.size == pytest.approx(2 * 511 / 512 * 4 * ALEXNET[0].weights)
    assert conv.inner.messages + conv.across.messages == 2 * 9


@pytest.mark.parametrize("width", [64, 300, 1000])
def test_model_parallel_beats_batch_parallel_below_the_batch_of_the_paper(width: int) -> None:
    """Where B < 2 |W| / 3 d, for a square layer that is not the first."""
    layer = Layer.linear("square", width, width)
    bound = 2 * layer.weights / (3 * width)
    for batch, wins in ((int(bound) - 1, True), (int(bound) + 2, False)):
        job = all_reduced((PAIR[0], layer), batch)
        model, data = (
            predict(job, flat(16), grid, kind).layers[1]
            for grid, kind in ((Grid(16, 1), "1.5d"), (Grid(1, 16), "data"))
        )
        assert (model.inner.size < data.across.size) is wins
