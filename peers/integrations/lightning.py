"""The Trainer of Lightning as a peer of a swarm.

    with peers.join(alone=True) as peer:
        trainer = lightning.Trainer(strategy=GossipStrategy(peer), max_epochs=3)
        trainer.fit(module, DataLoader(dataset, batch_size=32))

Each process runs a Trainer that believes to be alone. The training data comes from `Peer.batches` in place of the
loader, the schedulers run on the swarm's clock, the first peer writes logs and checkpoints, and at the end of `fit` all
peers agree on one model.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn

from gossip.errors import SettingsError
from peers.integrations.given_loader import options_of
from peers.integrations.sample_limit import SampleLimit
from peers.peer import Peer
from peers.rate_schedule import SwarmSchedule

__all__ = ["GossipStrategy"]

# The signatures of hooks are those of lightning.
# ruff: noqa: ARG002


class GossipStrategy(SingleDeviceStrategy):
    """Trains the module of a Trainer as a peer's replica.

    ``max_epochs`` and ``max_steps`` count what the swarm as a whole does, in the steps of one process that trains
    alone. An epoch of this Trainer ends when the swarm has come to its next one. Checkpoints to resume from, with the
    position in the data, are those of the peer (``checkpoint_every``, ``resume``).
    """

    strategy_name = "gossip"

    def __init__(self, peer: Peer, **options: Any) -> None:
        """Make the strategy of a peer.

        Args:
            peer: of `peers.join`, without a model.
            options: of Lightning's strategies for one device.
        """
        super().__init__(device=peer.device, **options)
        self.peer = peer
        self._epochs: _SwarmEpochs | None = None
        self._attached = self._agreed = False
        self._at_sigterm = signal.getsignal(signal.SIGTERM)
        self._tell_loggers()

    # The first peer writes

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the peer that writes; another one may become that."""
        return self.peer.is_first

    def _tell_loggers(self) -> None:
        """Let the loggers of the first peer write, and no others: they ask this number of Lightning's."""
        rank_zero_only.rank = 0 if self.peer.is_first else max(self.peer.rank, 1)

    # Data

    def process_dataloader(self, dataloader: object) -> object:
        """Put the swarm's batches in the place of the training data; other loaders stay as they are."""
        trainer = self._trainer()
        if not trainer.training:
            return dataloader
        if self._epochs is None or not self._epochs.replaces(dataloader):
            if self._attached and self._epochs is not None:
                raise SettingsError(
                    f"dataloader: {type(dataloader).__name__} is a second loader of training data, and the swarm goes "
                    "through one data set: combine them with torch.utils.data.StackDataset or ConcatDataset"
                )
            self._epochs = _SwarmEpochs(self.peer, dataloader, trainer)
        return self._epochs

    def _trainer(self) -> Any:
        assert self.lightning_module is not None, "Lightning connects the module first"
        return self.lightning_module.trainer

    # Training

    def setup(self, trainer: Any) -> None:
        """Make the module this peer's replica, once its optimizer is known."""
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        if len(self.optimizers) != 1:
            raise SettingsError(
                f"trainer: its module's configure_optimizers returns {len(self.optimizers)} optimizers, and a peer has "
                "one: put all parameters into groups of one optimizer"
            )
        trainer.training = True
        trainer.fit_loop.setup_data()
        epochs = self._epochs
        if epochs is None:
            raise SettingsError(
                f"limit_train_batches={trainer.limit_train_batches}: there is no training data for the swarm to share"
            )
        also: dict[str, Any] = {}
        for number, config in enumerate(self.lr_scheduler_configs):
            config.scheduler = SwarmSchedule(config.scheduler, epochs.limit, epochs.steps(config.interval))
            config.interval, config.frequency = "step", 1
            also[f"schedule-{number}"] = config.scheduler
        self.peer.attach(self.model, self.optimizers[0], also=also)
        self._attached = True
        # From now on the length is unknown, and the Trainer has to look for the end.
        epochs.attached = True
        trainer.fit_loop._combined_loader = None

    def on_train_start(self) -> None:
        """Let the peer answer SIGTERM again: it ends with a checkpoint at its next boundary, Lightning before that."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._at_sigterm)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Let another peer write, if the first has died."""
        self._tell_loggers()

    def on_validation_start(self) -> None:
        """Agree before the last validation: what is measured and saved then is the model of all."""
        if self._epochs is not None and self._epochs.over:
            self._agree()

    def on_train_end(self) -> None:
        """Agree, if no validation came after the last step."""
        self._agree()

    def _agree(self) -> None:
        if self._attached and not self._agreed:
            self._agreed = True
            assert self._epochs is not None
            self._epochs.limit.end()
            self.peer.consensus()


class _SwarmEpochs:
    """The training data of a Trainer: the swarm's batches, cut where the swarm comes to its next epoch."""

    def __init__(self, peer: Peer, loader: Any, trainer: Any) -> None:
        options = options_of(loader)
        self._loader, self._trainer = loader, trainer
        in_epoch = len(loader)
        batches = in_epoch * trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else 0
        if trainer.max_steps > 0:
            wanted = trainer.max_steps * trainer.accumulate_grad_batches
            batches = min(batches, wanted) if batches else wanted
        if not batches:
            raise SettingsError(
                f"max_epochs={trainer.max_epochs} and max_steps={trainer.max_steps} have no end: the swarm has to know "
                "how much it goes through. Give one of them to the Trainer"
            )
        #: All batches of the swarm, and its clock.
        self.limit = SampleLimit(
            peer,
            *(loader.dataset, loader.batch_size, batches),
            accumulation=int(trainer.accumulate_grad_batches),
            **options,
        )
        #: Whether the model is attached, so that batches can be had.
        self.attached = False
        #: Whether the swarm is through.
        self.over = False
        self._loop: Iterator[Any] | None = None

    def replaces(self, loader: object) -> bool:
        """Whether this is in the place of that loader."""
        return loader is self or getattr(loader, "dataset", None) is self._loader.dataset

    def steps(self, interval: str) -> int:
        """Return the steps that a scheduler of this interval was written for."""
        if interval == "epoch":
            return max(1, round(self.limit.epochs))
        return max(1, -(-len(self.limit) // int(self._trainer.accumulate_grad_batches)))

    def __len__(self) -> int:
        if self.attached:
            raise TypeError("the batches of this peer in an epoch are not known: the others do the rest")
        return self.limit.in_epoch

    def __iter__(self) -> Iterator[Any]:
        if not self.attached:
            return iter(())  # Lightning asks for the number of steps before there is an optimizer
        return self._epoch()

    def _epoch(self) -> Iterator[Any]:
        self._loop = self._loop or iter(self.limit)
        began = self.limit.progress.epoch
        for batch in self._loop:
            yield batch
            if self.limit.progress.epoch > began:
                return
        self.over = self._trainer.should_stop = True
