"""The end of a peer: it stays while others need it, says goodbye, and writes its summary; whatever ended the script."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from gossip.net.transport import Transport
from peers.attachment import Attachment
from peers.crew.crew import Crew
from peers.endings import LEAVING, LOST_CREW, ending_of, is_workers_death
from peers.own_process import OwnProcess
from peers.reporting.metrics import Metrics
from peers.reporting.reporter import Reporter
from peers.reporting.step_meter import StepMeter
from peers.session.first import STOPPING
from peers.session.injection import Boundary
from peers.session.stopping import StopRequest, stop_notice
from peers.training import Training

__all__ = ["Closing"]

#: Seconds for which a peer that ends waits until its parcels are answered.
_FLUSH = 2.0


class Closing:
    """Ends one peer, once. For the trainer's thread."""

    def __init__(
        self,
        crew: Crew,
        transport: Transport,
        stop: StopRequest,
        boundary: Boundary,
        reporter: Reporter,
        meter: StepMeter,
        metrics: Metrics | None,
    ) -> None:
        """Prepare.

        Args:
            crew: the processes that hold the replica; it ends with the peer.
            transport: of the peer; the attachment's own once there is one.
            stop: the request to stop.
            boundary: injects faults.
            reporter: of the peer.
            meter: knows the age of the peer.
            metrics: is served until the end.
        """
        self._crew, self._transport = crew, transport
        self._stop, self._boundary, self._reporter, self._meter = stop, boundary, reporter, meter
        self._metrics = metrics
        self._attachment: Attachment | None = None
        self._training: Training | None = None
        self._process = OwnProcess(reporter.rank)
        #: Whether the peer has ended.
        self.over = False
        #: What is called when it has, whatever ended it.
        self.afterwards: list[Callable[[], None]] = []

    def attached(self, attachment: Attachment) -> None:
        """Take in that there is a model, and a gossip thread that has to be ended."""
        self._attachment = attachment

    def trains(self, training: Training) -> None:
        """Take in that training has begun: the others count on a goodbye."""
        self._training = training
        atexit.register(self._forgotten)

    def _forgotten(self) -> None:
        """Say goodbye as the process exits, for a script that has not done it."""
        if self._process.is_here:
            self._reporter.warn("the script ended without peer.close(): use the peer in a with statement")
            self.end("finished")

    def end_block(self, error: BaseException | None) -> None:
        """End the peer at the end of its ``with`` statement, which may have ended by an error."""
        interrupted = isinstance(error, KeyboardInterrupt) or (self._stop.asked and is_workers_death(error))
        # A framework may have made an exit of its own of what the peer raised.
        interrupted = interrupted or (self._stop.raised and isinstance(error, SystemExit))
        lost = None if interrupted or self._stop.raised else self._crew.loss(error)
        if lost is not None:
            error = lost
            self._reporter.report(state=LEAVING)  # so that the launcher lets it hand over what it holds
        try:
            self.end("interrupted" if interrupted or self._stop.raised else ending_of(error))
        except KeyboardInterrupt:  # as long as others still needed this peer
            interrupted = True
            if not self._stop.asked:
                raise
        except Exception as failure:
            if error is None:
                raise
            self._reporter.complain(failure)  # and the script's own error goes on
        if lost is not None:
            # One sentence: where the script was when another process died tells nothing.
            self._reporter.announce("crew", str(lost))
            raise SystemExit(LOST_CREW) from None
        if interrupted and self._stop.asked:
            # No traceback, for nothing is wrong; and the script does not go on behind the block, as if it had finished.
            raise SystemExit(self._stop.exit_code) from None

    def end(self, how: str) -> None:
        """End the peer.

        Args:
            how: "finished", "interrupted", or what failed.

        Raises:
            DivergenceError: the model holds NaN or infinity, and the script has not been told that yet.
        """
        if self.over or not self._process.is_here:  # a fork that leaves the with statement has nothing to end
            return
        self.over = True
        atexit.unregister(self._forgotten)
        pending: BaseException | None = None
        if how == "finished" and self._attachment is None:
            self._reporter.warn_unattached()
        if how == "finished" and self._attachment is not None:
            try:
                pending = None if self._training is None else self._training.last_look()
                self._stop.patient = False  # others may need this peer for long, and no boundary is ahead
                self._attachment.stay()
                self._stop.ending()
                how = ending_of(pending)
            except KeyboardInterrupt as request:
                pending, how = request, "interrupted"
        self._stop.ending()
        try:
            self._leave(how)
        finally:
            self._stop.close()
            for act in self.afterwards:
                act()
        if pending is not None:
            raise pending

    def _leave(self, how: str) -> None:
        weight, attachment = 0.0, self._attachment
        if attachment is None:
            self._transport.close()
        else:
            if how != "finished":
                self._reporter.report(state=STOPPING)  # if this peer was the first, another one is that now
                attachment.session.last(attachment.session.spread)
            weight = attachment.session.weight
            if self._training is not None:
                self._training.close()
            # Of the time that is left, the other half is for the checkpoint and the summary.
            attachment.close(_FLUSH, at_most=self._stop.seconds_left / 2)
        self._crew.close()
        if self._metrics is not None:
            self._metrics.close()
        self._boundary.close(finished=how == "finished")
        if self._stop.asked and how == "interrupted":
            newest = None if attachment is None else attachment.saving.newest()
            self._reporter.announce("stop", stop_notice(self._reporter.step, newest))
        self._reporter.end(how, self._meter.age, weight)
