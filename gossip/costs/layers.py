"""The layers of a model, as far as their costs go: weights, activations and work."""

from __future__ import annotations

from dataclasses import dataclass

from gossip.errors import SettingsError

__all__ = ["LAYER_KINDS", "ImageShape", "Layer"]

#: What a layer can be. A reduction is a pooling over the whole image; all that is not known is "other".
LAYER_KINDS = ("linear", "convolution", "pooling", "reduction", "norm", "embedding", "other")


@dataclass(frozen=True)
class ImageShape:
    """What a layer over images reads and writes, per sample."""

    channels: int
    #: Of the input, and of the output.
    rows: int
    out_rows: int
    #: Values of a row of the input, for one channel.
    width: int
    #: The rows of the input that two neighbouring bands of the output both read: dilation (k - 1) + 1 - stride.
    overlap: int = 0


@dataclass(frozen=True)
class Layer:
    """One layer. Sizes are numbers of values, for one sample where activations are meant."""

    name: str
    kind: str
    weights: int = 0
    inputs: int = 0
    outputs: int = 0
    #: Multiply-adds of a forward pass, for one sample.
    work: float = 0.0
    #: The columns of the weights of a linear layer: its output features.
    columns: int = 0
    image: ImageShape | None = None

    def __post_init__(self) -> None:
        if self.kind not in LAYER_KINDS:
            raise SettingsError(f"kind of the layer {self.name} must be one of {', '.join(LAYER_KINDS)}: {self.kind}")
        for field in ("weights", "inputs", "outputs", "work", "columns"):
            if not getattr(self, field) >= 0:
                raise SettingsError(f"{field} of the layer {self.name} must be 0 or more: {getattr(self, field)}")

    @classmethod
    def linear(cls, name: str, inputs: int, outputs: int, *, tokens: int = 1, bias: bool = False) -> Layer:
        """Return a fully connected layer; ``tokens`` are the positions of a sample that it is applied to."""
        weights = inputs * outputs + (outputs if bias else 0)
        work = float(inputs * outputs * tokens)
        return cls(name, "linear", weights, inputs * tokens, outputs * tokens, work, columns=outputs)

    @classmethod
    def convolution(
        cls,
        name: str,
        shape: tuple[int, int, int],
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = False,
    ) -> Layer:
        """Return a square convolution of images of this shape: channels, rows, width."""
        depth, rows, width = shape
        out_rows, out_width = ((side + 2 * padding - kernel) // stride + 1 for side in (rows, width))
        if min(out_rows, out_width) < 1:
            raise SettingsError(f"kernel {kernel} of {name} is larger than its images of {rows} rows, {width} columns")
        weights = kernel * kernel * depth * channels
        outputs = out_rows * out_width * channels
        image = ImageShape(depth, rows, out_rows, width, max(0, kernel - stride))
        return cls(
            name,
            "convolution",
            weights + (channels if bias else 0),
            depth * rows * width,
            outputs,
            float(weights * out_rows * out_width),
            image=image,
        )
