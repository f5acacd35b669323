"""The layers of a torch model, read from one forward pass of shapes without values."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gossip.costs.layers import ImageShape, Layer
from gossip.errors import SettingsError

__all__ = ["InputShape", "example_batch", "read_layers"]

#: The samples of the pass: more than one, because batch norm refuses one.
_SAMPLES = 2
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d)
_REDUCTIONS = (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class InputShape(tuple[int, ...]):
    """The shape of one sample; written ``3x224x224``, and ``int:128`` for integers such as tokens."""

    integers: bool

    def __new__(cls, sides: Sequence[int], *, integers: bool = False) -> InputShape:
        """Make a shape of positive sides."""
        if not sides or any(side < 1 for side in sides):
            raise SettingsError(f"sides of an input must be 1 or more, not {list(sides)}")
        made = super().__new__(cls, sides)
        made.integers = integers
        return made

    @classmethod
    def parse(cls, text: str) -> InputShape:
        """Read ``3x224x224`` or ``int:128``."""
        kind, colon, sides = text.strip().rpartition(":")
        words = sides.lower().split("x")
        if (
            kind not in ("", "int", "float")
            or (colon and not kind)
            or not all(w.isascii() and w.isdigit() for w in words)
        ):
            raise SettingsError(f"{text!r} is not the shape of a sample, such as 3x224x224, or int:128 for tokens")
        return cls([int(word) for word in words], integers=kind == "int")


def read_layers(model: nn.Module, shape: InputShape | None = None) -> tuple[Layer, ...]:
    """Return the layers of a model in the order in which a forward pass calls them.

    A shared weight counts where it is first used. Parameters that no module of torch was called with come last, as
    one layer. Functions that are called between modules, attention for example, have no weights and are not seen.

    Args:
        model: any module whose forward pass takes one tensor.
        shape: of one sample; may be left out where the first layer with weights is linear.
    """
    shape = shape or _guessed(model)
    try:
        bare = copy.deepcopy(model).to("meta")
    except NotImplementedError as error:  # parameters that cannot be copied without their values
        raise SettingsError(f"model {type(model).__name__} cannot be read: {error}") from error
    reader = _Reader(bare, model)
    try:
        with torch.no_grad():
            bare.train()(example_batch(shape, _SAMPLES, "meta"))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingsError(
            f"shape {'x'.join(map(str, shape))} does not pass through {type(model).__name__}: {reason}; "
            "give the shape of one sample, such as 3x224x224, or int:128 for tokens"
        ) from error
    return tuple(reader.finished())


def example_batch(shape: InputShape, samples: int, device: str = "cpu") -> Tensor:
    """Return a batch of this shape: zeros if it has integers, which every embedding knows, otherwise noise."""
    if shape.integers:
        return torch.zeros(samples, *shape, dtype=torch.long, device=device)
    generator = None if device == "meta" else torch.Generator().manual_seed(0)
    return torch.randn(samples, *shape, device=device, generator=generator)


def _guessed(model: nn.Module) -> InputShape:
    """Return the shape of a sample if the first layer with weights is linear."""
    first = next((one for one in model.modules() if next(one.parameters(recurse=False), None) is not None), None)
    if isinstance(first, nn.Linear):
        return InputShape([first.in_features])
    name = type(first).__name__ if first else "nothing"
    raise SettingsError(
        f"shape of a sample is needed, such as 3x224x224: the model begins with {name}, which takes several shapes"
    )


class _Reader:
    """Hooks on all modules that compute something themselves.

    Parameters are those of the model itself: a copy without values has shared weights twice.
    """

    def __init__(self, bare: nn.Module, model: nn.Module) -> None:
        self._model = model
        self._seen: set[int] = set()
        self._layers: list[Layer] = []
        for name, module in bare.named_modules():
            own = list(model.get_submodule(name).parameters(recurse=False))
            if own or next(module.children(), None) is None:
                module.register_forward_hook(self._hook(name, own))

    def finished(self) -> list[Layer]:
        """Return all layers; what no hook has seen is one more."""
        left = sum(one.numel() for one in self._model.parameters() if id(one) not in self._seen)
        rest = [Layer("(others)", "other", weights=left, work=float(left))] if left else []
        layers = self._layers + rest
        if not any(layer.weights for layer in layers):
            raise SettingsError(f"{type(self._model).__name__} has no parameters to train: name a model that has some")
        return layers

    def _hook(self, name: str, own: Sequence[Tensor]) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, given: Any, returned: Any) -> None:
            first = given[0] if given else None
            out = returned[0] if isinstance(returned, tuple) else returned
            if isinstance(first, Tensor) and isinstance(out, Tensor):
                new = [one for one in own if id(one) not in self._seen]
                self._seen |= {id(one) for one in new}
                self._layers.append(_layer(name or type(module).__name__, module, first, out, new))

        return look


def _layer(name: str, module: nn.Module, given: Tensor, out: Tensor, new: Sequence[Tensor]) -> Layer:
    inputs, outputs = given.numel() // _SAMPLES, out.numel() // _SAMPLES
    weights = sum(one.numel() for one in new)
    work, columns = float(outputs), 0
    if isinstance(module, nn.Linear):
        kind, work, columns = "linear", float(inputs * module.out_features), module.out_features
    elif isinstance(module, _CONVOLUTIONS):
        kind = "convolution"
        work = float(module.weight.numel() * math.prod(out.shape[2:]))
    elif isinstance(module, _REDUCTIONS):
        kind = "reduction"
    elif isinstance(module, _POOLS):
        kind = "pooling"
    elif isinstance(module, _NORMS):
        kind = "norm"
    elif isinstance(module, nn.Embedding):
        kind = "embedding"
    else:
        kind = "other"
    return Layer(name, kind, weights, inputs, outputs, work, columns, _image(module, given, out))


def _image(module: nn.Module, given: Tensor, out: Tensor) -> ImageShape | None:
    """Return what a layer over images reads; None for other layers, and for those that pool the whole image."""
    if given.dim() != 4 or out.dim() != 4 or isinstance(module, _REDUCTIONS):
        return None
    _, channels, rows, width = given.shape
    overlap = 0
    if isinstance(module, (nn.Conv2d, *_POOLS)):
        kernel, stride = _of_rows(module.kernel_size), _of_rows(module.stride)
        dilation = _of_rows(getattr(module, "dilation", 1))
        overlap = max(0, dilation * (kernel - 1) + 1 - stride)
    return ImageShape(channels, rows, out.shape[2], width, overlap)


def _of_rows(value: Any) -> int:
    """Return what torch writes as one number or as a pair, for the rows."""
    return int(value[0] if isinstance(value, tuple) else value)
