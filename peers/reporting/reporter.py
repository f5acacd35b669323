"""What a peer reports while it runs: to the user's log, to the records, to the launcher and to the other peers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from gossip.endpoint import Endpoint
from peers.reporting.metrics import Figures
from peers.reporting.numbers import as_number
from peers.reporting.records import Records
from peers.reporting.step_line import StepLine
from peers.reporting.summary import gossip_summary
from peers.session.cards import Channel
from peers.session.session import Session
from peers.setup import Setup
from peers.table.pulse import Pulse

__all__ = ["Reporter"]

_log = logging.getLogger("gossip")
#: Seconds between two reports to the launcher.
_REPORT_EVERY = 0.25
#: Seconds for which a peer that ends waits for a launcher that does not listen, such as one that is suspended.
_LAST_WORD = 2.0


class Reporter:
    """The reports of one peer. Warnings and notes may come from any thread, all else from the trainer's."""

    def __init__(self, setup: Setup, records: Records, channel: Channel | None, figures: Callable[[], Figures]) -> None:
        """Prepare.

        Args:
            setup: who this peer is.
            records: the files of the run directory.
            channel: to the launcher, if there is one.
            figures: returns where the peer is.
        """
        self._setup = setup
        self._rank, self._compress = setup.rank, setup.compress
        #: Where the peer's files go; None: nowhere.
        self.directory = records.directory
        self._records = records
        self._channel = channel
        self._figures = figures
        self._pulse: Pulse | None = None
        self._line = StepLine(records)
        self._reported = 0.0
        #: The figures of the last step, and what is called with them after each.
        self._last: dict[str, Any] = {}
        self.listeners: list[Callable[[dict[str, Any]], object]] = []

    def warn(self, sentence: str) -> None:
        """Say something that the user should read."""
        self.announce("warning", sentence)

    def inform(self, sentence: str) -> None:
        """Say something that a user may want to read."""
        _log.info("rank %d: %s", self._rank, sentence)
        self.note(event="info", text=sentence)

    def complain(self, failure: Exception) -> None:
        """Say what failed while the peer ended, in a case where another error ends the script."""
        _log.error("rank %d: the end failed too: %r", self._rank, failure)

    def announce(self, event: str, sentence: str) -> None:
        """Say something that the user should read, as an event of this kind."""
        _log.warning("rank %d: %s", self._rank, sentence)
        self.note(event=event, text=sentence)

    def formed(self, endpoint: Endpoint, peers: int) -> None:
        """Say that a swarm has formed: where no launcher shows it, nothing else would."""
        setup = self._setup
        who = (
            f"{peers} peers train together"
            if peers > 1
            else "this peer trains alone, because the others did not come or have left"
        )
        sentence = f"{who}: {setup.algorithm} on {setup.topology}"
        if setup.keys is None and endpoint.is_loopback:
            sentence += f"; to watch them: gossip watch {endpoint}"
        self.announce("formed", sentence)

    def warn_unattached(self) -> None:
        """Say that this peer was of no use, if there are others that it should have trained with."""
        if self._setup.world_size > 1:
            self.warn(
                "the script ended without peer.attach(model, optimizer): whatever it trained, it trained alone. Attach "
                "the model before training"
            )

    @property
    def rank(self) -> int:
        """The rank of the peer."""
        return self._rank

    @property
    def step(self) -> int:
        """Steps of the optimizer so far."""
        return self._figures().step

    def note(self, **event: Any) -> None:
        """Write an event into the records."""
        self._records.event(step=self._figures().step, **event)

    def failed(self) -> Mapping[int, str]:
        """Return how ranks ended that had not attached a model, as far as the launcher has said so."""
        return {} if self._channel is None else self._channel.failed()

    def log(self, values: Mapping[str, Any]) -> None:
        """Keep values of the user's for the line of the step that they belong to."""
        self._line.log(values)

    def step_begins(self) -> None:
        """Let the next step begin: what is logged from now on belongs to that one."""
        self._line.begin()

    def step_ends(self) -> None:
        """Let the line of the step before be written: whatever happens to this one, the file has that line."""
        self._line.write()

    def step_finished(self, **figures: float) -> None:
        """Open the line of a step, and report it if the last report was some time ago."""
        self._last = {"step": self._figures().step, **figures}
        self._line.finish(self._last)
        self.report_if_due(state="training")

    def last_step(self) -> dict[str, Any]:
        """Return the figures of the last step, and what is known of the swarm now; empty before the first step."""
        session = self._figures().session
        if session is None or not self._last:
            return {}
        return {
            **self._last,
            "loss": as_number(self._line.loss),
            "peers": len(session.status().members),
            "disagreement": session.rows.own().get("disagreement"),
            "total_samples": self._figures().samples,
        }

    def tell_listeners(self) -> None:
        """Call those who want to hear of each step."""
        for listener in self.listeners:
            listener(self.last_step())

    def report_if_due(self, **values: Any) -> None:
        """Report, if the last report was some time ago."""
        if time.monotonic() - self._reported >= _REPORT_EVERY:
            self.report(**values)

    def report(self, **values: Any) -> None:
        """Report the status to the other peers and to the launcher, which may be gone, in the same row."""
        row = self._report_to_peers(values)
        self._reported = time.monotonic()
        if self._channel is not None:
            self._channel.send(status={"rank": self._rank, **row})

    def _report_to_peers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Let this peer's row of the table go round, and return it."""
        step, samples, waited, session = self._figures()
        if session is None:
            return {"step": step, "samples": samples, "state": values.get("state")}
        if self._pulse is None:
            self._pulse = Pulse(session.rows, time.monotonic())
        loss = as_number(self._line.loss)
        row = self._pulse.beat(
            time.monotonic(),
            session.status().me.incarnation,
            totals={"samples": samples, "bytes": session.driver.bytes_sent, "waited": waited},
            step=step,
            loss=None if loss is None or not math.isfinite(loss) else loss,
            weight=session.weight,
            neighbours=len(session.status().members) - 1,
            state=values.get("state"),
            sends=self._sends(session),
            disagreement=values.get("disagreement"),
        )
        session.bulletin.publish()
        # The others keep the last loss that was finite; the launcher shows NaN as what it is.
        return row if loss is None else {**row, "loss": loss}

    def _sends(self, session: Session) -> str | None:
        """Return how parcels go out, if a codec was asked for: also for `auto`, if it chose to do nothing."""
        return session.sends if self._compress != "none" else None

    def end(self, how: str, seconds: float, weight: float) -> None:
        """Write the summary, and tell the launcher how it ended.

        Args:
            how: finished, interrupted, or what failed.
            seconds: since the peer was made.
            weight: what the peer held before it left.
        """
        step, samples, waited, session = self._figures()
        summary: dict[str, Any] = {
            "rank": self._rank,
            "steps": step,
            "samples": samples,
            "seconds": seconds,
            "wait_seconds": waited,
            "exit": how,
        }
        if session is not None:
            driver, rejected = session.driver, session.chronicle.rejected
            summary |= gossip_summary(session.status(), rejected, weight, driver.bytes_sent, driver.bytes_received)
        self._line.write()
        self._records.summary(**summary)
        self._records.close()
        if self._channel is not None:
            # A character may take 12 bytes. Without this line an exit counts as a failure, so it waits for its room.
            self._channel.send(within=_LAST_WORD, ended=how[:300])
            self._channel.close()
