"""The peer that a user holds: it owns a replica and gossips whenever its optimizer steps."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

import torch

from gossip.errors import GossipError
from gossip.net.transport import Transport
from gossip.presets import Preset
from peers.attachment import Attachment
from peers.checkpoints.saving import Stateful
from peers.data.data_news import DataNews, Sampled
from peers.data.data_watch import DataWatch
from peers.data.dataset_checks import counted
from peers.data.fingerprints import sketch_of
from peers.data.loops import DataLoops
from peers.data.sampler import PeerSampler
from peers.device import device_of
from peers.endings import divergence, ending_of, is_workers_death, no_consensus
from peers.evaluation import Evaluation, evaluate_both
from peers.reporting.logged import why_not_logged
from peers.reporting.metrics import Figures, Metrics
from peers.reporting.records import Records
from peers.reporting.reporter import Reporter
from peers.reporting.step_meter import StepMeter
from peers.session.agreement_errors import AgreementError, DivergenceError
from peers.session.cards import Card, Channel
from peers.session.consensus import Terms
from peers.session.injection import Boundary
from peers.session.stopping import StopRequest, stop_notice
from peers.setup import Setup

__all__ = ["Evaluation", "Peer", "PeerError"]

#: Seconds for which a peer that ends waits until its parcels are answered.
_FLUSH = 2.0


class PeerError(GossipError):
    """A peer was used in a way that cannot work."""


class Peer:
    """One member of a swarm. Made by `peers.join`; use it in a ``with`` statement."""

    def __init__(
        self,
        setup: Setup,
        preset: Preset,
        transport: Transport,
        cards: Mapping[int, Card],
        *,
        boundary: Boundary,
        records: Records,
        channel: Channel | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """See `peers.join`."""
        self._setup, self._preset = setup, preset
        self._transport, self._cards = transport, cards
        self._records = records
        self._boundary = boundary
        self._metrics = metrics
        self._launched = channel is not None
        self._stop = StopRequest(setup.stop_within)
        #: Where the model belongs: move it there before `attach`.
        self.device = device_of(setup)
        #: Steps of the optimizer so far, those before a checkpoint included.
        self.step = 0
        self._attachment: Attachment | None = None
        #: The step at which the peers last tried to agree, and the one after which NaN or infinity was noticed.
        self._agreed_at = 0
        self._diverged_at: int | None = None
        #: Whether the script has been told that training diverged.
        self._told_divergence = False
        self._reporter = Reporter(setup, records, channel, self._figures)
        again = setup.resume or setup.incarnation > 0
        self._data_news = DataNews(setup.rank, self._reporter.warn, again=again)
        self._data_watch: DataWatch | None = None
        self._loops = DataLoops(setup, self.device, lambda: self.view, self._data_news, self._reporter.warn)
        self._meter = StepMeter()
        self._closed = False
        self._process = os.getpid()
        if metrics is not None:
            metrics.show(self._figures)

    def _figures(self) -> Figures:
        session = None if self._attachment is None else self._attachment.session
        return Figures(self.step, self.samples, self._meter.waited, session)

    def __enter__(self) -> Peer:
        if self._closed:
            raise PeerError(f"rank {self.rank} has ended: make another peer with peers.join()")
        if unheard := self._stop.listen():
            self._reporter.inform(unheard)
        self._reporter.report(state="preparing")  # from here on the launcher may ask it to stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = isinstance(error, KeyboardInterrupt) or (self._stop.asked and is_workers_death(error))
        try:
            self._end("interrupted" if interrupted or self._stop.raised else ending_of(error))
        except KeyboardInterrupt:  # as long as others still needed this peer
            interrupted = True
            if not self._stop.asked:
                raise
        except Exception as failure:
            if error is None:
                raise
            self._reporter.complain(failure)  # and the script's own error goes on
        if interrupted and self._stop.asked:
            # No traceback, for nothing is wrong; and the script does not go on behind the block, as if it had finished.
            raise SystemExit(self._stop.exit_code) from None

    # Who this is

    @property
    def rank(self) -> int:
        """The name of this peer: a number from 0 on."""
        return self._setup.rank

    @property
    def world_size(self) -> int:
        """How many peers the swarm started with."""
        return self._setup.world_size

    @property
    def view(self) -> tuple[int, ...]:
        """The ranks that this peer believes to be there, itself included."""
        if self._attachment is None:
            return tuple(sorted({*self._cards, self.rank}))
        return tuple(self._attachment.session.status().members)

    @property
    def samples(self) -> int:
        """Samples that this peer has trained on, as far as they came from `batches`."""
        return self._loops.samples

    @property
    def weight(self) -> float:
        """The mean of this peer's push-sum weights over its shards: 1 on average over all peers."""
        # After the end: what the peer was left with.
        return (self._attachment or self._attached()).session.weight

    # The model

    def attach(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, also: Mapping[str, Stateful] | None = None
    ) -> None:
        """Make the model this peer's replica: from here on ``optimizer.step()`` also gossips.

        Returns when all peers are there and start from the same weights: a checkpoint's if there is one to resume
        from, else those of the lowest rank.

        Args:
            model: any module, on one device. Its parameters stay the same objects, their memory moves.
            optimizer: any optimizer over its parameters. If it wraps another one, as accelerate's do, that one's steps
                count.
            also: further objects that belong into checkpoints, by name, such as learning rate schedulers.

        Raises:
            SettingsError: If the model or the optimizer cannot be attached, before any other peer is waited for.
            StateError: If a checkpoint cannot hold one of the further objects.
        """
        if self._attachment is not None:
            raise PeerError(f"rank {self.rank} has a model attached already: a peer has one replica")
        if self._closed:
            raise PeerError(f"rank {self.rank} has ended: attach the model inside of the peer's with statement")
        setup, preset, transport, cards = self._setup, self._preset, self._transport, self._cards
        with self._stop.put_off():  # a gossip thread that nobody knows of could not be ended
            self._attachment = Attachment(
                setup, preset, transport, cards, model, optimizer, also or {}, self._reporter, self._set_step
            )
        self._attachment.start(self._after_step)
        self._look_at_data(model)
        self._agreed_at = self.step
        self._meter.restart()
        self._stop.patient = True
        atexit.register(self._forgotten)
        self._reporter.report(state="training")
        if not self._launched and self.world_size > 1 and self.rank == min(self.view):
            self._reporter.announce("formed", self._who_trains())

    def _who_trains(self) -> str:
        """Say that a swarm has formed: where no launcher shows it, nothing else would."""
        setup = self._setup
        sentence = f"{len(self.view)} peers train together: {setup.algorithm} on {setup.topology}"
        watched = setup.keys is None and self._transport.endpoint.is_loopback
        return f"{sentence}; to watch them: gossip watch {self._transport.endpoint}" if watched else sentence

    def _look_at_data(self, model: torch.nn.Module) -> None:
        """Compare this peer's data with that of the others, if there are any."""
        self._attached().session.bulletin.add("data", self._data_news)
        if len(self.view) > 1:
            self._data_watch = DataWatch(model, self._data_news)

    def _set_step(self, step: int) -> None:
        self.step = step

    def _attached(self) -> Attachment:
        if self._attachment is None:
            raise PeerError(f"rank {self.rank} has no model yet: call peer.attach(model, optimizer) first")
        if self._closed:
            raise PeerError(f"rank {self.rank} has ended: use the peer inside of its with statement")
        return self._attachment

    def _after_step(self) -> None:
        attachment = self._attached()
        driver = attachment.session.driver
        self._reporter.step_ends()
        self.step += 1
        if self._boundary:
            self._boundary.passed(self.step, self._meter.seconds)
        waited = attachment.steps.exchange()
        if self._diverged_at is None and attachment.session.chronicle.counts["NotFinite"]:
            self._diverged_at = self.step
        took = self._meter.finish(waited, driver.bytes_sent, driver.bytes_received, self.samples)
        self._reporter.step_finished(weight=self.weight, **took)
        attachment.saving.step_is_over(self.step)
        if self._data_watch is not None and not self._data_watch.step_over():
            self._data_watch = None
        if not self._loops.any_running:
            self._settle_later()

    def _settle_later(self) -> None:
        """Save and stop if that is due, once the script is through with the step that the optimizer has just made."""
        attachment = self._attached()
        saving, asked = attachment.saving, self._stop.asked
        if asked:
            saving.last_is_due(self.step)
        if saving.begin_if_due(attachment.session.status(), self._loops.begun) or asked:
            attachment.next_pass.expect(self._settle_now)

    def _settle_now(self) -> None:
        self._attached().saving.finish(last=self._stop.asked)
        self._stop.now()

    def _settle(self, stepped: bool = True) -> None:
        """Save and stop if that is due: between two steps, where neither tears anything apart.

        Args:
            stepped: whether a step was made since the last time. If none was, gradients may be half accumulated, and
                stopping has to wait for it.
        """
        attachment = self._attached()
        saving, status = attachment.saving, attachment.session.status()
        if self._stop.asked and stepped:
            saving.save_last(self.step, status, self._loops.begun)
            self._stop.now()
        saving.save_if_due(status, self._loops.begun)

    # Data

    def batches(
        self, dataset: Any, batch_size: int, epochs: int, *, drop_last: bool = False, **loader: Any
    ) -> Iterator[Any]:
        """Yield batches, on the peer's device, until the swarm as a whole has gone through the epochs.

        One such loop runs at a time: a loop that begins inside of another one ends that.

        Args:
            dataset: anything with a length and an index, the same for all peers.
            batch_size: samples in a batch.
            epochs: how often the swarm goes through the data set.
            drop_last: leave out the last batch of an epoch when it is not full.
            loader: options of `torch.utils.data.DataLoader`: ``num_workers``, ``pin_memory``, ``collate_fn`` and so on.
        """
        self._attached()
        counted(dataset, batch_size, epochs, drop_last, loader)  # an error shows here, not where the loop begins
        return self._batches(dataset, batch_size, epochs, {"drop_last": drop_last, **loader})

    def _batches(self, dataset: Any, batch_size: int, epochs: int, options: dict[str, Any]) -> Iterator[Any]:
        attachment = self._attached()
        attachment.next_pass.now()
        bulletin, saving = attachment.session.bulletin, attachment.saving
        loop = self._loops.begin(dataset, batch_size, epochs, bulletin, saving, **options)
        self._meter.skip_samples(self.samples)  # those of a checkpoint are in the lines of a former life
        if loop is None:
            return
        try:
            for batch in loop:
                before = self.step
                self._reporter.step_begins()
                yield batch
                # Between two batches the loop's body is through, schedulers and all: the moment for a checkpoint.
                self._settle(self.step != before)
        finally:
            loop.close()
            if not (self._closed or self._loops.any_running):
                attachment.steps.pause()

    def sampler(self, dataset: Any, *, shuffle: bool = True) -> PeerSampler:
        """Return a sampler of this peer's part of the data, for a ``DataLoader`` that the script makes itself."""
        sampler = PeerSampler(dataset, self.rank, self.world_size, self._setup.seed, shuffle=shuffle)
        whole = isinstance(dataset, int)
        self._data_news.sample(Sampled(dataset, None) if whole else Sampled(len(dataset), sketch_of(dataset)))
        return sampler

    # Agreement

    def consensus(self, tolerance: float = 1e-3, timeout: float | None = None, *, must_agree: bool = True) -> float:
        """Mix without training until all peers agree, and return the disagreement reached.

        The disagreement is how far a neighbour's values lie from this peer's, relative to their length, at worst over
        shards and recent rounds. All peers are to call it. Each waits for those who still train, for as long as they
        make steps. Peers that have left or died are not waited for.

        Args:
            tolerance: the disagreement to reach.
            timeout: seconds after which to give up, instead of when those who are missing make no steps any more.
            must_agree: raise an error if there is no agreement; else a warning says so, and the disagreement is
                returned: infinity if it was not measured.

        Raises:
            AgreementError: not all peers came, or they did not come near enough to each other.
            DivergenceError: this peer's model holds NaN or infinity. The others agree without it.
        """
        self._attached().next_pass.now()
        self._agreed_at = self.step
        try:
            return self._agree(tolerance, timeout)
        except AgreementError as error:
            if must_agree:
                raise
            self._reporter.warn(str(error).removeprefix(f"rank {self.rank}: "))
            return error.disagreement

    def _agree(self, tolerance: float, timeout: float | None, on_agreed: Callable[[], None] = lambda: None) -> float:
        attachment = self._attached()
        self._between_rounds()
        self._reporter.report(state="mixing")
        attachment.bindings.check()
        reached = math.inf
        try:
            reached = attachment.steps.consensus(Terms(tolerance, timeout, self._between_rounds, on_agreed))
        except DivergenceError:
            diverged = self._divergence()
            assert diverged is not None
            raise diverged from None
        except AgreementError as error:
            reached = error.disagreement
            raise
        finally:
            self._reporter.note(event="consensus", disagreement=reached)
            self._reporter.report(state="training", disagreement=reached)
            self._meter.restart()
        return reached

    def _between_rounds(self) -> None:
        """Stop here if that was asked for, and let the others know that this peer is there."""
        if self._stop.asked:
            self._settle()
        self._reporter.report_if_due(state="mixing")

    def _divergence(self) -> DivergenceError | None:
        """Return an error if the model holds NaN or infinity."""
        names = [] if self._attachment is None else self._attachment.not_finite()
        if not names:
            return None
        self._told_divergence = True
        return divergence(self.rank, names, self.step, self._diverged_at)

    def evaluate(
        self,
        function: Callable[[], Any],
        tolerance: float = 1e-3,
        timeout: float | None = None,
    ) -> Evaluation:
        """Return the function's results for this peer's own model and for the average of all; training goes on after.

        All peers are to call it at the same point: the average is found by mixing, as `consensus` does it. Afterwards
        each has its own values back.
        """
        attachment = self._attached()
        if self._stop.asked:
            attachment.next_pass.now()
        attachment.bindings.check()
        return evaluate_both(
            function,
            attachment.replica,
            lambda on_agreed: self._agree(tolerance, timeout, on_agreed),
            keep_average=attachment.steps.own_is_average,
        )

    # Reports

    def log(self, /, **values: Any) -> None:
        """Note values, such as the loss, for this step's line in the metrics: numbers, tensors of one number, text.

        Before ``optimizer.step()`` or after it: the line stays open until the next step begins. What is not finite,
        such as the loss of training that diverged, becomes null in the line.
        """
        if (problem := why_not_logged(values)) is not None:
            raise PeerError(f"peer.log cannot write these values into the line of the step: {problem}")
        self._reporter.log(values)

    # The end

    def close(self) -> None:
        """End: say goodbye to the others, and write the summary.

        Raises:
            DivergenceError: the model holds NaN or infinity, and the script has not been told that yet.
        """
        self._end("finished")

    def _forgotten(self) -> None:
        """Say goodbye as the process exits, for a script that has not done it."""
        if os.getpid() == self._process:
            self._reporter.warn("the script ended without peer.close(): use the peer in a with statement")
            self._end("finished")

    def _end(self, how: str) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._forgotten)
        pending: BaseException | None = None
        if how == "finished" and self._attachment is not None:
            try:
                pending = self._last_look(self._attachment)
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
        if pending is not None:
            raise pending

    def _leave(self, how: str) -> None:
        weight = 0.0
        if self._attachment is None:
            self._transport.close()
        else:
            weight = self.weight
            if self._data_watch is not None:
                self._data_watch.close()
            # Of the time that is left, the other half is for the checkpoint and the summary.
            self._attachment.close(_FLUSH, at_most=self._stop.seconds_left / 2)
        if self._metrics is not None:
            self._metrics.close()
        self._boundary.close(finished=how == "finished")
        if self._stop.asked and how == "interrupted":
            newest = None if self._attachment is None else self._attachment.saving.newest()
            self._reporter.announce("stop", stop_notice(self.step, newest))
        self._reporter.end(how, self._meter.age, weight)

    def _last_look(self, attachment: Attachment) -> DivergenceError | None:
        """Say what is wrong with the model at the end of training, if anything is; return an error if it is useless."""
        told = self._told_divergence
        diverged = self._divergence()
        if diverged is not None:
            return None if told else diverged
        if attachment.mixes and self.step > self._agreed_at:
            self._reporter.warn(no_consensus(self._agreed_at))
        return None
