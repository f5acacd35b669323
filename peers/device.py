"""The device that a peer's model belongs on."""

from __future__ import annotations

import os

import torch

from gossip.errors import SettingsError
from peers.setup import Setup

__all__ = ["check_device", "device_of"]

#: The kinds of device whose values a peer can exchange.
_KINDS = ("cpu", "cuda")


def device_of(setup: Setup) -> torch.device:
    """Return the device that the settings name; for ``auto`` the GPU of the local rank, or the CPU without a GPU.

    Under `gossip launch` a peer sees its own GPU only, which is then cuda:0, whatever its local rank is.
    """
    if setup.device != "auto":
        try:
            device = torch.device(setup.device)
        except RuntimeError as error:
            raise SettingsError(f"device={setup.device!r} is not a device: use auto, cpu, cuda or cuda:1") from error
        check_device(device, f"device={setup.device!r}")
        if device.type == "cuda" and device.index and 0 < torch.cuda.device_count() <= device.index:
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            raise SettingsError(
                f"device={setup.device!r} does not exist: this process sees {torch.cuda.device_count()} GPUs "
                f"(CUDA_VISIBLE_DEVICES={seen}). Under gossip launch, leave device out to get the peer's own GPU, or "
                "name it with --device, and every peer sees all GPUs"
            )
        return device
    if torch.cuda.is_available() and torch.cuda.device_count():
        return torch.device("cuda", setup.local_rank % torch.cuda.device_count())
    return torch.device("cpu")


def check_device(device: torch.device, what: str) -> None:
    """Raise a `SettingsError` if nothing can be exchanged from this device."""
    if device.type not in _KINDS:
        raise SettingsError(
            f"{what}: a peer exchanges values of the CPU and of CUDA devices, not of {device.type}: move the model to "
            "the CPU with model.to('cpu'), and join with device='cpu'"
        )
