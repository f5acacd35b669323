"""The ways in which the rows of a crew hold one replica, and what each costs, layer by layer.

A kind is a function from (layers, rows, samples of the replica) to a cost for each layer. The volumes are those of one
process in one step. Tensors that all rows hold are averaged within the crew where rows see different gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gossip.costs.layers import Layer
from gossip.costs.volumes import NOTHING, Volume, all_gather, all_reduce, model_parallel, reduce_scatter

__all__ = ["KINDS", "PAPER_KINDS", "VALUE", "InnerCost", "inner_costs", "misfit"]

#: The kinds that a crew can run. "data" is that of a crew of one.
KINDS = ("data", "fsdp", "tensor", "mixed", "domain")
#: The kinds of the paper, for comparison: every layer on the grid, and with convolutions split by the batch.
PAPER_KINDS = ("1.5d", "1.5d-mixed")
#: The kinds that split the samples of a replica among its rows.
_BY_SAMPLES = ("fsdp", "mixed", "1.5d-mixed")
#: Bytes of a value.
VALUE = 4


@dataclass(frozen=True)
class InnerCost:
    """What a layer costs a row. Parts are of the layer as a whole replica would have it."""

    volume: Volume = NOTHING
    #: The part of the weights that a row holds.
    held: float = 1.0
    #: The part of the work, and of the outputs that are kept for the backward pass.
    work: float = 1.0
    kept: float = 1.0
    #: What the layer is in this kind, in a word.
    role: str = "every row"

    @property
    def is_replicated(self) -> bool:
        """Whether every row holds all weights: then each row gossips a slice, and the slices are gathered."""
        return self.held == 1.0


@dataclass(frozen=True)
class _Crew:
    """What a kind is asked about."""

    layers: Sequence[Layer]
    rows: int
    samples: float
    backend: str

    @property
    def first(self) -> int:
        """The place of the first layer with weights: nobody needs the gradient of its inputs."""
        return next((place for place, layer in enumerate(self.layers) if layer.weights), 0)

    @property
    def head(self) -> int:
        """The place of the first linear layer; behind the last layer if there is none."""
        places = (place for place, layer in enumerate(self.layers) if layer.kind == "linear")
        return next(places, len(self.layers))

    def size(self, values: float) -> float:
        """Return the bytes of activations of the replica's samples."""
        return values * self.samples * VALUE


def inner_costs(
    kind: str, layers: Sequence[Layer], rows: int, samples: float, backend: str = "gloo"
) -> list[InnerCost]:
    """Return the cost of each layer for a row of the crew."""
    if rows == 1:
        return [InnerCost(role="whole") for _ in layers]
    return _MAKERS[kind](_Crew(layers, rows, samples, backend))


def misfit(kind: str, layers: Sequence[Layer], rows: int, samples: float) -> str:
    """Return why a crew of these rows cannot run the model in this way; empty if it can."""
    kinds = {layer.kind for layer in layers}
    if samples < (rows if kind in _BY_SAMPLES else 1):
        return f"{samples:g} samples per replica are fewer than its {rows} rows" if rows > 1 else "less than one sample"
    if rows == 1:
        return ""
    if kind in ("tensor", "mixed") and "linear" not in kinds:
        return "the model has no linear layer"
    if kind in ("mixed", "domain") and "convolution" not in kinds:
        return "the model has no convolution"
    if kind in ("tensor", "mixed"):
        # Every second one is cut by its inputs, which are as many as its partner has columns.
        by_columns = [layer for layer in layers if layer.kind == "linear"][::2]
        narrow = min(by_columns, key=lambda layer: layer.columns)
        if narrow.columns < rows:
            return f"{narrow.name} has {narrow.columns} columns for {rows} rows of a crew"
    if kind == "domain":
        for layer in layers:
            if layer.image and min(layer.image.rows, layer.image.out_rows) < rows:
                low = min(layer.image.rows, layer.image.out_rows)
                return f"{layer.name} has {low} rows of an image for {rows} rows of a crew"
            if layer.image and layer.image.overlap and layer.image.rows // rows < (layer.image.overlap + 1) // 2:
                return f"{layer.name} reads further than one neighbour's rows of the image"
    return ""


def _fsdp(crew: _Crew) -> list[InnerCost]:
    """Weights are gathered for the forward and again for the backward pass, and gradients are reduce-scattered."""
    part = 1 / crew.rows
    return [
        InnerCost(
            all_gather(crew.rows, layer.weights * VALUE) * 2
            + reduce_scatter(crew.rows, layer.weights * VALUE, crew.backend),
            part,
            part,
            part,
            "sharded",
        )
        for layer in crew.layers
    ]


def _tensor(crew: _Crew) -> list[InnerCost]:
    """Linear layers are cut by columns and by rows in turn, so that nothing is gathered between the two.

    Torch's ColwiseParallel and RowwiseParallel do this. A last layer without a partner is cut by columns, and its
    outputs are gathered. All other layers are computed by every row.
    """
    part = 1 / crew.rows
    linear = [place for place, layer in enumerate(crew.layers) if layer.kind == "linear"]
    costs = [InnerCost() for _ in crew.layers]
    for turn, place in enumerate(linear):
        layer = crew.layers[place]
        if turn % 2:
            costs[place] = InnerCost(all_reduce(crew.rows, crew.size(layer.outputs)), part, part, 1.0, "rows")
            continue
        backward = NOTHING if place == crew.first else all_reduce(crew.rows, crew.size(layer.inputs))
        alone = turn == len(linear) - 1
        forward = all_gather(crew.rows, crew.size(layer.outputs)) if alone else NOTHING
        costs[place] = InnerCost(forward + backward, part, part, 1.0 if alone else part, "columns")
    return costs


def _mixed(crew: _Crew) -> list[InnerCost]:
    """The layers before the first linear one split the samples; the linear ones are cut as in tensor parallel.

    The outputs of all samples are gathered in front of the first linear layer. On the way back each row needs the
    gradients of its own samples only: a reduce-scatter in the place of the all-reduce.
    """
    part = 1 / crew.rows
    before = [
        InnerCost(all_reduce(crew.rows, layer.weights * VALUE), 1.0, part, part, "batch")
        for layer in crew.layers[: crew.head]
    ]
    first, *rest = _tensor(crew)[crew.head :]
    gathered = all_gather(crew.rows, crew.size(crew.layers[crew.head].inputs))
    # A reduce-scatter that is not an all-reduce saves as much as the gathering costs.
    volume = first.volume + gathered if crew.backend == "gloo" else first.volume
    return [*before, replace(first, volume=volume), *rest]


def _domain(crew: _Crew) -> list[InnerCost]:
    """Images are cut into bands of rows; neighbours exchange the rows at the seams, forward and backward.

    A row in the middle has two neighbours. Statistics of batch norm are summed over the bands. Behind the last layer
    over images the outputs are gathered, and every row computes the rest.
    """
    part = 1 / crew.rows
    seams = 2 if crew.rows > 2 else 1
    last = max(place for place, layer in enumerate(crew.layers) if layer.image)
    costs = []
    for place, layer in enumerate(crew.layers):
        if place > last:
            volume = NOTHING
            if place == last + 1:
                reduces = layer.kind == "reduction"
                volume = (all_reduce if reduces else all_gather)(
                    crew.rows, crew.size(layer.outputs if reduces else layer.inputs)
                )
            costs.append(InnerCost(volume))
            continue
        volume = all_reduce(crew.rows, layer.weights * VALUE)
        if layer.image and layer.image.overlap:
            edge = crew.size(layer.image.width * layer.image.channels * layer.image.overlap / 2)
            volume += Volume(1.0, edge * seams) * (1 if place == crew.first else 2)
        if layer.kind == "norm":
            volume += all_reduce(crew.rows, layer.weights * VALUE) * 2
        costs.append(InnerCost(volume, 1.0, part, part, "image rows"))
    return costs


def _columns(crew: _Crew) -> list[InnerCost]:
    """Every layer is cut by columns, as in the paper's 1.5D algorithm; torch has none for convolutions."""
    part = 1 / crew.rows
    return [
        InnerCost(
            model_parallel(crew.rows, crew.size(layer.inputs), crew.size(layer.outputs), first=place == crew.first),
            part,
            part,
            1.0,
            "columns",
        )
        if layer.weights
        else InnerCost()
        for place, layer in enumerate(crew.layers)
    ]


def _columns_behind_batch(crew: _Crew) -> list[InnerCost]:
    """Convolutions split the samples and the rest is cut by columns, as in the paper, which counts no seam."""
    part = 1 / crew.rows
    before = [
        InnerCost(all_reduce(crew.rows, layer.weights * VALUE), 1.0, part, part, "batch")
        for layer in crew.layers[: crew.head]
    ]
    return [*before, *_columns(crew)[crew.head :]]


_MAKERS: dict[str, Callable[[_Crew], list[InnerCost]]] = {
    "fsdp": _fsdp,
    "tensor": _tensor,
    "mixed": _mixed,
    "domain": _domain,
    "1.5d": _columns,
    "1.5d-mixed": _columns_behind_batch,
}
