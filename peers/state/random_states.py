"""The states of the random number generators that a training step draws from, captured and restored exactly.

They are Python's `random`, numpy's global generator, torch on the CPU, and torch on the replica's CUDA device if it has
one. A program must save its own generators (`torch.Generator`, `numpy.random.Generator`) itself.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from peers.state.storable import StateError

__all__ = ["capture_random_states", "restore_random_states"]


def capture_random_states(device: torch.device | str | None = None) -> dict[str, Any]:
    """Return the states as plain data for the ``extra`` of a snapshot.

    Args:
        device: The replica's device. If it is a CUDA device, its generator is captured as well.
    """
    numpy_state = np.random.get_state(legacy=False)
    if numpy_state["bit_generator"] != "MT19937":  # the program called np.random.set_bit_generator
        raise StateError(
            f"numpy's global generator is {numpy_state['bit_generator']}, and only MT19937, the default, can be saved"
        )
    return {
        "python": random.getstate(),
        "numpy": {
            "key": numpy_state["state"]["key"].astype("<u4").tobytes(),
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": _to_bytes(torch.get_rng_state()),
        "cuda": None if (cuda := _cuda(device)) is None else _to_bytes(torch.cuda.get_rng_state(cuda)),
    }


def restore_random_states(states: dict[str, Any], device: torch.device | str | None = None) -> None:
    """Restore the states that `capture_random_states` returned.

    A state of CUDA is used only if ``device`` is a CUDA device: on another device the run continues with other draws.

    Raises:
        StateError: If these are not such states. The generators may then be partly restored.
    """
    try:
        numpy_state = states["numpy"]
        key = np.frombuffer(numpy_state["key"], dtype="<u4")
        random.setstate(states["python"])
        np.random.set_state(("MT19937", key, numpy_state["pos"], numpy_state["has_gauss"], numpy_state["gauss"]))
        torch.set_rng_state(_to_tensor(states["torch"]))
        if states["cuda"] is not None and (cuda := _cuda(device)) is not None:
            torch.cuda.set_rng_state(_to_tensor(states["cuda"]), cuda)
    except (LookupError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise StateError(f"these are not random states: {type(error).__name__}: {error}") from error


def _cuda(device: torch.device | str | None) -> torch.device | None:
    return torch.device(device) if device is not None and torch.device(device).type == "cuda" else None


def _to_bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()


def _to_tensor(state: bytes) -> torch.Tensor:
    # A bytearray, because torch warns about read-only memory.
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
