"""The training of a peer's model: after each step, between two batches, in an agreement, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from peers.attachment import Attachment
from peers.crew.crew import Crew
from peers.data.data_watch import DataComparison
from peers.data.loops import DataLoops
from peers.endings import NOTHING_DONE, divergence, idle, no_consensus, no_step, over_before
from peers.evaluation import Evaluation, evaluate_both
from peers.reporting.reporter import Reporter
from peers.reporting.step_meter import StepMeter
from peers.session.agreement_errors import AgreementError, DivergenceError
from peers.session.consensus import Terms
from peers.session.injection import Boundary
from peers.session.stopping import StopRequest

__all__ = ["Training"]

#: Batches without any step after which a warning is due: more than gradients are accumulated over.
_BATCHES = 1000


class Training:
    """The steps of one attached model. For the trainer's thread."""

    def __init__(
        self,
        rank: int,
        crew: Crew,
        attachment: Attachment,
        stop: StopRequest,
        loops: DataLoops,
        data: DataComparison,
        boundary: Boundary,
        reporter: Reporter,
        meter: StepMeter,
        step: Callable[[], int],
        count_step: Callable[[], None],
    ) -> None:
        """Begin where the attachment is.

        Args:
            rank: of the peer.
            crew: the processes that hold the replica.
            attachment: the model.
            stop: the request to stop, which may come at any moment.
            loops: over data.
            data: is compared with that of the others in the first steps.
            boundary: injects faults between steps.
            reporter: of the peer.
            meter: measures the steps.
            step: returns the number of steps so far.
            count_step: counts one more.
        """
        self._rank = rank
        self._crew = crew
        self._attachment = attachment
        self._stop, self._loops, self._data = stop, loops, data
        self._boundary, self._reporter, self._meter = boundary, reporter, meter
        self._step, self._count_step = step, count_step
        #: The step at which the peers last tried to agree, whether they ever did, and the step after which NaN or
        #: infinity was noticed.
        self._agreed_at = self._began = step()
        self._met = False
        self._diverged_at: int | None = None
        #: The batches since the last step, at most as many as matter.
        self._batches = 0
        #: Whether the script has been told that training diverged.
        self._told = False
        #: Whether the crew has agreed to stop, because one of its rows was asked to.
        self._crew_stops = False

    # Steps

    def after_step(self) -> None:
        """Exchange, report, and save if that is due: the optimizer has moved the values."""
        attachment = self._attachment
        driver = attachment.session.driver
        self._reporter.step_ends()
        self._count_step()
        if self._boundary:
            self._boundary.passed(self._step(), self._meter.seconds)
        waited = attachment.steps.exchange()
        if self._diverged_at is None and attachment.session.chronicle.counts["NotFinite"]:
            self._diverged_at = self._step()
        took = self._meter.finish(waited, driver.bytes_sent, driver.bytes_received, self._loops.samples)
        self._reporter.step_finished(weight=attachment.session.weight, **took)
        self._crew_stops = self._crew.any(self._stop.asked)
        if self._crew_stops:
            self._stop.follow()
        attachment.saving.step_is_over(self._step())
        if attachment.saving.is_due:
            attachment.steps.settle()
        self._data.step_over()
        if not self._loops.settles:
            self._settle_later()
        self._reporter.tell_listeners()

    @property
    def _asked(self) -> bool:
        """Whether to stop. The rows of a crew stop after the same step, when all know of it."""
        return self._stop.asked if self._crew.alone else self._crew_stops

    def _settle_later(self) -> None:
        """Save and stop if that is due, once the script is through with the step that the optimizer has just made."""
        attachment = self._attachment
        saving, asked = attachment.saving, self._asked
        if asked:
            saving.last_is_due(self._step())
        if saving.begin_if_due(attachment.session.status(), self._loops.begun) or asked:
            attachment.next_pass.expect(self._settle_now)

    def _settle_now(self) -> None:
        self._attachment.saving.finish(last=self._asked)
        if self._asked:
            self._stop.now()

    def settle(self, stepped: bool = True) -> None:
        """Save and stop if that is due: between two steps, where neither tears anything apart.

        Args:
            stepped: whether a step was made since the last time. If none was, gradients may be half accumulated, and
                stopping has to wait for it.
        """
        attachment = self._attachment
        saving, status = attachment.saving, attachment.session.status()
        if self._asked and stepped:
            saving.save_last(self._step(), status, self._loops.begun)
            self._stop.now()
        saving.save_if_due(status, self._loops.begun)

    def through(self, loop: Generator[Any, None, None], over: Callable[[], bool]) -> Iterator[Any]:
        """Yield the batches of a loop, and settle between them.

        Args:
            loop: over data.
            over: whether the peer has ended meanwhile.
        """
        try:
            for batch in loop:
                before, settles = self._step(), self._loops.settles
                if settles:
                    self._reporter.step_begins()
                yield batch
                self._count_batch(self._step() != before)
                # Between two batches the loop's body is through, schedulers and all: the moment for a checkpoint.
                if settles:
                    self.settle(self._step() != before)
        finally:
            loop.close()
            if not (over() or self._loops.any_running):
                self._attachment.steps.pause()

    def _count_batch(self, stepped: bool) -> None:
        """Tell a script that takes batch after batch without a step, before its run is over."""
        self._batches = 0 if stepped else self._batches + 1
        if self._batches == _BATCHES and not self._step():
            self._reporter.warn(no_step(self._loops.samples))

    # Agreement

    def evaluate(self, function: Callable[[], Any], tolerance: float, timeout: float | None) -> Evaluation:
        """See `peers.peer.Peer.evaluate`."""
        attachment = self._attachment
        if self._asked:
            attachment.next_pass.now()
        attachment.bindings.check()
        return evaluate_both(
            function,
            attachment.replica,
            lambda on_agreed: self.agree(tolerance, timeout, on_agreed),
            keep_average=attachment.steps.own_is_average,
        )

    def consensus(self, tolerance: float, timeout: float | None, *, must_agree: bool) -> float:
        """See `peers.peer.Peer.consensus`."""
        self._attachment.next_pass.now()
        self._agreed_at = self._step()
        try:
            return self.agree(tolerance, timeout)
        except AgreementError as error:
            if must_agree:
                raise
            self._reporter.warn(str(error).removeprefix(f"rank {self._rank}: "))
            return error.disagreement

    def agree(self, tolerance: float, timeout: float | None, on_agreed: Callable[[], None] = lambda: None) -> float:
        """Mix until all agree; return the disagreement reached."""
        attachment = self._attachment
        self._met = True
        self._between_rounds()
        self._reporter.report(state="mixing")
        attachment.bindings.check()
        attachment.bindings.check_parameters()
        try:
            reached = self._agreed(Terms(tolerance, timeout, self._between_rounds, on_agreed))
        except AgreementError as error:
            self._mixed(error.disagreement)
            if isinstance(error, DivergenceError) and (named := self._divergence()) is not None:
                raise named from None
            raise
        self._mixed(reached)
        return reached

    def _agreed(self, terms: Terms) -> float:
        """Mix until all agree. If one row of the crew does not come to an agreement, none has."""
        attachment, failure = self._attachment, None
        try:
            reached = attachment.steps.consensus(terms)
        except AgreementError as error:
            reached, failure = error.disagreement, error
        attachment.replica.unite()  # agreed or not, or the rows would go on with different copies
        said = self._crew.gather([reached, "" if failure is None else str(failure)])
        if failure is not None:
            raise failure
        for row, (disagreement, text) in enumerate(said):
            if text:
                raise AgreementError(
                    f"rank {self._rank}: row {row} of its crew has not agreed: {text}", max(disagreement, reached)
                )
        worst: float = max(disagreement for disagreement, _ in said)
        return worst

    def _mixed(self, reached: float) -> None:
        self._reporter.note(event="consensus", disagreement=reached)
        self._reporter.report(state="training", disagreement=reached)
        self._meter.restart()

    def _between_rounds(self) -> None:
        """Stop here if that was asked for, and let the others know that this peer is there."""
        if self._stop.asked:
            self.settle()
        self._reporter.report_if_due(state="mixing")

    def _divergence(self) -> DivergenceError | None:
        """Return an error if the model holds NaN or infinity."""
        names = self._attachment.not_finite()
        if not names:
            return None
        self._told = True
        return divergence(self._rank, names, self._step(), self._diverged_at)

    # The end

    def last_look(self) -> DivergenceError | None:
        """Say what is wrong with the model at the end of training, if anything is; return an error if it is useless."""
        told = self._told
        diverged = self._divergence()
        if diverged is not None:
            return None if told else diverged
        watch = self._attachment.watch
        assert watch is not None, "training began"
        if self._began and self._step() == self._began and self._loops.begun:
            self._reporter.warn(over_before(self._began))
        if not watch.last_look() and not self._step():
            if self._loops.samples:
                self._reporter.warn(no_step(self._loops.samples))
            elif self._attachment.mixes and not self._met:
                self._reporter.warn(NOTHING_DONE)
            elif self._attachment.mixes and not self._loops.begun:
                rows = self._attachment.session.rows.all().values()
                if most := max((row["step"] or 0 for row in rows), default=0):
                    self._reporter.warn(idle(most))
        if self._attachment.mixes and self._step() > self._agreed_at:
            self._reporter.warn(no_consensus(self._agreed_at))
        return None

    def close(self) -> None:
        """Look at no more data."""
        self._data.close()
