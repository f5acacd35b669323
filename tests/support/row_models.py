"""Models and parts of models for the cases of processes that share the rows of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    """A block as in a ResNet, written with functions and with an operation in place."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1)
        self.norm, self.last = nn.BatchNorm2d(out), nn.BatchNorm2d(out, momentum=None)
        self.short = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out, affine=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(self.two(functional.relu(self.norm(self.one(x)), inplace=True)))
        y += self.short(x)
        return torch.relu(y)


class Gate(nn.Module):
    """Squeeze and excite: a replicated value in the middle multiplies rows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Conv2d(channels, channels, 1)
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.place = nn.Parameter(torch.zeros(1, 1, 6, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
        place = functional.interpolate(self.place, size=(x.shape[2], 1))
        return 1 + x * gate * self.scale + 2 * place


class Inception(nn.Module):
    """Branches, concatenated; shapes are asked for, and channels are sliced."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 3, 1), nn.Conv2d(4, 5, 5, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x[:, :2], x[:, 2:]
        a, b = torch.cat([right, left], dim=1).chunk(2, dim=1)
        x = torch.cat([a, b], 1)
        both = torch.cat([self.one(x), self.two(x), functional.avg_pool2d(x, 3, 1, 1)], dim=1)
        assert both.shape[1] == 12
        assert both.size(2) == x.shape[-2]
        pooled = functional.avg_pool2d(both, both.size()[2:])
        return pooled.view(x.size(0), -1)


def residual_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, 2, 2), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        Residual(6, 6, 1), Gate(6), nn.Dropout(0.3), nn.Dropout2d(0.2), Residual(6, 8, 2), nn.LocalResponseNorm(3),
        nn.PReLU(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 5),
    )  # fmt: skip


def encoder_net() -> nn.Module:
    """Returns images: they are gathered at the end."""
    return nn.Sequential(
        nn.ZeroPad2d((1, 2, 3, 0)), nn.Conv2d(3, 4, 4), nn.SiLU(), nn.Conv2d(4, 8, 3, padding="same"),
        nn.PixelShuffle(2), nn.Conv2d(2, 3, 4, 2, 1), nn.Upsample(scale_factor=2), nn.Conv2d(3, 2, 3, padding=1),
        nn.LogSoftmax(dim=1),
    )  # fmt: skip


class Checkpointed(nn.Module):
    """Computes its inner part again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(3, 3, 3, padding=1), nn.Tanh(), nn.Dropout(0.3), nn.Conv2d(3, 3, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


class Square(torch.autograd.Function):
    """A function of a user: nobody knows whether it mixes rows."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, flat: bool) -> torch.Tensor:  # noqa: ARG004
        return x.flatten(1) if flat else x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # noqa: ARG004
        return grad.reshape(2, 4, 12, 8), None


class Called(nn.Module):
    """A convolution, and then whatever it is given."""

    def __init__(self, after: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 4, 3, padding=1), after

    def forward(self, x: torch.Tensor) -> Any:
        return self.after(self.before(x))
