"""What an algorithm does to the values besides exchanging them: the base, which does nothing.

A step of a peer: what has arrived is merged, `begin`, the optimizer moves the values, `end`, the exchange, and
`exchanged` for those shards that took their turn. All that a method does to the values is a move like the
optimizer's own, so it can neither make nor lose mass.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

__all__ = ["Method"]


class Method:
    """Nothing beside the exchange: sgp, osgp, dpsgd, adpsgd, local and their like."""

    #: Whether a checkpoint's state was taken over.
    restored = False

    def start(self) -> None:
        """Begin to train with the values that there are now: a checkpoint's, or those that all start from."""

    def optimizer_loaded(self) -> None:
        """Take notice of a state that the optimizer has just loaded from a checkpoint."""

    def begin(self, exchanges: bool) -> None:
        """Look at the values before the optimizer moves them; ``exchanges``: the step will end in an exchange."""

    def end(self) -> None:
        """Look at the values after the optimizer has moved them, and before they are exchanged."""

    def exchanged(self, shards: Container[int]) -> None:
        """Look at the values of those shards that have just been exchanged."""

    def state_dict(self) -> dict[str, Any]:
        """Return what belongs into a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, of the same method for the same model."""
