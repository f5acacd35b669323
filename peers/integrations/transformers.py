"""The Trainer of Hugging Face's transformers as a peer of a swarm.

    with peers.join(alone=True) as peer:
        trainer = GossipTrainer(model=model, args=TrainingArguments("out"), train_dataset=data, peer=peer)
        trainer.train()
        trainer.save_model()

Each process runs a Trainer that believes to be alone: `join(alone=True)` hides the launcher, and comes before
TrainingArguments, which look for one. The training data comes from `Peer.batches`, the schedule runs on the swarm's
clock, the first peer logs, evaluates and writes checkpoints, and at the end of `train` all peers agree on one model.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, set_seed
from transformers.trainer_utils import IntervalStrategy

from gossip.errors import SettingsError
from peers.data.dataset_checks import check_indexed
from peers.integrations.sample_limit import SampleLimit
from peers.peer import Peer
from peers.rate_schedule import SwarmSchedule

__all__ = ["GossipTrainer", "GossipTrainerMixin"]

# The signatures of a callback are those of transformers.
# ruff: noqa: ARG002


class GossipTrainerMixin:
    """What makes a Trainer a peer, for Trainer classes of your own: ``class Mine(GossipTrainerMixin, MyTrainer)``.

    It comes first among the base classes. ``num_train_epochs`` and ``max_steps`` count what the swarm as a whole does,
    in the steps of one process that trains alone. Checkpoints to resume from, with the position in the data, are those
    of the peer (``checkpoint_every``, ``resume``); the checkpoints of the Trainer are copies of the first peer's model.
    """

    # Set by the Trainer.
    args: Any
    model: Any
    optimizer: Any
    lr_scheduler: Any
    state: Any
    control: Any
    callback_handler: Any
    data_collator: Any
    train_dataset: Any
    _train_batch_size: int

    def __init__(self, *arguments: Any, peer: Peer, **named: Any) -> None:
        """Make the Trainer of a peer.

        Args:
            arguments: of the Trainer.
            peer: of `peers.join`, without a model.
            named: further arguments of the Trainer.
        """
        self.peer = peer
        self._batches: SampleLimit | None = None
        super().__init__(*arguments, **named)
        _check(self.args, peer)
        # Behind the callback that decides on logs, evaluations and checkpoints; before those that report them.
        self.callback_handler.callbacks.insert(1, _SwarmCallback(self))

    # Data

    def get_train_dataloader(self) -> SampleLimit:
        """Return this peer's batches: one loop that ends when the swarm is through."""
        if self.train_dataset is None:
            raise SettingsError(f"train_dataset is {self.train_dataset}: a Trainer that trains needs a data set")
        check_indexed(self.train_dataset)
        args: Any = self.args
        collate = self.data_collator
        if args.remove_unused_columns:
            collate = self._get_collator_with_removed_columns(collate, description="training")  # type: ignore[attr-defined]
        options = {
            "collate_fn": collate,
            "drop_last": args.dataloader_drop_last,
            "num_workers": args.dataloader_num_workers,
            "pin_memory": args.dataloader_pin_memory and self.peer.device.type == "cuda",
        }
        if args.dataloader_num_workers:
            options["prefetch_factor"] = args.dataloader_prefetch_factor
        size, batch_size = len(self.train_dataset), self._train_batch_size
        in_epoch = size // batch_size if args.dataloader_drop_last else -(-size // batch_size)
        if args.max_steps > 0:
            batches = args.max_steps * args.gradient_accumulation_steps
        else:
            batches = math.ceil(args.num_train_epochs * in_epoch)
        self._batches = SampleLimit(
            self.peer,
            *(self.train_dataset, batch_size, batches),
            accumulation=args.gradient_accumulation_steps,
            **options,
        )
        return self._batches

    def set_initial_training_values(self, args: Any, *more: Any) -> Any:
        """Let the loop over all batches of the swarm be one epoch of the Trainer."""
        once = copy.copy(args)
        once.num_train_epochs, once.max_steps = 1.0, -1
        return super().set_initial_training_values(once, *more)  # type: ignore[misc]

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, *more: Any) -> Any:
        """Return the batches of the next step. At the end of the data training stops."""
        batches = []
        for batch in epoch_iterator:
            batches.append(batch)
            if len(batches) == num_batches:
                break
        if not batches:
            self.control.should_training_stop = True
        elif len(batches) < num_batches:
            # The swarm came to its end in the middle of an accumulation. Without these the step would not be made.
            batches = [batches[place % len(batches)] for place in range(num_batches)]
        return super().get_batch_samples(iter(batches), num_batches, *more)  # type: ignore[misc]

    # The schedule

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Put the scheduler, the Trainer's own or the user's, on the swarm's clock."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)  # type: ignore[misc]
        if not isinstance(scheduler, SwarmSchedule):
            assert self._batches is not None, "the data comes first"
            self.lr_scheduler = SwarmSchedule(scheduler, self._batches, num_training_steps)
        return self.lr_scheduler

    # The first peer writes

    def is_world_process_zero(self) -> bool:
        """Whether this is the peer that writes; another one may become that."""
        return self.peer.is_first

    def is_local_process_zero(self) -> bool:
        """Whether this is the peer that writes: one for all machines."""
        return self.peer.is_first

    def save_model(self, *arguments: Any, **named: Any) -> None:
        """Save the model, if this is the first peer."""
        if self.peer.is_first:
            super().save_model(*arguments, **named)  # type: ignore[misc]

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        if self.peer.is_first:
            super()._save_checkpoint(*arguments, **named)  # type: ignore[misc]

    # Training

    def train(self, resume_from_checkpoint: Any = None, *arguments: Any, **named: Any) -> Any:
        """Train with the others until the swarm is through, and agree on one model.

        Raises:
            SettingsError: If this Trainer is to resume from a checkpoint of its own, which has no position in the data.
        """
        if resume_from_checkpoint:
            raise SettingsError(
                f"resume_from_checkpoint={resume_from_checkpoint!r}: a checkpoint of the Trainer does not hold where "
                "the swarm is in its data. Let the peer save and resume: peers.join(run_dir=..., "
                "checkpoint_every=100, resume=True), or gossip launch --checkpoint-every 100 --resume"
            )
        return super().train(None, *arguments, **named)  # type: ignore[misc]


class GossipTrainer(GossipTrainerMixin, Trainer):
    """A Trainer whose process is a peer of a swarm: all arguments of Trainer, and ``peer``."""


class _SwarmCallback(TrainerCallback):
    """What a Trainer does as a peer when its training begins, after each step, and at the end."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._epoch = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Attach the model; with a checkpoint of the peer, go on from there."""
        trainer = self._trainer
        peer: Peer = trainer.peer
        place = _TrainerPlace(state)
        peer.attach(trainer.model, trainer.optimizer, also={"schedule": trainer.lr_scheduler, "trainer": place})
        trainer._globalstep_last_logged = trainer._initial_global_step = state.global_step
        self._epoch = int(self._epochs())
        state.is_world_process_zero = state.is_local_process_zero = peer.is_first
        if not peer.step:
            set_seed(args.seed + peer.rank)  # the same dropout everywhere would be of no use

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the swarm's epoch; let the first peer alone evaluate and write."""
        peer: Peer = self._trainer.peer
        state.is_world_process_zero = state.is_local_process_zero = peer.is_first
        state.epoch = self._epochs()
        if int(state.epoch) > self._epoch and state.epoch < self._trainer._batches.epochs:
            # An epoch of the swarm is over. The Trainer itself sees one epoch, whose end is that of training.
            self._epoch = int(state.epoch)
            control.should_log = control.should_log or args.logging_strategy == IntervalStrategy.EPOCH
            control.should_evaluate = control.should_evaluate or args.eval_strategy == IntervalStrategy.EPOCH
            control.should_save = control.should_save or args.save_strategy == IntervalStrategy.EPOCH
        if not peer.is_first:
            control.should_evaluate = control.should_save = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Agree at the end of the Trainer's one epoch: what is evaluated and saved then is the model of all."""
        self._trainer._batches.end()
        state.epoch = self._epochs()
        self._trainer.peer.consensus()
        if not self._trainer.peer.is_first:
            control.should_evaluate = control.should_save = False

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Put what the Trainer logs into the metrics of the peer too."""
        if logs and "loss" in logs and self._trainer.peer.is_open:
            self._trainer.peer.log(loss=logs["loss"])

    def _epochs(self) -> float:
        batches: SampleLimit = self._trainer._batches
        return batches.progress.fraction * batches.epochs


class _TrainerPlace:
    """Where the Trainer is, for the checkpoints of the peer."""

    _NAMES = ("global_step", "epoch", "total_flos", "num_input_tokens_seen")

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self._state, name) for name in self._NAMES}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._NAMES:
            setattr(self._state, name, state[name])


def _check(args: Any, peer: Peer) -> None:
    """Refuse what would train apart from the other peers, or twice with them."""
    if args.world_size > 1:
        raise SettingsError(
            f"args: TrainingArguments has found {args.world_size} processes and would average their gradients by "
            "itself: call peers.join(alone=True) before TrainingArguments is made"
        )
    if args.n_gpu > 1 or torch.device(args.device).type != peer.device.type:
        raise SettingsError(
            f"TrainingArguments has chosen {args.n_gpu} GPUs and {args.device}, and the peer {peer.device}: let each "
            "process see one GPU, as gossip launch does by CUDA_VISIBLE_DEVICES, or set use_cpu=True and device='cpu'"
        )
    if args.load_best_model_at_end:
        raise SettingsError(
            f"load_best_model_at_end={args.load_best_model_at_end}: the peers agree on one model at the end, and an "
            "older one of a single peer would replace it. Set it to False"
        )
