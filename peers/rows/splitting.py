"""A plain model takes a process's rows of the images instead of whole images."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_map

from gossip.errors import SettingsError
from peers.rows import pointwise, row_norm, windows
from peers.rows.agreement import agreed_bounds, model_digest, random_digest
from peers.rows.gathering import gather_rows
from peers.rows.row_group import RowGroup
from peers.rows.row_parts import RowsError, row_range
from peers.rows.row_tensor import RowPass, RowTensor

__all__ = ["group_of", "split_rows"]

#: These fill the table of handlers.
_TABLES = (pointwise, row_norm, windows)
_GRADIENT = "the gradient of "
Model = TypeVar("Model", bound=torch.nn.Module)


def split_rows(model: Model, mesh_or_group: Any, *, example: torch.Tensor | None = None) -> Model:
    """Let a plain model take rows of images: each process passes its own, and the result is that of whole images.

    The model is changed in place and returned. Its modules, parameters and state_dict stay as they are. All processes
    of the group call this, and later the model, in the same order. Weights and buffers become those of the first one.
    Call it before `attach`, and make the optimizer from ``model.parameters()`` as usual.

    - Arguments with four dimensions are images: (N, C, own rows, W), cut by `row_range` or in any other way.
    - Convolutions and poolings fetch the rows that they need from the neighbours; batch norm uses all rows.
    - Where the model flattens, averages over space, or meets a linear layer, rows are gathered. What follows runs at
      every process, on the same values. So does the loss: give every process the labels of whole images.
    - What the model returns is whole, and after ``loss.backward()`` every process has the whole gradient, the same to
      the last bit.
    - A function that may mix rows and is not known raises a `RowsError` that names the module.

    Args:
        model: any module, not compiled, scripted or wrapped.
        mesh_or_group: a DeviceMesh of one dimension or a process group. None, or a group of one: nothing is done.
        example: whole images, the same at all processes. Output and gradients of the split model are compared with
            those of the plain one, which takes as much memory as a training step of the plain one.
    """
    if mesh_or_group is None:
        return model
    _check_splittable(model)
    group = RowGroup(mesh_or_group)
    if group.size == 1:
        return model
    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    digests = group.table(torch.tensor([model_digest(model)], device=device)).flatten().tolist()
    if len(set(digests)) > 1:
        raise SettingsError(f"model: the {group.size} rows have different models, by their checksums {digests}")
    group.copy_from_first(tensors)
    plain = copy.deepcopy(model) if example is not None else None
    splitting = _Splitting(group, model)
    for part in model.modules():
        if part is not model:
            part.register_forward_pre_hook(splitting.check_part)
    model.register_forward_pre_hook(splitting.begin, with_kwargs=True)
    model.register_forward_hook(splitting.end, always_call=True)
    if plain is not None and example is not None:
        _compare(copy.deepcopy(model), plain, example, group)
    return model


def group_of(model: torch.nn.Module) -> RowGroup | None:
    """Return the processes that a model was split over, with the bytes that they have sent; None if it was not."""
    hooks = [getattr(hook, "__self__", None) for hook in model._forward_pre_hooks.values()]
    return next((one.group for one in hooks if isinstance(one, _Splitting)), None)


class _Splitting:
    """The hooks of a model that was split."""

    def __init__(self, group: RowGroup, model: torch.nn.Module) -> None:
        self.group = group
        #: Whether passes in training mode draw random numbers: known from its modules, or seen in an earlier pass.
        self._draws = any(isinstance(module, _DropoutNd) and module.p > 0 for module in model.modules())
        #: The state of the generators when the pass began.
        self._before = 0
        #: Whether a pass is under way.
        self._inside = False

    def check_part(self, part: torch.nn.Module, args: tuple[Any, ...]) -> None:
        """Refuse images for a part of the model: it has not been told that these are rows, and would pad them."""
        images = [one for one in args if isinstance(one, torch.Tensor) and one.ndim == 4]
        if not self._inside and images and not any(isinstance(one, RowTensor) for one in images):
            raise RowsError(
                f"{type(part).__name__} is a part of a model that was split, and was called by itself: images go "
                "through the whole model; split that part instead if only it is to be used"
            )

    def begin(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Wrap the images among the arguments."""
        images = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and one.ndim == 4]
        device = images[0].device if images else next((one.device for one in model.parameters()), torch.device("cpu"))
        self._before = random_digest(device) if model.training else 0
        digest = self._before if self._draws else 0
        bounds = agreed_bounds(images, model.training, digest, self.group, device)
        of = RowPass(self.group, model)
        self._inside = True

        def wrapped(value: Any) -> Any:
            found = isinstance(value, torch.Tensor) and value.ndim == 4
            return RowTensor(value, bounds, of) if found else value

        return tuple(wrapped(one) for one in args), {name: wrapped(one) for name, one in kwargs.items()}

    def end(self, model: torch.nn.Module, args: Any, output: Any) -> Any:  # noqa: ARG002
        """Gather what the model returns as rows, and remember whether random numbers were drawn."""
        self._inside = False
        result = tree_map(lambda one: gather_rows(one) if isinstance(one, torch.Tensor) else one, output)
        if self._before and not self._draws:
            device = next((one.device for one in model.parameters()), torch.device("cpu"))
            self._draws = random_digest(device) != self._before
        return result


def _check_splittable(model: Any) -> None:
    """Raise a `SettingsError` unless this is a plain module whose calls can be followed."""
    if not isinstance(model, torch.nn.Module):
        raise SettingsError(f"model: a {type(model).__name__} is not a torch.nn.Module")
    if group_of(model) is not None:
        raise SettingsError(f"model: this {type(model).__name__} was split before; split a model once")
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, torch.jit.ScriptModule) or kind == "OptimizedModule":
            raise SettingsError(
                f"model: its part {name or 'itself'} is a {kind}, whose calls cannot be followed: split the plain one"
            )
        if type(module).__module__.startswith(("torch.nn.parallel", "torch.distributed")) or kind == "SyncBatchNorm":
            raise SettingsError(
                f"model: its part {name or 'itself'} is a {kind}, which talks to other processes itself: split the "
                "plain model"
            )
    for name, one in model.named_parameters():
        if type(one) is not torch.nn.Parameter:
            raise SettingsError(
                f"model: its parameter {name} is a {type(one).__name__}, and rows are split with whole weights only"
            )


def _compare(split: torch.nn.Module, plain: torch.nn.Module, example: torch.Tensor, group: RowGroup) -> None:
    """Raise a `RowsError` unless a split model does with an example what the plain one does.

    Evaluation mode is compared too: there batch norm does something else.
    """
    first, last = row_range(example.shape[2], group.size, group.row)
    own = example.narrow(2, first, last - first)
    tolerance = {torch.float64: 1e-9, torch.float32: 2e-4}.get(example.dtype, 0.1)
    random = torch.get_rng_state()
    for training in (False, True):
        results = []
        for model, images in ((split, own), (plain, example)):
            torch.set_rng_state(random)
            results.append(_results(model.train(training), images))
        worst, name = _worst(*results)
        apart = group.table(torch.tensor([worst], dtype=torch.float64, device=example.device)).max().item()
        if not apart <= tolerance:
            raise RowsError(
                f"with the example, {name} differs from the plain model by {apart:.1e} of its size, in "
                f"{'training' if training else 'evaluation'} mode: the model does something that split_rows does not "
                "see, such as a custom autograd function; gather the rows before that, with peers.rows.gather_rows(x)"
            )
    torch.set_rng_state(random)


def _results(model: torch.nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors that a model returns, and the gradients of its parameters for a loss of all of them."""
    found: dict[str, torch.Tensor] = {}
    with torch.enable_grad():
        _each(model(images), lambda one: found.update({f"output {len(found)}": one}))
        model.zero_grad()
        smooth = [one for one in found.values() if one.requires_grad]
        if smooth:
            loss = torch.stack([one.to(torch.float64).square().mean() for one in smooth]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
    found |= {f"{_GRADIENT}{name}": one.grad for name, one in model.named_parameters() if one.grad is not None}
    return found


def _each(output: Any, use: Callable[[torch.Tensor], Any]) -> None:
    """Call a function with each tensor of an output, in order."""
    tree_map(lambda one: use(one) if isinstance(one, torch.Tensor) else None, output)


def _worst(split: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> tuple[float, str]:
    """Return how far two results are apart at most, relative to their size, and where.

    The size of gradients is that of the largest one: a bias before a batch norm has none but rounding errors.
    """
    sizes = {name: float(one.detach().abs().max()) if one.numel() else 0.0 for name, one in plain.items()}
    largest = max([size for name, size in sizes.items() if name.startswith(_GRADIENT)], default=0.0)
    found = [(0.0, "nothing")]
    for name in {**plain, **split}:
        one, other = split.get(name), plain.get(name)
        if one is None or other is None or one.shape != other.shape:
            return float("inf"), name
        apart = float((one - other).detach().abs().max()) if one.numel() else 0.0
        size = largest if name.startswith(_GRADIENT) else sizes[name]
        found.append((apart / size if size > 0 else apart, name))
    return max(found)
