"""The base class of methods, which does nothing. A method changes the values besides exchanging them.

A step of a peer: arrived mass is merged, `begin`, the optimizer moves the values, `end`, the exchange, and `exchanged`
for the shards that took their turn. A method only moves values, like the optimizer, so it can neither make nor lose
mass.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

__all__ = ["Method"]


class Method:
    """No change besides the exchange: sgp, osgp, dpsgd, adpsgd, local and similar algorithms."""

    #: Whether a checkpoint's state was taken over.
    restored = False

    def start(self) -> None:
        """Begin to train with the present values: those of a checkpoint, or the common initial ones."""

    def optimizer_loaded(self) -> None:
        """Note that the optimizer has just loaded its state from a checkpoint."""

    def begin(self, exchanges: bool) -> None:
        """Called before the optimizer moves the values; ``exchanges``: the step will end in an exchange."""

    def end(self) -> None:
        """Called after the optimizer has moved the values, and before they are exchanged."""

    def exchanged(self, shards: Container[int]) -> None:
        """Called after these shards were exchanged."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the result of `state_dict`, of the same method for the same model."""
