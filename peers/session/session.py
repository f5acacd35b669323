"""The gossip of one replica, as the trainer's thread uses it.

The gossip thread (`gossip.net.driver`) owns the protocol core. The session never touches the core once that thread
runs: it asks `Session.status`, and the listener keeps for it what the gossip thread reports.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from gossip import events
from gossip.core.status import Status
from gossip.errors import GossipError
from gossip.grids import row_of_run
from gossip.net.driver import Driver
from gossip.net.promise import Promise
from gossip.net.transport import Transport
from gossip.policies import Policy
from gossip.presets import Preset
from gossip.values.blocks import Values
from peers.model.replica import Replica
from peers.session.bulletin import Bulletin
from peers.session.cards import Card
from peers.session.chronicle import Chronicle
from peers.session.consensus import Consensus, Terms
from peers.session.listener import Listener
from peers.session.new_core import contacts_of, new_core
from peers.session.rendezvous import Rendezvous
from peers.session.start import Start
from peers.session.status_page import status_page
from peers.setup import Setup
from peers.table.status_rows import Rows

__all__ = ["Session"]

#: Turns whose neighbours are connected to before they are needed.
_TURNS_AHEAD = 64
#: Bytes per second that a link carries, at least, when a peer that leaves hands its mass over.
_SLOW_LINK = 12.5e6


class Session:
    """The running gossip of one replica."""

    def __init__(
        self,
        setup: Setup,
        policy: Policy,
        preset: Preset,
        transport: Transport,
        cards: Mapping[int, Card],
        replica: Replica,
        warn: Callable[[str], None],
        note: Callable[..., None],
        turns: list[int] | None = None,
        step: int = 0,
        failed: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """Start the gossip thread; the values are the trainer's until `gather`.

        Args:
            setup: who this peer is, and how it gossips.
            policy: the algorithm, as it is for the optimizer.
            preset: the settings for the network.
            transport: bound, connected to nobody.
            cards: where everybody is, by rank.
            replica: the values.
            warn: is called, in any thread, with a sentence that the user should read.
            note: is called, in any thread, with the fields of an event for the records.
            turns: where in the schedule each shard was at the checkpoint.
            step: the number of steps before the checkpoint.
            failed: returns how ranks ended that had not attached a model, as far as that is known.
        """
        self._replica = replica
        self._warn = warn
        #: The algorithm.
        self.policy = policy
        #: The shards that were exchanged with the last step.
        self.exchanged: set[int] = set()
        # A topology that stands in is reported with the next step: at the end of a run others leave, and then it is of
        # no interest any more.
        self._stand_in = ""
        contacts = contacts_of(setup, cards)
        core = new_core(
            setup,
            preset,
            self.policy,
            replica,
            transport.endpoint,
            contacts,
            turns=turns,
            step=step,
            warn=self._warn_later,
        )
        self._mass = core.mass
        known = core.view.members.keys() - {setup.rank}
        self.chronicle = Chronicle(
            known,
            replica.layout.shards,
            warn,
            note,
            newcomer=bool(setup.incarnation),
            lives_known=not setup.birth,
            unit="rank" if row_of_run(setup.run) is None else "replica",
        )
        self.bulletin = Bulletin(lambda body, fresh: self.driver.post(events.Publish(body, fresh=fresh)), warn)
        self.rows = Rows(setup.rank)
        self._listener = Listener(
            core,
            self.chronicle,
            self.bulletin,
            post=lambda event: self.driver.post(event),
            page=lambda: status_page(setup, self.driver.records(), self.rows.all()),
            sends=setup.compress,
        )
        self.driver = Driver(core, transport, listen=self._listener.hear)
        self._rendezvous = rendezvous = Rendezvous(setup, self.driver, self.bulletin, replica)
        self._start = Start(setup, self.policy, self.driver, self._listener, rendezvous, contacts, warn, failed)
        self._consensus = Consensus(
            setup.rank,
            self.driver,
            rendezvous,
            replica,
            self._exchange,
            warn,
            rows=self.rows.all,
            states=lambda: dict(self.chronicle.states),
            step=step,
            unit=self.chronicle.unit,
        )
        near = {address.rank for turn in range(_TURNS_AHEAD) for address, _ in core.view.out_edges(turn)}
        for card in cards.values():
            if card.rank in known:
                self.driver.introduce(card.rank, card.endpoint, card.key, now=card.rank in near)
        self.driver.__enter__()

    def _warn_later(self, sentence: str) -> None:
        self._stand_in = sentence

    # The status

    def status(self) -> Status:
        """Return the state of the protocol core, as of the last call that was answered, or later."""
        return self.driver.status()

    @property
    def weight(self) -> float:
        """The mean of the push-sum weights over the shards; after the end, of what nobody took."""
        weights = self.status().weights
        return sum(weights) / len(weights)

    @property
    def sends(self) -> str:
        """How parcels go out: the codec, or what chose it and its choice."""
        return self._listener.sends

    # The start

    def gather(self, has_state: bool) -> None:
        """Come together with the others and see to it that all have the same state.

        A peer with a state, from a checkpoint, gives it to those that have none; if nobody has one, the lowest rank's
        values count.

        Args:
            has_state: whether this peer's values are to be kept.
        """
        self._replica.lend()
        # Peers that are through already train and push; all the same everybody starts from the same weights.
        self.driver.rest(merge=False)
        self._rendezvous.enter(has_state)
        self.bulletin.add("status", self.rows, calm=True)
        self.chronicle.comparing = True
        self._start.gather(has_state)
        self.chronicle.comparing = False
        self.driver.resume()
        self._replica.reclaim()

    # Training

    def merge(self) -> None:
        """Merge what has arrived, before the optimizer moves the values."""
        self._replica.lend()
        self.driver.merge()
        self._replica.reclaim()

    def step(self) -> float:
        """Hand a finished step over; return the seconds that it took."""
        if self._stand_in:
            self._warn(self._stand_in)
            self._stand_in = ""
        began = time.monotonic()
        turns = self.status().turns
        self._exchange()
        self.exchanged = {shard for shard, turn in enumerate(self.status().turns) if turn != turns[shard]}
        return time.monotonic() - began

    def _exchange(self) -> None:
        """Lend the values to the core for one exchange."""
        self._check()
        self._replica.lend()
        self.driver.step()
        self._replica.reclaim()

    def _check(self) -> None:
        """Raise an error if this peer cannot go on; a newcomer may hear only now that its settings differ."""
        self._listener.check()
        self._rendezvous.check_settings()

    # Collective exchanges

    def offer_state(self, state: Callable[[int], bytes | None]) -> None:
        """Give others the state that this function returns, in the gossip thread, when they ask for it.

        It is called with the round of the state, and returns None if `offer` follows.
        """
        self._listener.state = state

    def offer(self, number: int, state: bytes) -> None:
        """Give others the state of this round."""
        self.driver.post(events.Offer(number, state))

    def synchronize(self, step: int, seal: int) -> None:
        """Take part from now on; a state that has to be taken over for that is in `take_adopted`."""
        self.driver.synchronize(step, seal, self._listener.check)

    def take_adopted(self) -> bytes | None:
        """Return the state that this peer has to take over, once."""
        return self._listener.take_adopted()

    def reduce(self, values: Values, lossy: int = 0) -> events.Reduced:
        """Replace a vector by the outcome of the collective exchange; a codec carries its first ``lossy`` elements."""
        self._check()
        return self.driver.reduce(values, self._listener.check, lossy)

    def begin_reduce(self, values: Values, lossy: int = 0) -> Promise:
        """Begin what `reduce` does; the vector belongs to the exchange until the promise is kept."""
        self._check()
        return self.driver.begin_reduce(values, lossy)

    def wait(self, promise: Promise, seconds: float) -> bool:
        """Wait for the outcome of `begin_reduce` for some time; return whether it is there."""
        return self.driver.wait(promise, seconds, self._listener.check)

    def reduced(self, promise: Promise) -> events.Reduced:
        """Wait for the outcome of `begin_reduce`."""
        return self.driver.reduced(promise, self._listener.check)

    def withdraw(self) -> None:
        """Take no part until the next `synchronize`; return when nobody lacks what this peer has computed."""
        self.driver.withdraw(self._listener.check)

    # Agreement

    def consensus(self, terms: Terms) -> float:
        """Mix until all agree; return the disagreement reached. See `Consensus.mix`."""
        return self._consensus.mix(terms)

    def meet(self, terms: Terms, *acts: Callable[[], None]) -> None:
        """Wait until all are here; then act after act, until all have acted. See `Consensus.meet`."""
        self._consensus.meet(terms, *acts)

    # The end

    def spread(self) -> None:
        """Tell the neighbours of several rounds all news now: this peer may have no further step."""
        for _ in range(2 * len(self.status().members).bit_length()):
            self.driver.post(events.Publish(self.bulletin.body(), at_once=True))

    def last(self, act: Callable[[], object]) -> None:
        """Do what comes before this peer goes; an error is reported, and the peer goes all the same."""
        try:
            act()
        except GossipError as error:
            self._warn(f"the gossip ended early: {error}")

    def close(self, timeout: float, at_most: float = math.inf) -> None:
        """Hand all mass over to those who stay, and stop; what nobody takes in time is written off.

        Args:
            timeout: seconds for the goodbye; what the model takes on a slow link is added.
            at_most: seconds for all of it.
        """
        self.last(lambda: self._leave(timeout, at_most))
        self.driver.close()
        self._mass.close()

    def _leave(self, timeout: float, at_most: float) -> None:
        if timeout > 0:
            self._replica.lend()
            timeout = min(timeout + self._replica.layout.total_bytes / _SLOW_LINK, at_most)
        self.driver.leave(timeout)
