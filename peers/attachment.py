"""A model that is attached to a peer: its replica, its checkpoints, its gossip, and what happens in its steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch

from gossip import policies
from gossip.net.transport import Transport
from gossip.presets import Preset
from peers.checkpoints.saving import Restored, Saving, Stateful
from peers.methods.choosing import fit
from peers.reporting.reporter import Reporter
from peers.session.cards import Card
from peers.session.session import Session
from peers.setup import Setup
from peers.steps.hooks import StepHooks
from peers.steps.steps import Steps
from peers.steps.steps_choice import choose_steps

__all__ = ["Attachment"]

_log = logging.getLogger("gossip")


class Attachment:
    """One attached model, from its checkpoint to its last step. For the trainer's thread."""

    def __init__(
        self,
        setup: Setup,
        preset: Preset,
        transport: Transport,
        cards: Mapping[int, Card],
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        also: Mapping[str, Stateful],
        reporter: Reporter,
        set_step: Callable[[int], None],
    ) -> None:
        """Make the model a replica, bring its checkpoint back if asked to, and start the gossip thread.

        Args:
            setup: who this peer is, and how it gossips.
            preset: the settings for the network.
            transport: bound, connected to nobody.
            cards: where everybody is, by rank.
            model: any module.
            optimizer: over the model's parameters.
            also: further objects that belong into checkpoints, by name.
            reporter: of the peer.
            set_step: is called with the number of steps that a state has which the replica takes over.
        """
        self._model, self._optimizer, self._also = model, optimizer, dict(also)
        self._rank, self._reporter, self._set_step = setup.rank, reporter, set_step
        policy = policies.parse(setup.algorithm)
        self.replica, self._method = fit(policy, model, optimizer, preset.shard_bytes, setup.share, setup.compress)
        self.saving = Saving(setup, model, optimizer, self._method, self._also, reporter.directory, reporter.warn)
        try:
            self._restored = self._resume() if setup.resume else None
            turns, self._step = (None, 0) if self._restored is None else (self._restored.turns, self._restored.step)
            self.session = Session(
                setup,
                preset,
                transport,
                cards,
                self.replica,
                reporter.warn,
                reporter.note,
                turns,
                self._step,
                failed=reporter.failed,
            )
        except BaseException:
            self.saving.close()
            raise
        self._steps: Steps | None = None
        self._hooks: StepHooks | None = None

    @property
    def steps(self) -> Steps:
        """What happens in each step of the optimizer; known once `start` is through."""
        assert self._steps is not None
        return self._steps

    def _resume(self) -> Restored | None:
        """Bring everything back to the newest checkpoint, if there is one."""
        restored = self.saving.load()
        if restored is None:
            self._reporter.warn("there is no checkpoint to resume from: training starts anew")
            return None
        self._set_step(restored.step)
        _log.info("rank %d: resumed from step %d", self._rank, restored.step)
        self._reporter.note(event="resume", text=f"from the checkpoint of step {restored.step}")
        return restored

    def start(self, after_step: Callable[[], None]) -> None:
        """Come together with the others; return when all start from the same weights.

        Args:
            after_step: is called after each step of the optimizer from then on, before the exchange.
        """
        adopted = self.session.gather(self._restored is not None, self.replica.encode_rest())
        if adopted is not None:
            self.replica.decode_rest(adopted)
        self.saving.restore_random()
        self._steps = steps = choose_steps(
            self.session,
            self.replica,
            self._method,
            self._model,
            self._optimizer,
            self._also,
            step=self._step,
            set_step=self._set_step,
            warn=self._reporter.warn,
        )

        def after_move() -> None:
            steps.end()
            after_step()

        self._hooks = StepHooks(self._optimizer, steps.begin, after_move)

    def close(self, timeout: float, *, finished: bool) -> None:
        """Leave the swarm, and wait until the last checkpoint is on the disk.

        Args:
            timeout: seconds for handing over the mass that this peer holds.
            finished: whether training came to its end, so that the others get all that they need of this peer.
        """
        if self._hooks is not None:
            self._hooks.remove()
        if finished and self._steps is not None:
            self.session.last(self._steps.close)
        self.session.close(timeout)
        self.saving.close()
