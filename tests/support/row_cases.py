"""Cases for processes that share the rows of images: each is called in all of them, with its row and their number.

`equal_to_dense` compares a split model with the plain one, which every process also computes for itself.
"""

from __future__ import annotations

import copy
import random
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from row_models import Called, Checkpointed, Inception, Square, encoder_net, residual_net
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

from gossip.errors import SettingsError
from peers.rows import GatherRows, RowsError, gather_rows, row_range, split_rows
from peers.rows.row_parts import Window
from peers.rows.splitting import group_of

CASES: dict[str, Callable[..., None]] = {}
Case = Callable[..., None]


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def equal_to_dense(
    model: nn.Module,
    shape: Sequence[int],
    row: int,
    rows: int,
    *,
    heights: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-12,
    steps: int = 1,
    channels_last: bool = False,
    training: bool = True,
) -> None:
    """Train a model as it is and split; outputs, gradients, buffers and weights must be the same after each step."""
    dense = model.to(dtype)
    for one in [*dense.parameters(), *dense.buffers()]:
        if one.is_floating_point():
            one.data.add_(0.1 * torch.randn_like(one).abs())
    if channels_last:
        dense = dense.to(memory_format=torch.channels_last)
    split = copy.deepcopy(dense)
    assert split_rows(split, dist.group.WORLD) is split
    dense.train(training), split.train(training)
    whole = torch.randn(*shape, dtype=dtype)
    whole = whole.contiguous(memory_format=torch.channels_last) if channels_last else whole
    if heights is None:
        first, last = row_range(shape[2], rows, row)
    else:
        first, last = sum(heights[:row]), sum(heights[: row + 1])
    trained = [[*one.parameters()] for one in (dense, split)]
    optimizers = [torch.optim.SGD(weights, lr=0.1, momentum=0.9) for weights in trained if weights]
    for _ in range(steps):
        state = torch.get_rng_state()
        own = whole[:, :, first:last].clone()
        inputs = [whole.clone().requires_grad_(), own.requires_grad_()]
        outputs = []
        for net, images in zip((dense, split), inputs, strict=True):
            torch.set_rng_state(state)
            net.zero_grad()
            output = net(images)
            assert type(output) is torch.Tensor
            outputs.append(output.detach())
            factor = torch.linspace(-1, 2, output.numel(), dtype=dtype).view(output.shape)
            (output * factor).square().mean().backward()
        close(outputs[1], outputs[0], tolerance, "output")
        assert inputs[0].grad is not None
        close(inputs[1].grad, inputs[0].grad[:, :, first:last], tolerance, "gradient of the images")
        scale = max([float(one.grad.abs().max()) for one in dense.parameters() if one.grad is not None], default=0.0)
        for (name, one), other in zip(split.named_parameters(), dense.parameters(), strict=True):
            close(one.grad, other.grad, tolerance, f"gradient of {name}", scale)
        same_everywhere({name: one.grad for name, one in split.named_parameters() if one.grad is not None})
        for optimizer in optimizers:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
            optimizer.step()
        for (name, one), (_, other) in zip(split.state_dict().items(), dense.state_dict().items(), strict=True):
            close(one, other, tolerance, name)
        same_everywhere(split.state_dict())


def close(
    found: torch.Tensor | None, right: torch.Tensor | None, tolerance: float, name: str, scale: float = 0.0
) -> None:
    """Two tensors are the same but for rounding errors."""
    if found is None or right is None:
        assert found is right, f"{name}: one is None"
        return
    assert found.shape == right.shape, f"{name}: {tuple(found.shape)} instead of {tuple(right.shape)}"
    assert found.dtype == right.dtype, f"{name}: {found.dtype} instead of {right.dtype}"
    size = max(float(right.abs().max()), scale, 1e-300)
    apart = float((found.double() - right.double()).abs().max()) / size
    assert apart <= tolerance, f"{name} is apart by {apart:.2e}"


def same_everywhere(tensors: dict[str, torch.Tensor]) -> None:
    """Tensors are the same to the last bit in all processes."""
    bits = [one.detach().contiguous().flatten().view(torch.uint8).numpy() for one in tensors.values()]
    own = torch.tensor([zlib.crc32(one) for one in bits] or [0])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    assert all(torch.equal(one, every[0]) for one in every), f"{list(tensors)}: checksums differ between rows: {every}"


def refused(words: str, action: Callable[[], Any], kind: type[Exception] = RowsError) -> None:
    """An action raises an error with these words, in all processes."""
    with pytest.raises(kind, match=words):
        action()


@case
def convolutions(row: int, rows: int, seed: int = 0) -> None:
    """Kernels from 1 to 11, strides, dilation, groups, padding, bias, uneven and thin parts."""
    draw = random.Random(10 * seed + rows)
    torch.manual_seed(seed)
    for _ in range(30):
        kernel, stride, groups = draw.choice([1, 2, 3, 4, 5, 7, 11]), draw.choice([1, 1, 2, 4]), draw.choice([1, 1, 2])
        dilation, padding = draw.choice([1, 1, 2, 3]), draw.randint(0, kernel)
        if draw.random() < 0.2:
            padding, stride = "same", 1
        heights, across = cut(draw, rows), 1 if padding == "same" else draw.choice([1, 2])
        pads = padding if padding == "same" else (padding, 1)
        bias = draw.random() < 0.5
        layer = nn.Conv2d(2, 4, (kernel, draw.choice([2, 3])), (stride, across), pads, (dilation, 1), groups, bias)
        if fits(kernel, stride, padding, dilation, sum(heights), rows):
            with warnings.catch_warnings():  # the plain layer is not fast with an even kernel
                warnings.filterwarnings("ignore", "Using padding='same' with even kernel lengths")
                equal_to_dense(layer, (2, 2, sum(heights), 6), row, rows, heights=heights)


def cut(draw: random.Random, rows: int) -> list[int]:
    """Return the heights of parts: even, uneven, or thin."""
    return draw.choice(
        [
            [draw.randint(1, 12) for _ in range(rows)],
            [draw.randint(5, 9) for _ in range(rows)],
            [1] * (rows - 1) + [14],
            [row_range(23, rows, row)[1] - row_range(23, rows, row)[0] for row in range(rows)],
        ]
    )


def fits(kernel: int, stride: int, padding: Any, dilation: int, height: int, rows: int) -> bool:
    above = dilation * (kernel - 1) // 2 if padding == "same" else padding
    return Window(kernel, stride, above, above, dilation).out_height(height) >= rows


@case
def poolings(row: int, rows: int, seed: int = 0) -> None:
    """Windows, strides, padding, ceil_mode, and how padding is counted."""
    draw = random.Random(10 * seed + rows)
    torch.manual_seed(seed)
    for _ in range(20):
        kernel, stride, ceil = draw.choice([2, 3, 4, 5]), draw.choice([None, 1, 2, 3]), draw.random() < 0.5
        padding, dilation, heights = draw.randint(0, kernel // 2), draw.choice([1, 1, 2]), cut(draw, rows)
        window = Window(kernel, stride or kernel, padding, padding, 1, ceil)
        if window.out_height(sum(heights)) >= rows:
            average = nn.AvgPool2d(kernel, stride, padding, ceil, draw.random() < 0.5, draw.choice([None, None, 7]))
            equal_to_dense(average, (2, 2, sum(heights), 7), row, rows, heights=heights)
        window = Window(kernel, stride or kernel, padding, padding, dilation, ceil)
        if window.out_height(sum(heights)) >= rows:
            largest = nn.MaxPool2d(kernel, stride, padding, dilation, ceil_mode=ceil)
            equal_to_dense(largest, (2, 2, sum(heights), 11), row, rows, heights=heights)


@case
def more_windows(row: int, rows: int) -> None:
    """More of the two cases above."""
    for seed in range(1, 9):
        convolutions(row, rows, seed)
        poolings(row, rows, seed)


@case
def models(row: int, rows: int) -> None:
    """Several layers, several steps of SGD with clipping, training and evaluation mode."""
    torch.manual_seed(30)
    equal_to_dense(residual_net(), (3, 3, 61, 9), row, rows, steps=4)
    equal_to_dense(residual_net(), (3, 3, 61, 9), row, rows, training=False)
    equal_to_dense(encoder_net(), (2, 3, 19, 8), row, rows, steps=2)
    equal_to_dense(nn.Sequential(nn.Conv2d(3, 4, 3), Inception(), nn.Linear(12, 3)), (2, 3, 17, 8), row, rows, steps=2)
    uneven = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2), nn.GELU(), nn.Conv2d(4, 4, 3, 2), nn.Flatten(), nn.Linear(4 * 6 * 2, 3)
    )
    equal_to_dense(uneven, (2, 3, 27, 11), row, rows, heights=[27 - 3 * (rows - 1)] + [3] * (rows - 1), steps=2)
    late = nn.Sequential(nn.Conv2d(3, 4, 3), GatherRows(), nn.GroupNorm(2, 4), nn.ConvTranspose2d(4, 2, 3, 2))
    equal_to_dense(late, (2, 3, 12, 8), row, rows, steps=2)
    tied = nn.Conv2d(3, 3, 3, padding=1)
    equal_to_dense(nn.Sequential(tied, nn.Tanh(), tied, GatherRows(), tied), (2, 3, 12, 8), row, rows, steps=2)
    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 3, padding=1))
    equal_to_dense(nn.Sequential(normed, nn.Hardtanh()), (2, 3, 12, 8), row, rows, steps=2)
    frozen = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3, track_running_stats=False), nn.Conv2d(3, 2, 3))
    frozen[0].requires_grad_(False)
    equal_to_dense(frozen, (2, 3, 12, 8), row, rows, steps=2)


@case
def recomputed(row: int, rows: int) -> None:
    """Activation checkpoints: exchanges are repeated in the backward pass, in the same order everywhere."""
    torch.manual_seed(45)
    net = nn.Sequential(Checkpointed(), nn.MaxPool2d(3, 1, 1), Checkpointed(), nn.Flatten(), nn.Linear(3 * 12 * 8, 2))
    equal_to_dense(net, (2, 3, 12, 8), row, rows, steps=2)


@case
def kinds(row: int, rows: int) -> None:
    """float32, bfloat16, channels_last, autocast."""
    torch.manual_seed(40)
    equal_to_dense(residual_net(), (3, 3, 61, 9), row, rows, dtype=torch.float32, tolerance=1e-4)
    equal_to_dense(residual_net(), (3, 3, 61, 9), row, rows, channels_last=True, steps=2)
    small = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d((1, 1)))
    equal_to_dense(small, (2, 3, 12, 8), row, rows, dtype=torch.bfloat16, tolerance=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        layer = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(2), nn.Linear(96, 2))
        net = split_rows(layer, init_device_mesh("cpu", (rows,)))
        first, last = row_range(12, rows, row)
        output = net(torch.randn(2, 3, 12, 8)[:, :, first:last])
        assert output.dtype == torch.bfloat16
        output.float().sum().backward()
        same_everywhere({"gradient": layer[0].weight.grad})


@case
def refusals(row: int, rows: int) -> None:
    """What may mix rows is refused by name, in all processes, and they can go on together."""
    first, last = row_range(12, rows, row)
    own = torch.ones(2, 3, last - first, 8)

    def call(*layers: nn.Module) -> None:
        split_rows(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers), dist.group.WORLD)(own)

    def after(function: Callable[[torch.Tensor], Any]) -> Any:
        return split_rows(Called(function), dist.group.WORLD)(own)

    refused(r"^1 \(ConvTranspose2d\): .*conv_transpose2d.*Upsample", lambda: call(nn.ConvTranspose2d(4, 4, 2)))
    refused(r"^1 \(GroupNorm\): .*use nn.BatchNorm2d.*GatherRows", lambda: call(nn.GroupNorm(2, 4)))
    refused(r"^1 \(InstanceNorm2d\)", lambda: call(nn.InstanceNorm2d(4)))
    refused(r"^1 \(LayerNorm\)", lambda: call(nn.LayerNorm(8)))
    refused(r"^1 \(Unfold\)", lambda: call(nn.Unfold(2)))
    refused(r"^1 \(Conv2d\): .*mode='circular'", lambda: call(nn.Conv2d(4, 4, 3, 1, 1, padding_mode="circular")))
    refused(r"^1 \(Upsample\): .*mode='bilinear'", lambda: call(nn.Upsample(scale_factor=2, mode="bilinear")))
    refused(r"^1 \(MaxPool2d\): .*max_pool2d_with_indices", lambda: call(nn.MaxPool2d(2, return_indices=True)))
    refused(r"^1 \(Conv2d\): .*output has 1 rows for", lambda: call(nn.Conv2d(4, 4, 12)))
    refused(r"^1 \(Conv2d\): .*window of 13 rows does not fit into an image of 12", lambda: call(nn.Conv2d(4, 4, 13)))
    refused(r"^the model \(Called\): .*permute", lambda: after(lambda x: x.permute(0, 2, 3, 1)))
    refused(r"^the model \(Called\): .*flip", lambda: after(lambda x: x.flip(2)))
    refused(r"^the model \(Called\): .*rand_like", lambda: after(lambda x: x + torch.rand_like(x)))
    refused(r"sort", lambda: after(lambda x: x.sort(2)))
    refused(r"cumsum", lambda: after(lambda x: x.cumsum(2)))
    refused(r"numpy", lambda: after(lambda x: x.detach().numpy()))
    refused(r"conv2d: only its first", lambda: after(lambda x: functional.conv2d(torch.ones(1, 4, 9, 9), x)))
    refused(r"SquareBackward: a custom autograd", lambda: after(lambda x: Square.apply(x, False)))
    refused(r"custom autograd function.* lost", lambda: after(lambda x: Square.apply(x, True)).sum().backward())
    refused(r"does not fit images of 12 rows", lambda: after(lambda x: x + torch.ones(5, 8)))
    gathered = after(lambda x: gather_rows(x).flip(2))
    assert gathered.shape == (2, 4, 12, 8)


@case
def disagreements(row: int, rows: int) -> None:
    """What the rows of a crew do not have alike raises in all processes; nobody hangs."""
    first, last = row_range(12, rows, row)
    own = torch.ones(2, 3, last - first, 8)
    net = split_rows(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), dist.group.WORLD)
    refused(r"batch size: .*have \[2, 3", lambda: net(own if row == 0 else torch.ones(3, 3, last - first, 8)))
    refused(r"dtype: ", lambda: net(own if row == 0 else own.double()))
    refused(r"rows \[0\] of the crew called .* without images", lambda: net(own[0] if row == 0 else own))
    refused(r"at least one image row; they have \[0, ", lambda: net(own[:, :, :0] if row == 0 else own))
    refused(r"training mode: ", lambda: net.train(row == 0)(own))
    net.train()
    refused("part of a model that was split", lambda: net[0](own))
    refused("different models", lambda: split_rows(nn.Linear(2 + row, 2), dist.group.WORLD), SettingsError)
    refused("was split before", lambda: split_rows(net, dist.group.WORLD), SettingsError)
    refused("neither a DeviceMesh nor", lambda: split_rows(nn.ReLU(), 3), SettingsError)
    refused("is not a torch.nn.Module", lambda: split_rows(3, dist.group.WORLD), SettingsError)
    refused("2 dimensions", lambda: split_rows(nn.ReLU(), init_device_mesh("cpu", (rows, 1))), SettingsError)
    with warnings.catch_warnings():  # tracing is deprecated
        warnings.simplefilter("ignore")
        script = torch.jit.trace(nn.ReLU(), torch.ones(1))
    refused("cannot be followed", lambda: split_rows(nn.Sequential(script), dist.group.WORLD), SettingsError)
    refused("SyncBatchNorm", lambda: split_rows(nn.SyncBatchNorm(3), dist.group.WORLD), SettingsError)

    dropping = split_rows(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Dropout()), dist.group.WORLD)
    torch.manual_seed(row)
    refused("random number generator.*manual_seed", lambda: dropping(own))
    dropping.eval()(own)
    dropped = split_rows(Called(lambda x: functional.dropout(x.flatten(1))), dist.group.WORLD)
    torch.manual_seed(5)
    same_everywhere({"dropped": dropped(own)})
    torch.manual_seed(row)
    refused("random number generator", lambda: dropped(own))


@case
def examples_given(row: int, rows: int) -> None:  # noqa: ARG001
    """An example is compared with the plain model: what goes past the table is found, and nothing is left changed."""
    torch.manual_seed(50)
    net = residual_net()
    before = copy.deepcopy(net.state_dict())
    images = torch.randn(2, 3, 61, 9)
    state = torch.get_rng_state()
    split_rows(net, dist.group.WORLD, example=images)
    assert torch.equal(state, torch.get_rng_state())
    dist.broadcast(before["0.weight"], 0)
    assert all(torch.equal(one, before[name]) for name, one in net.state_dict().items())
    assert net.training
    assert all(one.grad is None for one in net.parameters())

    def sly(x: torch.Tensor) -> torch.Tensor:
        return x.__class__(x.local * (1 + x.of.group.row), x.bounds, x.of) if hasattr(x, "local") else x

    example = torch.randn(2, 3, 12, 8)
    refused("with the example", lambda: split_rows(Called(sly), dist.group.WORLD, example=example))


@case
def traffic(row: int, rows: int) -> None:
    """Halos are B W C floor(k/2) values to each neighbour, forward and backward, and one message each."""
    neighbours = (row > 0) + (row < rows - 1)
    for kernel in (1, 3, 5, 7):
        net = split_rows(nn.Conv2d(3, 4, kernel, padding=kernel // 2).double(), dist.group.WORLD)
        group = group_of(net)
        assert group is not None
        first, last = row_range(20, rows, row)
        own = torch.ones(2, 3, last - first, 8, dtype=torch.float64, requires_grad=True)

        def wrapped(x: torch.Tensor, net: nn.Module = net) -> torch.Tensor:
            return net(x)

        output = wrapped(own)
        halo = 2 * 8 * 3 * (kernel // 2) * 8 * neighbours
        gathered = 2 * 8 * 4 * (last - first) * 8 * (rows - 1)
        assert group.sent_bytes == halo + gathered, (kernel, group.sent_bytes, halo, gathered)
        messages = neighbours * (kernel > 1) + rows - 1
        assert group.sent_messages == messages
        output.sum().backward()
        assert group.sent_bytes == 2 * halo + gathered
        assert group.sent_messages == messages + neighbours * (kernel > 1)


@case
def example_net(row: int, rows: int) -> None:
    """The net of examples/rows.py, which is read from its source: the script itself needs a crew."""
    source = (Path(__file__).parents[2] / "examples/rows.py").read_text()
    found = re.search(r"^def net\(\).*?(?=^\S)", source, re.MULTILINE | re.DOTALL)
    assert found is not None
    scope: dict[str, Any] = {"nn": nn}
    exec(found[0], scope)
    torch.manual_seed(60)
    equal_to_dense(scope["net"](), (4, 1, 28, 28), row, rows, steps=2)


@case
def left_alive(row: int, rows: int) -> None:
    """A split model and a graph outlive the process group, and the interpreter ends without an abort."""
    first, last = row_range(12, rows, row)
    net = split_rows(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), dist.new_group())
    KEPT.extend([net, net(torch.ones(2, 3, last - first, 8))])


#: What is still there when the interpreter ends.
KEPT: list[Any] = []
