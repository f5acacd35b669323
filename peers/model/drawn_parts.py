"""Two traps of random numbers in crews: a model trains, badly, and nothing is said.

On the CPU torch fills the parts of a spread tensor with the same random numbers in every row. A model that is drawn
after it was spread then repeats itself, as if it were narrower, and its first outputs are far too large.

With tensor parallelism all rows compute the same samples. Dropout has to drop the same values at each of them, so their
random number generators must be in the same state.
"""

from __future__ import annotations

import torch
import xxhash
from torch.nn.modules.dropout import _DropoutNd

from peers.crew.crew import Crew
from peers.model.spread import how_spread, is_fsdp, is_spread, local_part

__all__ = ["drawn_alike", "drops_apart"]


def drawn_alike(model: torch.nn.Module, crew: Crew) -> str | None:
    """Return a parameter of which two rows hold different parts with the same values. All rows are to call it."""
    if crew.alone:
        return None
    own = {
        name: [how_spread(parameter), content]
        for name, parameter in model.named_parameters()
        if is_spread(parameter) and (content := _content(local_part(parameter)))
    }
    everybody = crew.gather(own)
    for name in own:
        parts = [row[name] for row in everybody if name in row]
        places, contents = ({part[at] for part in parts} for at in (0, 1))
        if len(contents) < len(places):
            return name
    return None


def drops_apart(model: torch.nn.Module, crew: Crew) -> bool:
    """Whether a model with dropout is tensor parallel, and rows would draw different numbers. All rows are to call it.

    A model that FSDP has spread as well is not looked at: its rows may have samples of their own.
    """
    if crew.alone:
        return False
    drops = any(isinstance(module, _DropoutNd) and module.p > 0 for module in model.modules())
    spread = any(is_spread(parameter) for parameter in model.parameters())
    looks = drops and spread and not any(is_fsdp(module) for module in model.modules())
    states = crew.gather(xxhash.xxh3_64(torch.get_rng_state().numpy().data).hexdigest() if looks else "")
    return len(set(states)) > 1


def _content(part: torch.Tensor) -> str:
    """Return a hash of the values; nothing if all are the same, as those of a new bias are."""
    if part.numel() < 2 or bool((part == part.view(-1)[0]).all()):
        return ""
    return xxhash.xxh3_64(part.cpu().contiguous().view(torch.uint8).numpy().data).hexdigest()
