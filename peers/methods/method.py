"""The base class of methods, which does nothing. A method changes the values besides exchanging them.

A step of a peer: arrived mass is merged, `begin`, `evaluated` when the gradients are there, the optimizer moves the
values, `end`, the exchange, and `exchanged` for the shards that took their turn. A method only moves values, like the
optimizer, so it can neither make nor lose mass.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

__all__ = ["Method", "Methods"]


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

    def evaluated(self, peers: Callable[[], float]) -> None:
        """Called when the gradients of the step are there.

        Args:
            peers: returns how many peers average their moves with this one within the memory of momentum.
        """

    def end(self) -> None:
        """Called after the optimizer has moved the values, and before they are exchanged."""

    def exchanged(self, shards: Container[int]) -> None:
        """Called after these shards were exchanged."""

    def balanced(self, shards: Container[int], pace: float) -> None:
        """Called after an exchange with the shards, if any, that got as much weight as they gave, all in time.

        Args:
            shards: which ones.
            pace: the turns that a shard takes in a step.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the result of `state_dict`, of the same method for the same model."""


class Methods(Method):
    """Several methods at once, in this order."""

    def __init__(self, *methods: Method) -> None:
        self._methods = methods

    def start(self) -> None:
        """Begin."""
        for one in self._methods:
            one.restored = self.restored
            one.start()

    def optimizer_loaded(self) -> None:
        """Note that the optimizer has loaded its state."""
        for one in self._methods:
            one.optimizer_loaded()

    def begin(self, exchanges: bool) -> None:
        """Begin a step."""
        for one in self._methods:
            one.begin(exchanges)

    def evaluated(self, peers: Callable[[], float]) -> None:
        """Look at the gradients."""
        for one in self._methods:
            one.evaluated(peers)

    def end(self) -> None:
        """End a move."""
        for one in self._methods:
            one.end()

    def exchanged(self, shards: Container[int]) -> None:
        """Look at what was exchanged."""
        for one in self._methods:
            one.exchanged(shards)

    def balanced(self, shards: Container[int], pace: float) -> None:
        """Look at what was exchanged in time."""
        for one in self._methods:
            one.balanced(shards, pace)

    def state_dict(self) -> dict[str, Any]:
        """Return the states, by the names of the classes."""
        return {type(one).__name__: state for one in self._methods if (state := one.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the states."""
        for one in self._methods:
            one.load_state_dict(state.get(type(one).__name__, {}))
