"""Which models and optimizers belong to peers of this process: each to one peer at a time.

Two peers that train one model would each merge, move and send the same memory; a second peer of a notebook, whose first
one was not closed, would do that.
"""

from __future__ import annotations

import threading

import torch

from gossip.errors import SettingsError

__all__ = ["Held"]

_lock = threading.Lock()
#: The rank that holds an object, by the object's id; the object is kept, so that the id stays its own.
_holders: dict[int, tuple[object, int]] = {}


class Held:
    """One model and its optimizer, held by one peer."""

    def __init__(self, rank: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Take hold of both, or raise a `SettingsError` if a peer of this process holds them already."""
        named: list[tuple[str, object]] = [("the optimizer", optimizer)]
        named += [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        with _lock:
            for name, one in named:
                if id(one) in _holders:
                    raise SettingsError(
                        f"{name} is attached to the peer of rank {_holders[id(one)][1]} in this process already: end "
                        "that peer with peer.close(), or make another model and optimizer for this one"
                    )
            _holders.update({id(one): (one, rank) for _, one in named})
        self._ids = [id(one) for _, one in named]

    def release(self) -> None:
        """Let go of both; calling it again does nothing."""
        with _lock:
            for one in self._ids:
                _holders.pop(one, None)
        self._ids = []
