"""A model that is attached to a peer: its replica, its checkpoints, its gossip, and what happens in its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gossip import policies
from gossip.errors import SettingsError
from gossip.exchange.coding import gamma_notice
from gossip.net.transport import Transport
from gossip.presets import Preset
from peers.checkpoints.saving import Restored, Saving, Stateful
from peers.crew.crew import Crew
from peers.endings import AFTERWARDS
from peers.methods.choosing import fit, suited
from peers.model.attachable import check_model, check_stateful, check_trained, plain_optimizer
from peers.model.bindings import Bindings
from peers.model.drawn_parts import drawn_alike, drops_apart
from peers.model.held import Held
from peers.model.replica import is_finite
from peers.own_process import OwnProcess
from peers.reporting.reporter import Reporter
from peers.session.cards import Card
from peers.session.session import Session
from peers.setup import Setup
from peers.steps.afterwards import expect_no_step, expect_steps
from peers.steps.hooks import StepHooks
from peers.steps.next_pass import NextPass
from peers.steps.step_watch import StepWatch
from peers.steps.steps import Steps
from peers.steps.steps_choice import choose_steps

__all__ = ["Attachment"]


class Attachment:
    """One attached model, from its checkpoint to its last step. For the trainer's thread."""

    def __init__(
        self,
        setup: Setup,
        crew: Crew,
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
            setup: who this peer is in the swarm of its row, and how it gossips.
            crew: the processes that hold the replica.
            preset: the settings for the network.
            transport: bound, connected to nobody.
            cards: where everybody is, by rank.
            model: any module.
            optimizer: over the model's parameters, maybe in wrappers.
            also: further objects that belong into checkpoints, by name.
            reporter: of the peer.
            set_step: is called with the number of steps that a state has which the replica takes over.
        """
        check_model(model)
        optimizer = plain_optimizer(optimizer)
        policy = suited(policies.parse(setup.algorithm), optimizer)
        self._process = OwnProcess(setup.rank)
        self._crew = crew
        self._averages = policy.averages_gradients
        check_trained(model, optimizer, reporter.warn, averages=self._averages)
        check_stateful(also)
        self._model, self._optimizer, self._also = model, optimizer, dict(also)
        self._reporter, self._set_step = reporter, set_step
        self._held = Held(setup.rank, model, optimizer)
        try:
            self.replica, self._method = fit(
                policy, model, optimizer, preset.shard_bytes, setup.share, setup.compress, crew
            )
            if policy.collective != "server":  # a centre adds up moves, whoever made them
                self.replica.lines.append(("optimizer", type(optimizer).__name__))
            self.saving = Saving(
                setup, crew, model, optimizer, self._method, self._also, reporter.directory, reporter.warn
            )
        except BaseException:
            self._held.release()
            raise
        if (name := drawn_alike(model, crew)) is not None and crew.is_lead:
            reporter.warn(
                f"{name}: rows hold different parts of it with the same values, because torch draws the parts of a "
                "spread tensor alike: draw the plain model before it is spread"
            )
        if drops_apart(model, crew) and crew.is_lead:
            reporter.warn(
                "the rows of this replica would draw different numbers for dropout, so gradients would be wrong: call "
                "torch.manual_seed(peer.replica) at every row before peer.attach"
            )
        if setup.rank == 0 and (notice := gamma_notice(setup.compress, policy)):
            reporter.warn(notice)
        #: Sees to it that the model's values stay where they are exchanged from.
        self.bindings = Bindings(model, optimizer, self.replica, reporter.warn)
        #: Knows when the script is through with a step.
        self.next_pass = NextPass(model)
        try:
            self._restored = self._resume() if setup.resume else None
            turns, self._step = (None, 0) if self._restored is None else (self._restored.turns, self._restored.step)
            self.session = Session(
                setup,
                policy,
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
            self._held.release()
            raise
        self._steps: Steps | None = None
        self._hooks: StepHooks | None = None
        #: Notices a script that trains something else; known once `start` is through.
        self.watch: StepWatch | None = None

    @property
    def steps(self) -> Steps:
        """What happens in each step of the optimizer; known once `start` is through."""
        assert self._steps is not None
        return self._steps

    @property
    def mixes(self) -> bool:
        """Whether training began, and replicas differ until they are mixed: there are others, or have been."""
        return self._steps is not None and not self._steps.own_is_average and bool(self.session.chronicle.states)

    def _resume(self) -> Restored | None:
        """Bring everything back to the newest checkpoint, if there is one."""
        restored = self.saving.load()
        if restored is None:
            self._reporter.warn("there is no checkpoint to resume from: training starts anew")
            return None
        self._set_step(restored.step)
        self._reporter.announce("resume", f"resumes from the checkpoint of step {restored.step}")
        return restored

    def start(self, after_step: Callable[[], None]) -> None:
        """Come together with the others; return when all start from the same weights.

        Args:
            after_step: is called after each step of the optimizer from then on, before the exchange.
        """
        expect_steps(self._optimizer)
        self._crew.together(lambda: self.session.gather(self._restored is not None))
        self.replica.unite()
        if names := self.not_finite():
            raise SettingsError(
                f"{names[0]} of the model holds NaN or infinity before the first step: begin with other values, or "
                "resume from an earlier checkpoint"
            )
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

        self.watch = watch = StepWatch(self._optimizer, self._reporter.warn, averages=self._averages)

        def before_move() -> None:
            self._process.check()
            watch.begins()
            self.next_pass.now()
            self.bindings.check()
            steps.begin()

        def evaluated() -> None:
            watch.evaluated()
            steps.evaluated()

        def after_move() -> None:
            watch.ends()
            self.bindings.check()  # an optimizer may set new values too, rather than change them
            steps.end()
            after_step()

        self._hooks = StepHooks(self._optimizer, before_move, evaluated, after_move)

    def not_finite(self) -> list[str]:
        """Return the names of the tensors that hold NaN or infinity, of those that are mixed."""
        if self.replica.is_finite():
            return []
        tensors = [*self._model.named_parameters(), *self._model.named_buffers()]
        return [name for name, tensor in tensors if not is_finite(tensor)] or ["the momentum"]

    def stay(self) -> None:
        """Stay for as long as the others need this peer, whose training has come to its end."""
        self.saving.finish(last=True)
        if self._steps is not None:
            self.session.last(self._steps.close)

    def close(self, timeout: float, at_most: float) -> None:
        """Leave the swarm, and wait until the last checkpoint is on the disk.

        Args:
            timeout: seconds for the goodbye; what it takes to hand the model over is added.
            at_most: seconds for leaving.
        """
        if self._hooks is not None:
            self._hooks.remove()
        if self.watch is not None:
            self.watch.close()
        if self._steps is not None and self.session.chronicle.states:
            expect_no_step(self._optimizer, lambda: self._reporter.warn(AFTERWARDS))
        self.next_pass.cancel()
        self.session.close(timeout, at_most)
        self.saving.close()
        self._held.release()
