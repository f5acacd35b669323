"""A batch of images that several processes hold: the shape of the whole, and the rows of this process.

A `RowTensor` has no storage of its own. It carries the local rows, which have their own autograd graph. Torch asks
``__torch_function__`` before it runs any function on it, and the table `HANDLERS` answers. A function that is not in
the table is refused, so nothing that mixes rows runs on a part of them by accident.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import FrameType
from typing import Any

import torch
from torch.overrides import resolve_name

from peers.rows.row_autograd import AllRows, TakeRows, WholeGradients
from peers.rows.row_group import RowGroup
from peers.rows.row_parts import Bounds, RowsError

__all__ = ["HANDLERS", "RowPass", "RowTensor", "handles", "named", "whole"]

#: What is done instead of a function of torch: gets the function, its arguments and its keywords.
Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
HANDLERS: dict[Any, Handler] = {}
#: What to do about a function that is refused, by a part of its name.
ADVICE = {
    "conv_transpose": "use nn.Upsample(scale_factor=2) and an nn.Conv2d",
    "group_norm": "use nn.BatchNorm2d",
    "instance_norm": "use nn.BatchNorm2d",
    "layer_norm": "use nn.BatchNorm2d",
    "scaled_dot_product_attention": "use attention in the head, on gathered rows",
    "interpolate": "use mode='nearest' with a whole scale factor",
    "pad": "pad with zeros (padding_mode='zeros')",
}


class RowPass:
    """One pass through a model: the processes that share the rows, and the weights as split layers use them."""

    def __init__(self, group: RowGroup, model: torch.nn.Module) -> None:
        self.group = group
        self._model = model
        #: One node sums the gradients of all weights, after the last of them is known: one message, not one per layer.
        self._weights: dict[int, torch.Tensor] = {}
        weights = [one for one in model.parameters() if one.requires_grad]
        if weights and torch.is_grad_enabled():
            shared = WholeGradients.apply(group, *weights)  # type: ignore[no-untyped-call]
            self._weights = {id(one): alias for one, alias in zip(weights, shared, strict=True)}

    def replicated(self, tensor: Any) -> Any:
        """Return a tensor that all rows have, for use by a split layer: its gradient will be the sum over all rows."""
        if not isinstance(tensor, torch.Tensor) or not (tensor.requires_grad and torch.is_grad_enabled()):
            return tensor
        known = self._weights.get(id(tensor))
        if known is not None:
            return known
        return WholeGradients.apply(self.group, tensor)[0]  # type: ignore[no-untyped-call]

    def place(self) -> str:
        """Return the innermost module that is computing, by its name in the model."""
        names = {id(module): name for name, module in self._model.named_modules()}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, torch.nn.Module) and id(module) in names:
                return f"{names[id(module)] or 'the model'} ({type(module).__name__})"
            frame = frame.f_back
        return "the model"


class RowTensor(torch.Tensor):
    """A tensor (N, C, H, W) whose rows, along H, several processes hold."""

    local: torch.Tensor
    bounds: Bounds
    of: RowPass

    @staticmethod
    def __new__(cls, local: torch.Tensor, bounds: Bounds, of: RowPass) -> RowTensor:
        """Wrap the rows of this process; ``bounds`` says which ones they are."""
        shape = (*local.shape[:2], bounds[-1], local.shape[3])
        grad = local.requires_grad
        made: RowTensor = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=local.dtype, device=local.device, requires_grad=grad
        )
        made.local, made.bounds, made.of = local, bounds, of
        if grad:
            with torch._C.DisableTorchFunctionSubclass():
                made.register_hook(_stray_gradient)  # type: ignore[no-untyped-call]
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        group = self.of.group
        return f"RowTensor(row {group.row} of {group.size}, bounds={self.bounds}, local={self.local})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do what the table says about this function."""
        handler = HANDLERS.get(func, _refused)
        try:
            return handler(func, args, kwargs or {})
        except RowsError as error:
            tensor = next(one for one in _flat((args, kwargs or {})) if isinstance(one, RowTensor))
            raise RowsError(f"{tensor.of.place()}: {named(func)}: {error}") from None

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Refuse what has come past the table: the wrapper has no values."""
        raise RowsError(
            f"{func}: it was called on rows of an image by a way that cannot be followed, such as a custom autograd "
            "function or torch.compile: gather the rows before it, with peers.rows.gather_rows(x)"
        )

    def like(self, local: torch.Tensor, bounds: Bounds | None = None) -> RowTensor:
        """Return other values with the same rows, or with other bounds."""
        return RowTensor(local, self.bounds if bounds is None else bounds, self.of)

    def at(self, bounds: Bounds) -> torch.Tensor:
        """Return the rows that this process has with other bounds of the same height."""
        self.check()
        if bounds == self.bounds:
            return self.local
        return self.rows_for(list(pairwise(bounds)))

    def rows_for(self, needed: list[tuple[int, int]], fill: float = 0.0) -> torch.Tensor:
        """Return the rows that this process needs, where ``needed`` has those of all processes."""
        self.check()
        if needed == list(pairwise(self.bounds)):
            return self.local
        rows: torch.Tensor = TakeRows.apply(  # type: ignore[no-untyped-call]
            self.local, self.of.group, self.bounds, needed, fill
        )
        return rows

    def check(self) -> None:
        """Raise a `RowsError` if a graph was recorded on the wrapper, past the rows."""
        with torch._C.DisableTorchFunctionSubclass():
            if self.grad_fn is not None:
                raise RowsError(
                    f"{self.grad_fn.name()}: a custom autograd function was called on rows of an image, and nobody "
                    "knows whether it mixes them: gather the rows before it, with peers.rows.gather_rows(x)"
                )


def whole(x: RowTensor) -> torch.Tensor:
    """Return all rows, as a plain tensor that is the same at all processes."""
    x.check()
    rows: torch.Tensor = AllRows.apply(x.local, x.of.group, x.bounds)  # type: ignore[no-untyped-call]
    return rows


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Enter a handler for functions in the table; a function that this version of torch does not have is None."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update({function: handler for function in functions if function is not None})
        return handler

    return enter


def named(func: Any) -> str:
    """Return the name of a function of torch."""
    return str(resolve_name(func) or getattr(func, "__name__", repr(func)))


def _refused(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raise a `RowsError` that says what to do instead."""
    name = named(func)
    advice = next((f"{text}, or " for part, text in ADVICE.items() if part in name), "")
    raise RowsError(
        f"this is not computed on parts of the rows, since it may mix them: {advice}gather the rows before it, with "
        f"peers.rows.GatherRows() or gather_rows(x); {_shapes(args, kwargs)}"
    )


def _shapes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    with torch._C.DisableTorchFunctionSubclass():
        shapes = [str(tuple(one.shape)) for one in _flat((args, kwargs)) if isinstance(one, torch.Tensor)]
    return f"it was called on {' and '.join(shapes)}"


def _flat(values: Any) -> Iterable[Any]:
    """Yield arguments, those in lists and tuples and dictionaries too."""
    for one in values.values() if isinstance(values, dict) else values:
        if isinstance(one, list | tuple | dict):
            yield from _flat(one)
        else:
            yield one


def _stray_gradient(grad: torch.Tensor) -> None:
    """Raise a `RowsError`: gradients belong to the local rows, and one at the wrapper would be lost."""
    raise RowsError(
        f"a gradient of the shape {tuple(grad.shape)} came to rows of an image from a custom autograd function, and "
        "would be lost: gather the rows before that function, with peers.rows.gather_rows(x)"
    )
