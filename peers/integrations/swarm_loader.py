"""The training loader of a GossipAccelerator: each loop over it is an epoch of the swarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from accelerate.data_loader import DataLoaderStateMixin
from torch.utils.data import DataLoader

from peers.integrations.given_loader import options_of

__all__ = ["SwarmLoader"]


class SwarmLoader(DataLoaderStateMixin):
    """The batches of this peer, in the place of a user's loader. Its length is that of one process that trains alone.

    A script may break off a loop. What is left of that epoch is then done by other peers, or by nobody.
    """

    def __init__(self, accelerator: Any, loader: DataLoader[Any]) -> None:
        """Prepare; there are batches once the model is attached.

        Args:
            accelerator: of the peer.
            loader: of the user.
        """
        self._options = options_of(loader)
        self._accelerator = accelerator
        #: As of the user's loader, for scripts that ask for it.
        self.dataset, self.batch_size, self.drop_last = loader.dataset, loader.batch_size, loader.drop_last
        self.gradient_state = accelerator.gradient_state
        #: Are called at the end of an epoch, with the steps that this peer has made in it.
        self.at_ends: list[Callable[[int], None]] = []
        self._length = len(loader)

    def __len__(self) -> int:
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the swarm knows its epoch, and each has an order of its own."""

    def __iter__(self) -> Iterator[Any]:
        accelerator, peer = self._accelerator, self._accelerator.peer
        began = peer.step
        self.begin()
        try:
            batch = None
            for batch in peer.batches(self.dataset, self.batch_size, epochs=1, **self._options):
                accelerator._tell()
                yield batch
            if batch is not None and self.gradient_state.sync_with_dataloader and not accelerator.sync_gradients:
                # The swarm came to its end in the middle of an accumulation. Once more, or the step would not be made.
                self.end_of_dataloader = True
                yield batch
        finally:
            self.end()
        for act in self.at_ends:
            act(peer.step - began)
