"""The layers of torch models, read from shapes: against torch's own counts, and against sizes by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from grid_models import ALEXNET
from torch import Tensor, nn

from gossip.errors import SettingsError
from peers.planner.model_reading import InputShape, example_batch, read_layers
from peers.planner.script_models import model_of

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_papers_network_is_read_as_it_is_written() -> None:
    with torch.device("meta"):
        model = model_of(f"{EXAMPLES}/alexnet.py:AlexNet")
    found = [layer for layer in read_layers(model, InputShape.parse("3x227x227")) if layer.weights]
    biases = [96, 256, 384, 384, 256, 4096, 4096, 1000]
    for layer, expected, bias in zip(found, ALEXNET, biases, strict=True):
        same = ("kind", "inputs", "outputs", "work", "columns", "image")
        assert {key: getattr(layer, key) for key in same} == {key: getattr(expected, key) for key in same}
        assert layer.weights == expected.weights + bias


def test_poolings_norms_and_reductions_have_their_kinds() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, dilation=2, groups=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    layers = read_layers(model, InputShape([3, 16, 12]))
    assert [layer.kind for layer in layers] == [
        "convolution",
        "norm",
        "other",
        "pooling",
        "reduction",
        "other",
        "linear",
    ]
    conv, norm, relu, pool, reduction, *_ = layers
    assert conv.image is not None
    assert (conv.image.rows, conv.image.out_rows, conv.image.width, conv.image.channels) == (16, 6, 12, 3)
    assert conv.image.overlap == 2 * 2 + 1 - 2
    assert norm.weights == 16
    assert relu.image is not None
    assert relu.image.overlap == 0
    assert pool.image is not None
    assert (pool.image.rows, pool.image.out_rows, pool.image.overlap) == (6, 3, 0)
    assert reduction.image is None


def test_groups_do_less_work() -> None:
    (layer,) = read_layers(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), InputShape([8, 4, 4]))
    assert (layer.weights, layer.work) == (72, 72 * 16)


class Tied(nn.Module):
    """A model of tokens whose last weights are its first, with a parameter that no layer has."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 6)
        self.scale = nn.Parameter(torch.ones(5))
        self.again = nn.Linear(6, 11, bias=False)
        self.again.weight = self.tokens.weight
        self.unused = nn.Linear(3, 3)

    def forward(self, text: Tensor) -> Tensor:
        return self.again(self.tokens(text) * self.scale[0])


def test_shared_weights_count_once_and_what_is_left_is_not_forgotten() -> None:
    model = Tied()
    layers = read_layers(model, InputShape.parse("int:7"))
    assert [(layer.name, layer.kind, layer.weights) for layer in layers[:2]] == [
        ("tokens", "embedding", 66),
        ("again", "linear", 0),
    ]
    assert layers[1].work == 7 * 6 * 11
    assert sum(layer.weights for layer in layers) == sum(one.numel() for one in model.parameters())


def test_the_model_itself_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    read_layers(model)
    assert not model.training
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_shape_is_guessed_where_the_first_layer_is_linear() -> None:
    assert read_layers(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))[-1].inputs == 12
    with pytest.raises(SettingsError, match="the model begins with Conv2d, which takes several shapes"):
        read_layers(nn.Conv2d(1, 1, 1))
    with pytest.raises(SettingsError, match="the model begins with nothing"):
        read_layers(nn.ReLU())


def test_a_shape_that_does_not_pass_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"shape 5 does not pass through Linear: .*give the shape of one sample"):
        read_layers(nn.Linear(4, 2), InputShape([5]))
    with pytest.raises(SettingsError, match="ReLU has no parameters to train"):
        read_layers(nn.ReLU(), InputShape([5]))


@pytest.mark.parametrize("text", ["", "3x", "x3", "3x-1", "long:3", ":3", "0x3", "3.5", "int:"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"is not the shape of a sample|sides of an input must be 1 or more"):
        InputShape.parse(text)


def test_batches_have_their_shape_and_type() -> None:
    assert example_batch(InputShape.parse("int:5"), 3).dtype == torch.long
    batch = example_batch(InputShape.parse("float:2X4"), 3)
    assert (batch.shape, batch.dtype) == ((3, 2, 4), torch.float32)
