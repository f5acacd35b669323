"""The metrics of a peer for Prometheus: its figures as text over HTTP, by default on loopback.

All figures are read during a scrape, in the thread of the server. They are single numbers, or dictionaries that are
copied in one operation, so no lock is taken, and neither the trainer nor the gossip thread ever waits for a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gossip.endpoint import Endpoint
from gossip.errors import Reason, SettingsError
from gossip.membership import State
from gossip.version import __version__
from peers.session.session import Session
from peers.setup import Setup

__all__ = ["Figures", "Metrics"]

#: The changes of a member: the label, and the name in the chronicle.
_HAPPENED = {
    "death": "died",
    "suspicion": "suspected",
    "refutation": "refuted",
    "join": "joined",
    "return": "returned",
    "leave": "left",
}
#: The fates of a parcel: the label, and the name in the chronicle.
_FATES = {"booked": "Booked", "refused": "Refused", "released": "Released", "taken_back": "TakenBack"}


class Figures(NamedTuple):
    """What a peer knows of itself; the session is there once a model is attached."""

    step: int
    samples: int
    waited: float
    session: Session | None


class Metrics:
    """Serves the figures of one peer."""

    def __init__(self, setup: Setup) -> None:
        """Bind and serve; there are no figures before `show`."""
        port = setup.metrics_port + setup.local_rank if setup.metrics_port else 0
        self._figures = _Figures(setup)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._figures)
        place = Endpoint(setup.metrics_bind, port)
        try:
            self._server, self._thread = start_http_server(port, setup.metrics_bind, registry)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"metrics_port={setup.metrics_port}: cannot serve metrics on {place}: {why}; choose another port"
            ) from error
        #: The endpoint of the server. Its port is the real one, even if any free port was requested.
        self.endpoint = Endpoint(setup.metrics_bind, self._server.server_port)

    def show(self, source: Callable[[], Figures]) -> None:
        """Serve the figures of the source from now on; it is called in another thread."""
        self._figures.source = source

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Figures(Collector):
    """The figures in the form of Prometheus."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.source: Callable[[], Figures] | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        setup = self._setup
        info = GaugeMetricFamily("gossip_peer_info", "The identity of this peer; always 1.", labels=_INFO)
        info.add_metric([str(setup.rank), setup.run, setup.topology, setup.algorithm, __version__], 1)
        yield info
        if self.source is None:
            return
        step, samples, waited, session = self.source()
        yield _counter("steps", "Steps of the optimizer, including those before a checkpoint.", step)
        yield _counter("samples", "Samples trained on that came from peer.batches.", samples)
        yield _counter("waited_seconds", "Time during which the trainer waited for the gossip.", waited)
        if session is not None:
            yield from _of_session(session)


_INFO = ("rank", "run", "topology", "algorithm", "version")


def _of_session(session: Session) -> Iterator[Metric]:
    status, driver, chronicle, row = session.status(), session.driver, session.chronicle, session.rows.own()
    counts, rejected = dict(chronicle.counts), dict(chronicle.rejected)
    states = ["alive", *list(chronicle.states.values())]
    yield _gauge("weight", "This peer's push-sum weight, the mean over its shards.", session.weight)
    yield _gauge("life", "The present incarnation of this peer.", status.me.incarnation)
    for name, told in (("loss", "The loss that was logged last."), ("disagreement", "The last measured one.")):
        if row.get(name) is not None:
            yield _gauge(name, told, row[name])
    yield _counter("sent_bytes", "Bytes handed to the transport.", driver.bytes_sent)
    yield _counter("received_bytes", "Bytes that came from the transport.", driver.bytes_received)
    yield _counter("dropped_messages", "Messages that the transport dropped: no connection.", driver.dropped)
    members = GaugeMetricFamily("gossip_members", "Members in this peer's view, itself included.", labels=["state"])
    for state in State:
        name = state.name.lower()
        members.add_metric([name], states.count(name))
    yield members
    happened = {label: counts.get(f"member {what}", 0) for label, what in _HAPPENED.items()}
    yield _counters("member_changes", "Changes of other members in this peer's view.", "kind", happened)
    yield _counter("reincarnations", "Lives of this peer that were declared dead.", counts.get("reincarnated", 0))
    yield _counter("written_off_weight", "Weight that this peer wrote off.", chronicle.written_off)
    reasons = {reason.value: rejected.get(reason, 0) for reason in Reason}
    yield _counters("rejected_frames", "Frames that were rejected.", "reason", reasons)
    fates = {label: counts.get(what, 0) for label, what in _FATES.items()}
    yield _counters("parcels", "Parcels of others booked or refused; own ones released or taken back.", "fate", fates)
    yield _counter(
        "not_finite_shards", "Pushes that were held back because of NaN or infinity.", counts.get("NotFinite", 0)
    )


def _gauge(name: str, told: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gossip_{name}", told, value=value)


def _counter(name: str, told: str, value: float) -> Metric:
    return CounterMetricFamily(f"gossip_{name}", told, value=value)


def _counters(name: str, told: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"gossip_{name}", told, labels=[label])
    for one, value in values.items():
        family.add_metric([one], value)
    return family
