"""The peer that a user holds: it owns a replica and gossips whenever its optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch

from gossip import policies
from gossip.errors import GossipError
from gossip.net.transport import Transport
from gossip.presets import Preset
from peers.attachment import Attachment
from peers.checkpoints.saving import Stateful
from peers.closing import Closing
from peers.crew.crew import Crew
from peers.data.data_watch import DataComparison
from peers.data.dataset_checks import size_of_batches
from peers.data.loop_makers import LoopMaker, for_batches, for_shards
from peers.data.loops import DataLoops
from peers.data.once_through import OnceThrough
from peers.data.sampler import PeerSampler
from peers.data.swarm_progress import SwarmProgress
from peers.device import device_of
from peers.evaluation import Evaluation
from peers.own_process import OwnProcess
from peers.reporting.logged import why_not_logged
from peers.reporting.metrics import Figures, Metrics
from peers.reporting.records import Records
from peers.reporting.reporter import Reporter
from peers.reporting.step_meter import StepMeter
from peers.session.cards import Card, Channel
from peers.session.first import is_first
from peers.session.injection import Boundary
from peers.session.stopping import StopRequest
from peers.setup import Setup
from peers.training import Training

__all__ = ["Evaluation", "Peer", "PeerError"]


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
        crew: Crew | None = None,
    ) -> None:
        """See `peers.join`."""
        self._setup, self._preset = setup, preset
        #: The settings of the swarm of this process's row.
        self._swarm = swarm = setup.of_row()
        self._transport, self._cards = transport, cards
        self._records = records
        self._boundary, self._metrics = boundary, metrics
        self._launched = channel is not None
        self._process = OwnProcess(setup.rank)
        self._stop = StopRequest(setup.stop_within)
        #: Where the model belongs: move it there before `attach`.
        self.device = device_of(setup)
        #: The processes that hold this replica: without a grid, this one alone.
        self.crew = crew = crew or Crew(setup.shape, setup.rank, self.device, setup.inner_timeout)
        #: Steps of the optimizer so far, those before a checkpoint included.
        self.step = 0
        self._attachment: Attachment | None = None
        self._training: Training | None = None
        self._reporter = Reporter(setup, records, channel, self._figures)
        again = setup.resume or setup.incarnation > 0
        self._data = DataComparison(swarm.rank, self._reporter.warn, again=again)
        self._loops = DataLoops(swarm, crew, self.device, lambda: self.view, self._data.news, self._reporter.warn)
        self._meter = StepMeter()
        self._closing = Closing(crew, transport, self._stop, boundary, self._reporter, self._meter, metrics)
        if metrics is not None:
            metrics.show(self._figures)

    def _figures(self) -> Figures:
        session = None if self._attachment is None else self._attachment.session
        return Figures(self.step, self.samples, self._meter.waited, session)

    def __enter__(self) -> Peer:
        if self._closing.over:
            raise PeerError(f"rank {self.rank} has ended: make another peer with peers.join()")
        if unheard := self._stop.listen():
            self._reporter.inform(unheard)
        self._reporter.report(state="preparing")  # from here on the launcher may ask it to stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.end_block(error)

    # Who this is

    @property
    def rank(self) -> int:
        """The number of this process, from 0 on: with a grid, that of its replica times the rows, plus its row."""
        return self._setup.rank

    @property
    def replica(self) -> int:
        """The number of the replica that this process holds, or holds a part of: without a grid, the rank."""
        return self.crew.replica

    @property
    def row(self) -> int:
        """The number of this process in its crew: 0 without a grid."""
        return self.crew.row

    @property
    def world_size(self) -> int:
        """How many processes the run started with."""
        return self._setup.world_size

    @property
    def view(self) -> tuple[int, ...]:
        """The replicas that this peer believes to be there, its own included; without a grid, these are ranks."""
        if self._attachment is None:
            return tuple(sorted({*self._cards, self._swarm.rank}))
        return tuple(self._attachment.session.status().members)

    @property
    def is_first(self) -> bool:
        """Whether this peer is the one that writes what is to be written once: logs, checkpoints, the final model.

        The first is the lowest rank that has not died. A rank that left because its training was over stays the first,
        and so nobody writes a second time what it has written. A rank that left early, because it was stopped or its
        script failed, hands over as one that died.

        Ask each time: when the first dies, the next rank becomes the first once the death is noticed, and when it is
        restarted, it is the first again. Two peers may both be the first while a living one is declared dead, as when
        the network is cut. With a grid, row 0 of the first replica is the first.
        """
        if self.row:
            return False
        if self._attachment is None:
            return self.replica == min(self.view)
        session = self._attachment.session
        return is_first(self.replica, dict(session.chronicle.states), session.rows.all())

    @property
    def progress(self) -> SwarmProgress:
        """How far the swarm as a whole is in the last loop over `batches`, as far as this peer has heard.

        A loop over a loader with `sampler` is each peer's own: nothing is known of the others' there.
        """
        return self._loops.progress(in_step=policies.parse(self._setup.algorithm).averages_gradients)

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
        if self._closing.over:
            raise PeerError(f"rank {self.rank} has ended: attach the model inside of the peer's with statement")
        swarm, preset, transport, cards = self._swarm, self._preset, self._transport, self._cards
        with self._stop.put_off():  # a gossip thread that nobody knows of could not be ended
            self._attachment = attachment = Attachment(
                swarm, self.crew, preset, transport, cards, model, optimizer, also or {}, self._reporter, self._set_step
            )
            self._closing.attached(attachment)
        attachment.start(lambda: self._trained().after_step())
        self._data.begin(model, attachment.session.bulletin, alone=len(self.view) == 1)
        self._training = Training(
            self.rank,
            self.crew,
            attachment,
            self._stop,
            self._loops,
            self._data,
            self._boundary,
            self._reporter,
            self._meter,
            step=lambda: self.step,
            count_step=lambda: self._set_step(self.step + 1),
        )
        self._meter.restart()
        self._stop.patient = True
        self._closing.trains(self._training)
        self._reporter.report(state="training")
        if not self._launched and self._swarm.world_size > 1 and self.replica == min(self.view) and not self.row:
            self._reporter.formed(transport.endpoint, len(self.view))

    @property
    def is_open(self) -> bool:
        """Whether this peer has not ended yet."""
        return not self._closing.over

    def _set_step(self, step: int) -> None:
        self.step = step

    def _attached(self) -> Attachment:
        self._process.check()
        if self._attachment is None:
            raise PeerError(f"rank {self.rank} has no model yet: call peer.attach(model, optimizer) first")
        if self._closing.over:
            raise PeerError(f"rank {self.rank} has ended: use the peer inside of its with statement")
        return self._attachment

    def _trained(self) -> Training:
        self._attached()
        assert self._training is not None
        return self._training

    # Data

    def batches(
        self,
        dataset: Any,
        batch_size: int | None = None,
        epochs: int | None = None,
        *,
        samples: int | None = None,
        steps: int | None = None,
        sharded: bool = False,
        drop_last: bool = False,
        split: str = "none",
        **loader: Any,
    ) -> Iterator[Any]:
        """Yield batches, on the peer's device, until the swarm as a whole has gone through the data.

        One such loop runs at a time: a loop that begins inside of another one ends that. It goes through all epochs
        and can be gone through once: call this again for more.

        Args:
            dataset: anything with a length and an index, the same for all peers; or a stream: any iterable that is the
                same for all peers, such as an IterableDataset, or a function ``(part, parts)`` that opens a part of it.
            batch_size: samples in a batch; always needed.
            epochs: how often the swarm goes through a data set.
            samples: of a stream: how many samples the swarm goes through.
            steps: of a stream, in place of ``samples``: how many batches the swarm goes through.
            sharded: the stream yields other samples at each peer and in each worker by itself; otherwise each peer
                takes its own part of it.
            drop_last: leave out the last batch of an epoch when it is not full.
            split: what each row of a crew gets of a batch: "none", all of it; "batch", a part of its samples; "rows", a
                part of the rows of its images. Without a grid there is nothing to split.
            loader: options of `torch.utils.data.DataLoader`: ``num_workers``, ``pin_memory``, ``collate_fn`` and so on.
        """
        self._attached()
        maker = for_batches(
            *(dataset, size_of_batches(dataset, batch_size), epochs, samples, steps, self.crew),
            sharded=sharded,
            drop_last=drop_last,
            split=split,
            loader=loader,
        )
        return OnceThrough(self._loop(maker))

    def shards(self, shards: Sequence[Any], epochs: int) -> Iterator[Any]:
        """Yield data shards, such as the names of files, until the swarm has gone through all of them in each epoch.

        A shard is done when the loop asks for the next one. If a peer dies, its shard is given to another peer.

        Args:
            shards: the names of all shards, the same for all peers: several times as many as there are peers.
            epochs: how often the swarm goes through them.
        """
        self._attached()
        return OnceThrough(self._loop(for_shards(shards, epochs)))

    def _loop(self, maker: LoopMaker) -> Iterator[Any]:
        self._attached().next_pass.now()
        attachment = self._attached()
        loop = self._loops.begin(maker, attachment.session.bulletin, attachment.saving)
        self._meter.skip_samples(self.samples)  # those of a checkpoint are in the lines of a former life
        if loop is not None:
            for batch in self._trained().through(loop, lambda: self._closing.over):
                yield batch
                self._attached()  # the next batch is of no use to a peer that has ended

    def sampler(self, dataset: Any, *, shuffle: bool = True) -> PeerSampler:
        """Return a sampler of this peer's part of the data, for a ``DataLoader`` that the script makes itself."""
        sampler = PeerSampler(dataset, self._swarm.rank, self._swarm.world_size, self._setup.seed, shuffle=shuffle)
        self._data.sampled(dataset)
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
        return self._trained().consensus(tolerance, timeout, must_agree=must_agree)

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
        if not callable(function):
            raise PeerError(f"peer.evaluate needs a function without arguments, not {function!r:.80}")
        return self._trained().evaluate(function, tolerance, timeout)

    # Reports

    def log(self, /, **values: Any) -> None:
        """Note values, such as the loss, for this step's line in the metrics: numbers, tensors of one number, text.

        Before ``optimizer.step()`` or after it: the line stays open until the next step begins. What is not finite,
        such as the loss of training that diverged, becomes null in the line.
        """
        if self._closing.over:
            raise PeerError(f"rank {self.rank} has ended, and so have its records: log inside of its with statement")
        if (problem := why_not_logged(values)) is not None:
            raise PeerError(f"peer.log cannot write these values into the line of the step: {problem}")
        self._reporter.log(values)

    def metrics(self) -> dict[str, Any]:
        """Return the figures of the last step: those of its line in the metrics, and some of the swarm.

        These are step, seconds, wait_seconds, bytes_sent, bytes_received, samples and weight, of this step; the last
        loss that was logged, the peers, the last measured disagreement, and total_samples, since the start. What is not
        known is None. Before the first step there is nothing.
        """
        return self._reporter.last_step()

    def on_step(self, function: Callable[[dict[str, Any]], object]) -> None:
        """Call a function with `metrics` after each step from now on. An error in it ends ``optimizer.step()``."""
        if not callable(function):
            raise PeerError(f"peer.on_step needs a function that takes the figures of a step, not {function!r:.80}")
        self._reporter.listeners.append(function)

    # The end

    def ask_to_stop(self) -> bool:
        """Ask this peer to end at its next boundary, as SIGTERM does: with a checkpoint, if it saves any.

        Any thread may call it: Python lets only the main thread handle signals, and a peer may run in another one.

        Returns:
            Whether a boundary is ahead. Otherwise the peer does not train, and whoever runs it has to interrupt it.
        """
        self._stop.follow()
        return self._stop.patient

    def at_end(self, act: Callable[[], None]) -> None:
        """Call a function when this peer has ended, whatever ended it."""
        self._closing.afterwards.append(act)

    def close(self) -> None:
        """End: say goodbye to the others, and write the summary.

        Raises:
            DivergenceError: the model holds NaN or infinity, and the script has not been told that yet.
        """
        self._closing.end("finished")
