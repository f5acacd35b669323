"""Hides from a process that a launcher has started it beside others.

Frameworks look into the environment. One that finds RANK and WORLD_SIZE, or the variables of Slurm or MPI, averages
gradients among these processes by itself, shares out the data, or waits for them. A peer does all of that already.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

__all__ = ["HiddenEnvironment"]

#: torchrun's variables.
_NAMES = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
}
#: Those of torchrun's agent, Slurm, MPI and LSF.
_PREFIXES = ("TORCHELASTIC_", "SLURM_", "SLURMD_", "PMI_", "PMIX_", "OMPI_", "MPI_", "MV2_COMM_", "LSB_", "JSM_")


class HiddenEnvironment:
    """The variables that were hidden, until they are restored."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Hide them."""
        self._environment = environment
        names = [name for name in environment if name in _NAMES or name.startswith(_PREFIXES)]
        self._hidden = {name: environment.pop(name) for name in names}

    def restore(self) -> None:
        """Bring them back, but for those that were set anew in the meantime."""
        for name, value in self._hidden.items():
            self._environment.setdefault(name, value)
        self._hidden = {}
