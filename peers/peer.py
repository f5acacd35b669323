"""What the user holds: a peer, which owns a replica and gossips whenever its optimizer steps."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean as mean
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from gossip import policies
from gossip.collective.server import CENTRE
from gossip.errors import GossipError, SettingsError
from gossip.net.transport import Transport
from gossip.presets import Preset
from peers.checkpoints.saving import Saving
from peers.data.batches import Batches
from peers.data.sampler import PeerSampler
from peers.methods.choosing import fit
from peers.model.gradients import Gradients
from peers.model.replica import Replica
from peers.model.trained import trains
from peers.model.whole_state import WholeState
from peers.reporting.metrics import Figures, Metrics
from peers.reporting.pulse import Pulse
from peers.reporting.records import Records
from peers.session.cards import Card, Channel
from peers.session.injection import Boundary
from peers.session.session import Engine
from peers.session.stopping import STOPPED, StopRequest
from peers.setup import Setup
from peers.steps.allreduce_steps import Averaging
from peers.steps.collective_steps import Collective
from peers.steps.gossip_steps import Stepping
from peers.steps.hooks import StepHooks
from peers.steps.server_steps import Serving

__all__ = ["Evaluation", "Peer", "PeerError", "device_of"]

_log = logging.getLogger("gossip")
_T = TypeVar("_T")
#: Finished loops over data that the others are still told of.
_LOOPS_TOLD = 4
#: Seconds between two reports to the launcher.
_REPORT_EVERY = 0.25
#: What a line of the metrics holds in any case.
_METRICS = frozenset(["bytes_received", "bytes_sent", "seconds", "step", "wait_seconds", "weight"])
#: Seconds that parcels have for being answered when a peer ends.
_FLUSH = 2.0


class PeerError(GossipError):
    """A peer was used in a way that cannot work."""


class Stateful(Protocol):
    """Anything that can be saved and restored as torch's schedulers and scalers can."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore it."""


class Evaluation(NamedTuple):
    """What a function of the model returned for this peer's own replica and for the average of all."""

    own: Any
    average: Any


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
        self._setup = setup
        self._preset = preset
        self._transport = transport
        self._cards = cards
        self._channel = channel
        self._records = records
        self._boundary = boundary
        self._stop = StopRequest(setup.stop_within)
        #: Where the model belongs: move it there before `attach`.
        self.device = device_of(setup)
        #: Steps of the optimizer so far, those before a checkpoint included.
        self.step = 0
        self._engine: Engine | None = None
        self._replica: Replica | None = None
        self._hooks: StepHooks | None = None
        self._stepping: Stepping | Collective | None = None
        self._saving: Saving | None = None
        self._pulse: Pulse | None = None
        self._loops: list[Batches] = []
        self._loop_count = 0
        self._logged: dict[str, Any] = {}
        self._reported = 0.0
        self._began = self._boundary_at = time.monotonic()
        self._waited = 0.0
        self._sent = self._received = self._sampled = 0
        self._final_weight = 0.0
        self._closed = False
        self._metrics = metrics
        if metrics is not None:
            metrics.show(lambda: Figures(self.step, self.samples, self._waited, self._engine))

    def __enter__(self) -> Peer:
        self._stop.listen()
        self._report(state="preparing")  # from here on the launcher may ask it to stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        how = "finished" if kind is None else f"failed: {kind.__name__}: {error}"
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._end("interrupted" if interrupted or self._stop.raised else how)
        if interrupted and self._stop.asked:
            # Not a traceback, for nothing is wrong. Nor on behind the block, as if the training had come to its end.
            raise SystemExit(STOPPED) from None

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
        if self._engine is None:
            return tuple(sorted({*self._cards, self.rank}))
        return tuple(self._engine.core.view.members)

    @property
    def samples(self) -> int:
        """Samples that this peer has trained on, as far as they came from `batches`."""
        return sum(loop.samples for loop in self._loops)

    @property
    def weight(self) -> float:
        """The mean of this peer's push-sum weights over its shards: 1 on average over all peers."""
        weights = (self._engine or self._attached()).core.mass.weights  # of one that has ended: what it was left with
        return sum(weights) / len(weights)

    # The model

    def attach(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        also: Mapping[str, Stateful] | None = None,
    ) -> None:
        """Make the model this peer's replica: from here on ``optimizer.step()`` also gossips.

        Returns when all peers are there and start from the same weights: a checkpoint's if there is one to resume
        from, else those of the lowest rank.

        Args:
            model: any module, on one device. Its parameters stay the same objects, their memory moves.
            optimizer: any optimizer over its parameters.
            also: what else belongs into checkpoints, by name, such as learning rate schedulers and gradient scalers.
        """
        if self._engine is not None:
            raise PeerError("a peer has one replica, and it is attached already")
        if self._closed:
            raise PeerError("this peer has ended: attach inside of its with statement")
        if not trains(optimizer, model):
            self._tell("the optimizer holds none of the model's parameters: is it that of another model?")
        policy = policies.parse(self._setup.algorithm)
        setup, shard_bytes = self._setup, self._preset.shard_bytes
        replica, method = fit(policy, model, optimizer, shard_bytes, setup.share, setup.compress)
        self._saving = Saving(
            self._setup, model, optimizer, method, dict(also or {}), self._records.directory, self._tell
        )
        restored = self._saving.load() if self._setup.resume else None
        turns = None
        if restored is not None:
            self.step, turns = restored.step, restored.turns
            _log.info("rank %d: resumed from step %d", self.rank, self.step)
            self._records.event(event="resume", step=self.step, text=f"from the checkpoint of step {self.step}")
        elif self._setup.resume:
            self._tell("there is no checkpoint to resume from; it starts anew")
        engine = Engine(
            self._setup, self._preset, self._transport, self._cards, replica, self._tell, self._note, turns, self.step
        )
        self._engine, self._replica = engine, replica
        self._pulse = Pulse(engine.rows, time.monotonic())
        adopted = engine.gather(restored is not None, replica.encode_rest())
        if adopted is not None:
            replica.decode_rest(adopted)
        self._saving.restore_random()
        if engine.collective == "server":
            if self.rank == CENTRE.rank:
                self._tell(engine.policy.warning)
            self._stepping = Serving(engine, model, self._tell)
        elif engine.collective:
            state = WholeState(model, optimizer, dict(also or {}))
            self._stepping = Averaging(engine, Gradients(model), state, self.step, self._set_step, self._tell)
        else:
            self._stepping = Stepping(engine, replica, method)
        self._hooks = StepHooks(optimizer, self._stepping.begin, self._after_move)
        self._boundary_at = time.monotonic()
        self._stop.patient = True
        self._report(state="training")

    def _set_step(self, step: int) -> None:
        self.step = step

    def _attached(self) -> Engine:
        if self._engine is None:
            raise PeerError("attach a model first: peer.attach(model, optimizer)")
        if self._closed:
            raise PeerError("this peer has ended: use it inside of its with statement")
        return self._engine

    def _after_move(self) -> None:
        engine = self._attached()
        assert self._stepping is not None
        assert self._saving is not None
        self._stepping.end()
        self.step += 1
        if self._boundary:
            self._boundary.passed(self.step, time.monotonic() - self._boundary_at)
        waited = self._stepping.exchange()
        now = time.monotonic()
        driver = engine.driver
        self._waited += waited
        self._records.step(
            step=self.step,
            seconds=now - self._boundary_at,
            wait_seconds=waited,
            weight=self.weight,
            bytes_sent=driver.bytes_sent - self._sent,
            bytes_received=driver.bytes_received - self._received,
            samples=self.samples - self._sampled,
            **self._logged,
        )
        self._sampled = self.samples
        self._sent, self._received = driver.bytes_sent, driver.bytes_received
        if now - self._reported >= _REPORT_EVERY:
            self._report(state="training", seconds=now - self._boundary_at)
        self._logged = {}
        self._boundary_at = now
        self._saving.step_is_over(self.step)
        if self._loop_count == 0:
            self._settle()

    def _settle(self, stepped: bool = True) -> None:
        """Save and stop where that is asked for: between two steps, where neither tears anything apart.

        Args:
            stepped: whether a step was made since the last time. If none was, gradients may be half accumulated, and
                stopping has to wait for it.
        """
        assert self._saving is not None
        if self._stop.asked and stepped:
            self._saving.save_last(self.step, self._attached().core, self._loops)
            self._stop.now()
        self._saving.save_if_due(self._attached().core, self._loops)

    # Data

    def batches(
        self, dataset: Any, batch_size: int, epochs: int, *, drop_last: bool = False, **loader: Any
    ) -> Iterator[Any]:
        """Yield batches, on the peer's device, until the swarm as a whole has seen so many epochs.

        Args:
            dataset: anything with a length and an index, the same for all peers.
            batch_size: samples in a batch.
            epochs: how often the swarm goes through the data set.
            drop_last: leave out the last batch of an epoch when it is not full.
            loader: options of `torch.utils.data.DataLoader`: ``num_workers``, ``pin_memory``, ``collate_fn`` and so on.
        """
        engine = self._attached()
        assert self._saving is not None
        index = len(self._loops)
        source = Batches(
            dataset,
            batch_size,
            epochs,
            seed=self._setup.seed + index,
            rank=self.rank,
            ranks=lambda: self.view,
            drop_last=drop_last,
            device=self.device,
            on_progress=engine.bulletin.tell,
            **loader,
        )
        self._loops.append(source)
        self._saving.restore_data(index, source)
        self._sampled = self.samples  # those of a checkpoint are in the lines of a former life
        if self._is_over(index):
            return
        engine.bulletin.add(f"data-{index}", source.progress)
        engine.bulletin.remove(f"data-{index - _LOOPS_TOLD}")
        yield from self._looped(index, source)

    def _is_over(self, index: int) -> bool:
        """Whether somebody is in a later loop over data, and so has seen the end of this one."""
        numbers = [name.removeprefix("data-") for name in self._attached().bulletin.early()]
        return any(number.isdecimal() and int(number) > index for number in numbers)

    def _looped(self, index: int, source: Batches) -> Iterator[Any]:
        assert self._saving is not None
        self._saving.restore_random()
        self._loop_count += 1
        try:
            for batch in source:
                before = self.step
                yield batch
                # Between two batches the loop's body is through, schedulers and all: the moment for a checkpoint.
                self._settle(self.step != before)
                # A newcomer may have begun before it heard where the others are.
                if self._setup.incarnation and self._is_over(index):
                    break
        finally:
            self._loop_count -= 1
            if isinstance(self._stepping, Collective) and not self._closed:
                self._stepping.pause()

    def sampler(self, dataset: Any, *, shuffle: bool = True) -> PeerSampler:
        """Return a sampler of this peer's part of the data, for a ``DataLoader`` of one's own."""
        return PeerSampler(dataset, self.rank, self.world_size, self._setup.seed, shuffle=shuffle)

    # Agreement

    def consensus(self, tolerance: float = 1e-3, timeout: float = 60.0) -> float:
        """Mix without training until all peers agree, and return the disagreement reached.

        The disagreement is how far a neighbour's values lie from this peer's, relative to their length, at worst over
        shards and recent rounds. All peers are to call it; who has not come yet is waited for, within the timeout.
        """
        return self._agree(tolerance, timeout)

    def _agree(self, tolerance: float, timeout: float, on_agreed: Callable[[], None] | None = None) -> float:
        engine = self._attached()
        self._report(state="mixing")
        with self._stop.at_once():
            if isinstance(self._stepping, Collective):
                reached = self._stepping.consensus(timeout, on_agreed)
            else:
                reached = engine.consensus(tolerance, timeout, on_agreed)
        self._records.event(event="consensus", step=self.step, disagreement=reached)
        self._report(state="training", disagreement=reached)
        self._boundary_at = time.monotonic()
        return reached

    def evaluate(self, function: Callable[[], _T], tolerance: float = 1e-3, timeout: float = 60.0) -> Evaluation:
        """Return what a function says of this peer's own model, and of the average of all; training goes on after.

        All peers are to call it at the same point: the average is found by mixing. Afterwards each has its own
        values back.
        """
        replica = self._replica
        if replica is None:
            raise PeerError("attach a model first: peer.attach(model, optimizer)")
        own = function()
        kept = replica.values()
        agreed: list[torch.Tensor] = []
        try:
            self._agree(tolerance, timeout, lambda: agreed.extend(replica.values()))
            if agreed:
                replica.restore(agreed)
            return Evaluation(own, function())
        finally:
            if not isinstance(self._stepping, Collective):  # whose own values are the average
                replica.restore(kept)

    # Telling

    def log(self, **values: Any) -> None:
        """Note values, such as the loss, for this step's line in the metrics."""
        if taken := sorted(_METRICS & values.keys()):
            raise PeerError(f"{', '.join(taken)}: the peer itself notes what is called so; choose another name")
        self._logged.update(
            {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in values.items()}
        )

    def _tell(self, sentence: str) -> None:
        _log.warning("rank %d: %s", self.rank, sentence)
        self._records.event(event="warning", step=self.step, text=sentence)

    def _note(self, **event: Any) -> None:
        self._records.event(step=self.step, **event)

    def _tell_others(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Let this peer's row of the table go round, and return it."""
        if self._engine is None or self._pulse is None:
            return {"step": self.step, "samples": self.samples, "state": values.get("state")}
        loss = self._logged.get("loss")
        row = self._pulse.beat(
            time.monotonic(),
            self._engine.core.me.incarnation,
            totals={"samples": self.samples, "bytes": self._engine.driver.bytes_sent, "waited": self._waited},
            step=self.step,
            loss=None if loss is None or not math.isfinite(loss) else float(loss),
            weight=self.weight,
            neighbours=len(self.view) - 1,
            state=values.get("state"),
            sends=self._sends(),
            disagreement=values.get("disagreement"),
        )
        self._engine.bulletin.tell()
        # The others keep the last loss that was finite; the launcher shows NaN as what it is.
        return row if loss is None else {**row, "loss": float(loss)}

    def _sends(self) -> str | None:
        """Return how parcels go out, where something is done about it: also `auto`, if it chose to do nothing."""
        return self._engine.compressing if self._engine is not None and self._setup.compress != "none" else None

    def _report(self, **values: Any) -> None:
        """Tell the others and the launcher this peer's status, in the same row; the launcher may be gone."""
        row = self._tell_others(values)
        self._reported = time.monotonic()
        if self._channel is not None:
            self._channel.tell(status={"rank": self.rank, **row})

    # The end

    def close(self) -> None:
        """End: say goodbye to the others, and write the summary."""
        self._end("finished")

    def _end(self, how: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop.ending()
        if self._hooks is not None:
            self._hooks.remove()
        if self._engine is None:
            self._transport.close()
        else:
            self._final_weight = self.weight
            if how == "finished" and isinstance(self._stepping, Collective):
                self._engine.last(self._stepping.close)
            self._engine.close(_FLUSH)
        if self._metrics is not None:
            self._metrics.close()
        if self._saving is not None:
            self._saving.close()
        self._boundary.close()
        if self._stop.asked and how == "interrupted":
            self._tell_stopped()
        self._records.summary(**self._summary(how))
        self._records.close()
        if self._channel is not None:
            self._channel.tell(ended=how[:300])  # a character may take 12 bytes
            self._channel.close()
        self._stop.close()

    def _tell_stopped(self) -> None:
        """Say in one line where it stopped, and what is left of it."""
        newest = self._saving.newest() if self._saving is not None else None
        kept = "without a checkpoint" if newest is None else f"the last checkpoint is of step {newest}"
        if newest == self.step:
            kept = "and saved that as a checkpoint"
        sentence = f"stopped after step {self.step} as asked, {kept}"
        _log.warning("rank %d: %s", self.rank, sentence)
        self._records.event(event="stop", step=self.step, text=sentence)

    def _summary(self, how: str) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "rank": self.rank,
            "steps": self.step,
            "samples": self.samples,
            "seconds": time.monotonic() - self._began,
            "wait_seconds": self._waited,
            "exit": how,
        }
        if self._engine is not None:
            core, driver = self._engine.core, self._engine.driver
            shards = range(len(core.mass.weights))
            summary |= {
                "bytes_sent": driver.bytes_sent,
                "bytes_received": driver.bytes_received,
                "rejected": {reason.value: count for reason, count in core.rejections.by_reason.items() if count},
                "weight": self._final_weight,
                "weight_left": self.weight + mean(core.inbox.weight(shard) for shard in shards),
                "weight_unanswered": mean(core.outbox.weight(shard) for shard in shards),
                "incarnation": core.me.incarnation,
            }
        return summary


def device_of(setup: Setup) -> torch.device:
    """Return the device that the settings mean."""
    if setup.device != "auto":
        try:
            return torch.device(setup.device)
        except RuntimeError as error:
            raise SettingsError(f"device is auto, cpu, cuda or cuda:1, not {setup.device!r}") from error
    if torch.cuda.is_available() and torch.cuda.device_count():
        return torch.device("cuda", setup.local_rank % torch.cuda.device_count())
    return torch.device("cpu")
