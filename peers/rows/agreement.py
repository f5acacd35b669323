"""What all processes of a pass must have alike is compared before it begins: one small message for each pass.

A difference raises the same error at all processes, so none is left waiting in an exchange that others never begin.
"""

from __future__ import annotations

import zlib

import torch

from peers.rows.row_group import RowGroup
from peers.rows.row_parts import Bounds, RowsError

__all__ = ["agreed_bounds", "model_digest", "random_digest"]

_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
_FACTS = (
    *("batch size", "number of channels", "width", "dtype", "number of image tensors", "gradient of the images"),
    *("grad mode", "training mode", "autocast", "state of the random number generator"),
)


def agreed_bounds(
    images: list[torch.Tensor], training: bool, digest: int, group: RowGroup, device: torch.device
) -> Bounds:
    """Return which rows each process has given to the model; raise a `RowsError` if they are not of the same images.

    Args:
        images: the arguments of this pass that are images, all with this process's rows.
        training: whether the model is in training mode.
        digest: of the random number generators, or 0 if nothing is drawn.
        group: the processes.
        device: of messages.
    """
    own = [0] * (1 + len(_FACTS))
    fit = bool(images) and all(one.shape[2] == images[0].shape[2] for one in images)
    if fit and all(one.dtype in _DTYPES for one in images):
        first = images[0]
        own = [
            first.shape[2],
            *(first.shape[0], first.shape[1], first.shape[3], _DTYPES.index(first.dtype), len(images)),
            *(sum(one.requires_grad << place for place, one in enumerate(images)), torch.is_grad_enabled()),
            *(training, torch.is_autocast_enabled(first.device.type), digest),
        ]
    table = group.table(torch.tensor(own, device=device)).tolist()
    if not all(line[5] for line in table):
        rows = [row for row, line in enumerate(table) if not line[5]]
        raise RowsError(
            f"rows {rows} of the crew called a split model without images: it takes tensors (N, C, rows, W) of a "
            "floating type, all with the same number of rows"
        )
    heights = [line[0] for line in table]
    if not all(heights):
        raise RowsError(f"every process needs at least one image row; they have {heights}")
    for place, name in enumerate(_FACTS, start=1):
        values = [line[place] for line in table]
        if len(set(values)) > 1:
            raise RowsError(f"{name}: the rows of a crew must agree and have {values}{_cure(name)}")
    bounds = [0]
    for height in heights:
        bounds.append(bounds[-1] + height)
    return tuple(bounds)


def _cure(name: str) -> str:
    if "random" not in name:
        return ""
    return " (checksums): dropout would differ; call torch.manual_seed with the same seed at all rows, and draw alike"


def random_digest(device: torch.device) -> int:
    """Return a checksum of the states of the random number generators that a pass draws from; never 0."""
    digest = zlib.crc32(torch.get_rng_state().numpy().tobytes())
    if device.type == "cuda":
        digest = zlib.crc32(torch.cuda.get_rng_state(device).numpy().tobytes(), digest)
    return digest or 1


def model_digest(model: torch.nn.Module) -> int:
    """Return a checksum of the names, shapes and types of what a model holds."""
    lines = [
        f"{name} {tuple(one.shape)} {one.dtype} {one.requires_grad}"
        for name, one in [*model.named_parameters(), *model.named_buffers()]
    ]
    return zlib.crc32("\n".join(lines).encode())
