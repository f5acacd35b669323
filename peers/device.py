"""The device that a peer's model belongs on."""

from __future__ import annotations

import torch

from gossip.errors import SettingsError
from peers.setup import Setup

__all__ = ["device_of"]


def device_of(setup: Setup) -> torch.device:
    """Return the device that the settings name; for ``auto`` the GPU of the local rank, or the CPU without a GPU."""
    if setup.device != "auto":
        try:
            return torch.device(setup.device)
        except RuntimeError as error:
            raise SettingsError(f"device={setup.device!r} is not a device: use auto, cpu, cuda or cuda:1") from error
    if torch.cuda.is_available() and torch.cuda.device_count():
        return torch.device("cuda", setup.local_rank % torch.cuda.device_count())
    return torch.device("cpu")
