"""The gossip of one replica: protocol core, thread, and what the peers tell each other.

The trainer's thread calls; effects and news come in the gossip thread and are kept here for it to find.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gossip import events, policies
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.core.planning import planner
from gossip.core.view import Roster
from gossip.endpoint import Endpoint
from gossip.errors import GossipError
from gossip.membership import Membership, Record
from gossip.net.driver import Driver
from gossip.net.shared_memory.owner import SharedMemory
from gossip.net.shared_memory.sharing import is_near
from gossip.net.transport import Transport
from gossip.presets import Preset
from gossip.values.blocks import Values, is_finite
from gossip.version import __version__
from gossip.wire.limits import SHOWN_LIMIT
from gossip.wire.messages import ANYBODY, Address
from peers.model.model_lines import ModelLines
from peers.model.replica import Replica
from peers.reporting.status import Rows
from peers.session.bulletin import Agreement, Bulletin, RollCall
from peers.session.cards import Card, RendezvousError
from peers.session.chronicle import Chronicle
from peers.setup import Setup

__all__ = ["Engine", "StartError"]

#: Connections that are made before they are needed: to the neighbours of so many turns.
_TURNS_AHEAD = 64
#: How often whoever waits looks whether the gossip thread still runs.
_GLANCE = 0.2
#: A parcel that had to be sent more often than this no longer counts as on its way.
_ATTEMPTS = 2
#: A mixing round in which nothing came is followed by a pause.
_PAUSE = 0.005
#: Bytes per second that a link carries, at least, when a peer that leaves hands its mass over.
_SLOW_LINK = 12.5e6
#: What a newcomer has to do as the others do.
_SHARED = (
    "run",
    "world_size",
    "topology",
    "algorithm",
    "preset",
    "seed",
    "share",
    "compress",
    "insecure",
    "join_key",
    "watch_key",
)
#: Glances for which who has another model goes on telling, so that the others hear it as well.
_LAST_WORDS = 8


class StartError(RendezvousError):
    """The peers came together, but do not fit together."""


class Engine:
    """The running gossip of one replica."""

    def __init__(
        self,
        setup: Setup,
        preset: Preset,
        transport: Transport,
        cards: Mapping[int, Card],
        replica: Replica,
        tell: Callable[[str], None],
        note: Callable[..., None],
        turns: list[int] | None = None,
        step: int = 0,
    ) -> None:
        """Start the gossip thread; the values are the trainer's until `gather`.

        Args:
            setup: who this is, and how it gossips.
            preset: the settings for the network.
            transport: bound, connected to nobody.
            cards: where everybody is, by rank.
            replica: the values.
            tell: is called, in any thread, with a sentence that the user should read.
            note: is called, in any thread, with the fields of an event for the records.
            turns: where in the schedule each shard was at the checkpoint.
            step: how many steps there were before it.
        """
        self._setup = setup
        self._replica = replica
        self._tell = tell
        self._policy = policy = policies.parse(setup.algorithm)
        #: What is to be said with the next step: when a run ends others leave, and it is of no interest who stands in.
        self._untold = ""
        schedules = planner(setup.topology, policy, setup.world_size, setup.seed, self._say_later)
        schedules(setup.world_size)  # or say now what is wrong with it
        # Parcels are copied into memory that peers on this host, if there are any, can read.
        self._contacts = contacts_of(setup, cards)
        others = [Endpoint.parse(record.endpoint) for record in self._contacts]
        owner = SharedMemory() if any(is_near(transport.endpoint, other) for other in others) else None
        # A newcomer knows nobody until it is let in, only where to ask.
        known = {} if setup.incarnation else {record.rank: record for record in self._contacts}
        key = "" if setup.keys is None else setup.keys.public.decode()
        me = Record(setup.rank, setup.incarnation, endpoint=str(transport.endpoint), key=key)
        now = time.monotonic()
        self.core = Core(
            Address(setup.rank, setup.incarnation),
            Mass(replica.layout, replica.arrays, owner=owner),
            Roster({**dict.fromkeys(known, 0), setup.rank: setup.incarnation}, schedules),
            policy,
            replace(preset.settings, share=setup.share, compress=setup.compress),
            turns=turns if turns is not None and len(turns) == replica.layout.shards else None,
            now=now,
            membership=Membership(me, preset.membership, setup.seed, now, known),
        )
        # When to exchange is a matter of the step.
        self.core.step = step
        #: The shards that were exchanged with the last step.
        self.exchanged: set[int] = set()
        self.chronicle = Chronicle(known, replica.layout.shards, tell, note, newcomer=bool(setup.incarnation))
        self.driver = Driver(self.core, transport, listen=self._listen)
        self.bulletin = Bulletin(lambda body: self.driver.post(events.Publish(body)), tell)
        self.roll = RollCall()
        self._model = Agreement(replica.fingerprint, setup.rank)
        self._lines = ModelLines(setup.rank, replica.lines)
        self.rows = Rows(setup.rank)
        #: How parcels go out.
        self.compressing = setup.compress
        self._welcomed = False
        self._expelled = ""
        self._annex: bytes | None = None
        #: Returns the whole state of the replica, for collective policies; and one that is to be taken over.
        self.state: Callable[[], bytes] | None = None
        self._adopted: bytes | None = None
        self._mixings = 0
        near = {address.rank for turn in range(_TURNS_AHEAD) for address, _ in self.core.view.out_edges(turn)}
        for card in cards.values():
            if card.rank in known:
                self.driver.introduce(card.rank, card.endpoint, card.key, now=card.rank in near)
        self.driver.__enter__()

    # The start

    def gather(self, has_state: bool, annex: bytes) -> bytes | None:
        """Come together with the others and see to it that all have the same state.

        Whoever has a state, from a checkpoint, gives it to those who have none; if nobody has, the first one's counts.

        Args:
            has_state: whether this peer's values are to be kept.
            annex: what goes with this peer's values to others.

        Returns:
            The annex of the state that was adopted, or None if this peer's own was kept.
        """
        self._replica.lend()
        # Who is through already trains and pushes; all the same everybody starts from the same weights.
        self.driver.rest(merge=False)
        self.bulletin.add("model", self._model)
        # At once, so that nobody hears that this peer is here and not yet that it has a state.
        if has_state:
            self.roll.reach("state", self._setup.rank)
        self.roll.reach("here", self._setup.rank)
        self.bulletin.add("roll", self.roll)
        self.bulletin.add("status", self.rows)
        donors = self._newcomers_donors() if self._setup.incarnation else self._founders_donors()
        adopted = None if has_state or not donors else self._adopt(donors)
        if adopted is not None:  # from now on it exchanges when the others do, as far as turns tell
            self.core.step = self._policy.step_of(round(max(self.core.turns) / self._setup.share))
        self.driver.post(events.Donate(annex if adopted is None else adopted))
        self._reach("state")
        if not self._setup.incarnation:
            self._wait(lambda: self.roll.ranks("state") >= self._here(), self._setup.start_timeout)
        self._spread()
        self.driver.resume()
        self._replica.reclaim()
        return adopted

    def _founders_donors(self) -> list[int]:
        """Wait for the others, and return whom to ask for the state: nobody, if this peer's is the one that counts."""
        everybody = set(self.core.view.members)
        self._wait(lambda: self.roll.ranks("here") >= everybody, self._setup.start_timeout)
        self.driver.post(events.Watch())
        here = self.roll.ranks("here")
        missing = sorted(everybody - here)
        if len(everybody) > 1 and here == {self._setup.rank}:
            raise StartError(
                f"rank {self._setup.rank}: none of the other {len(missing)} peers came within "
                f"{self._setup.start_timeout:g} s. Do they run, and can they reach each other's ports?"
            )
        if missing:
            self._tell(f"going on without ranks {missing}, which did not come within {self._setup.start_timeout:g} s")
        holders = self.roll.ranks("state") - {self._setup.rank}
        lower = {rank for rank in here if rank < self._setup.rank}
        return sorted(holders | lower) if holders or lower else []

    def _newcomers_donors(self) -> list[int]:
        """Ask to be let in, and return whom to ask for the state: everybody."""
        self.driver.post(events.Join(self._contacts))
        if not self._wait(lambda: self._welcomed or bool(self._expelled), self._setup.start_timeout):
            asked = ", ".join(record.endpoint for record in self._contacts)
            raise StartError(
                f"rank {self._setup.rank}: nobody let it in within {self._setup.start_timeout:g} s. Asked: {asked}. "
                "If the swarm is just starting, try again: a peer lets others in once its script has attached the "
                "model. Otherwise: do they run, can they reach this peer, and is the key one that they let in?"
            )
        self._check()
        return [rank for rank in self.core.view.members if rank != self._setup.rank]

    def _adopt(self, donors: list[int]) -> bytes:
        self.driver.post(events.Adopt(donors))
        # A large model takes its time; what counts is that pieces keep coming.
        while self._annex is None:
            if not self._wait(self._progress(), self._setup.start_timeout):
                raise StartError(
                    f"rank {self._setup.rank}: no state came from ranks {donors} within "
                    f"{self._setup.start_timeout:g} s. If the swarm is just starting, try again: it has none before "
                    "its peers have met. Otherwise: are they still there?"
                )
        return self._annex

    def _progress(self) -> Callable[[], bool]:
        """Return what tells whether a piece of the state has come since."""
        lacking = self.core.lacking
        return lambda: self._annex is not None or self.core.lacking != lacking

    def _reach(self, what: str, level: int = 1) -> None:
        self.roll.reach(what, self._setup.rank, level)
        self.bulletin.tell()

    def _here(self) -> set[int]:
        """Return who came and has not left since."""
        return self.roll.ranks("here") & self.core.view.members.keys()

    def _spread(self) -> None:
        """Tell the neighbours of several rounds: some wait for this peer's word, whatever it does next."""
        for _ in range(2 * len(self.core.view.members).bit_length()):
            self.bulletin.tell()

    def _wait(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Wait for something that others tell; raise if the gossip thread fails or somebody has another model."""
        # In glances, so that a process that was suspended has lost one of them and not all of its time.
        left = timeout
        while not self.bulletin.wait_for(lambda: predicate() or self._model.conflict is not None, min(left, _GLANCE)):
            self.driver.check()
            left -= _GLANCE
            if left <= 0:
                return False
        if self._model.conflict is not None:
            self.bulletin.add("model-lines", self._lines)
            for _ in range(_LAST_WORDS):
                self.bulletin.wait_for(lambda: False, _GLANCE)
            raise StartError(self._lines.complaint(self._model.conflict))
        return True

    # Training

    @property
    def arrivals(self) -> bool:
        """Whether anything has arrived that is to be merged before the move."""
        # In this order: what is booked in between is one merge too many, not one too few.
        asking = self.core.inbox.asking
        return self.core.inbox.nbytes > asking

    @property
    def exchanges(self) -> bool:
        """Whether the next step will end in an exchange."""
        return self._policy.exchanges(self.core.step + 1)

    def stretch(self, shard: int) -> float:
        """Return the own mass with what is on its way of it, relative to the mass that is held."""
        weight = self.core.mass.weights[shard]
        return (weight + self._untrained(shard)) / weight if weight > 0 else math.inf

    def _untrained(self, shard: int) -> float:
        """Return the weight on its way that nobody trains meanwhile."""
        core = self.core
        if not core.outbox.weight(shard):
            return 0.0
        # Whoever is synchronous waits for the last turn's parcel before it moves: only its answer is not here yet.
        turn = core.turns[shard] - 1 if core.policy.lag_at(core.step) == 0 else math.inf
        # And what was sent again and again is on its way to the dead, or so it seems: it will come back.
        return sum(
            entry.parcel.weight
            for entry in core.outbox.snapshot()
            if entry.parcel.shard == shard and entry.parcel.turn < turn and entry.attempts <= _ATTEMPTS
        )

    def _check(self) -> None:
        if self._expelled:
            raise StartError(f"this peer has to stop: {self._expelled}")

    def merge(self) -> None:
        """Merge what has arrived, before the optimizer moves the values."""
        self._replica.lend()
        self.driver.merge()
        self._replica.reclaim()

    def _say_later(self, sentence: str) -> None:
        self._untold = sentence

    def step(self) -> float:
        """Hand a finished step over; return how many seconds that took."""
        self._check()
        if self._untold and not self.core.measuring:
            self._tell(self._untold)
            self._untold = ""
        began = time.monotonic()
        turns = list(self.core.turns)
        self._replica.lend()
        self.driver.step()
        self._replica.reclaim()
        self.exchanged = {shard for shard, turn in enumerate(self.core.turns) if turn != turns[shard]}
        return time.monotonic() - began

    # Collective exchanges

    @property
    def policy(self) -> policies.Policy:
        """The algorithm."""
        return self._policy

    @property
    def collective(self) -> str:
        """The kind of collective exchange that the policy wants; empty: none."""
        return self._policy.collective

    def synchronize(self, step: int, seal: int) -> None:
        """Take part from now on; what is to be taken over for that, if anything, is in `take_adopted`."""
        self.driver.synchronize(step, seal, self._check)

    def take_adopted(self) -> bytes | None:
        """Return the state that this peer has to take over, once."""
        adopted, self._adopted = self._adopted, None
        return adopted

    def reduce(self, values: Values, lossy: int = 0) -> events.Reduced:
        """Replace the vector by what all get of everybody's; of so many, from the first on, as a codec carries it."""
        self._check()
        return self.driver.reduce(values, self._check, lossy)

    def withdraw(self) -> None:
        """Take no part until the next `synchronize`; return when nobody lacks what this peer has computed."""
        self.driver.withdraw(self._check)

    def meet(self, timeout: float, act: Callable[[], None]) -> bool:
        """Wait until all are here, act, and wait until all have; return whether all came in time."""
        meeting = self._mixings = max(self._mixings + 1, self.roll.highest("mixing"))
        met = self._rendezvous("mixing", meeting, timeout)
        if met:
            act()
            self._rendezvous("agreed", meeting, timeout)
        else:
            self._tell(f"not all peers came within {timeout:g} s")
        return met

    def _rendezvous(self, what: str, level: int, timeout: float) -> bool:
        self.driver.rest(merge=False)
        self._reach(what, level)
        try:
            return self._wait(lambda: self.roll.ranks(what, level) >= set(self.core.view.members), timeout)
        finally:
            self._spread()
            self.driver.resume()

    # Mixing without training

    def consensus(self, tolerance: float, timeout: float, on_agreed: Callable[[], None] | None = None) -> float:
        """Mix until all agree within the tolerance; return the disagreement that was reached.

        Nobody leaves before all know that all agree, so that nobody is sent what another one trained since.

        Args:
            tolerance: the disagreement to reach.
            timeout: seconds to mix at most.
            on_agreed: is called when all agree: soon after, mass of those who train again may be merged.
        """
        core = self.core
        if len(core.view.members) == 1:
            return 0.0
        if not all(is_finite(values) for values in self._replica.arrays):
            # Mixing makes no number of it again. The others agree without this peer, once it has left.
            self._tell("there is nothing to agree on: training diverged here")
            return math.inf
        # A newcomer enters the mixing that the others are at.
        mixing = self._mixings = max(self._mixings + 1, self.roll.highest("mixing"))
        deadline = time.monotonic() + timeout
        self._reach("mixing", mixing)
        # After so many rounds everybody has mass of everybody, on any schedule that mixes well.
        rounds = 2 * len(core.view.members).bit_length()
        recent: list[float] = []
        reached = math.inf
        step = core.step  # those of the mixing are none of the training
        core.measuring = True
        try:
            while True:
                core.gaps = {}
                self.step()
                if core.gaps:
                    recent = [*recent[1 - rounds :], max(core.gaps.values())]
                else:
                    time.sleep(_PAUSE)
                live = set(core.view.members)
                if not self.roll.ranks("mixing", mixing) >= live:
                    recent = []  # somebody still trains
                elif reached > tolerance and len(recent) == rounds and max(recent) <= tolerance:
                    reached = max(recent)
                    self._reach("agreed", mixing)
                if self.roll.ranks("agreed", mixing) >= live and self._setup.rank not in self.roll.ranks(
                    "known", mixing
                ):
                    if on_agreed is not None:
                        on_agreed()
                    self._reach("known", mixing)
                if self.roll.ranks("known", mixing) >= live or len(live) == 1:
                    break
                if time.monotonic() > deadline:
                    self._tell(f"no agreement within {tolerance:g} after {timeout:g} s of mixing")
                    break
        finally:
            core.measuring = False
            core.step = step
        self._replica.lend()
        self.driver.rest()
        self._spread()
        self.driver.resume()
        self._replica.reclaim()
        if reached <= tolerance:
            return reached
        if len(core.view.members) == 1:
            self._tell("the others left before all agreed: this model is the average of what they left here")
            return 0.0
        return max(recent, default=math.inf)

    def last(self, act: Callable[[], object]) -> None:
        """Do what is to be done before this peer goes, which then goes whether or not that came about."""
        try:
            act()
        except GossipError as error:
            self._tell(f"the gossip ended early: {error}")

    def close(self, timeout: float) -> None:
        """Hand all mass over to those who stay, and stop; what is not taken within so many seconds is written off."""
        self.last(lambda: self._leave(timeout))
        self.driver.close()
        self.core.mass.close()

    def _leave(self, timeout: float) -> None:
        if timeout > 0:
            self._replica.lend()
            timeout += self._replica.layout.total_bytes / _SLOW_LINK
        self.driver.leave(timeout)

    # In the gossip thread

    def _listen(self, effect: events.Effect) -> None:
        self.chronicle.saw(effect, len(self.core.view.members))
        match effect:
            case events.Heard(body=body):
                self.bulletin.hear(body)
            case events.Welcomed():
                self._welcomed = True
                self.bulletin.wake()
            case events.Expelled(reason):
                self._expelled = reason
                self.bulletin.wake()
            case events.Looked(endpoint, key):
                self.driver.post(events.Show(endpoint, key, self.picture()))
            case events.Compressing(choice):
                self.compressing = str(choice)
            case events.StateWanted(number) if self.state is not None:
                self.driver.post(events.Offer(number, self.state()))
            case events.Synchronized(state=state) if state is not None:
                self._adopted = state
            case events.Stranded(reason):
                self._expelled = reason
            case events.Adopted(annex):
                self._annex = annex
                self.bulletin.wake()

    def picture(self) -> bytes:
        """Return how the swarm does, as far as this peer knows, for whoever looks."""
        membership = self.core.membership
        assert membership is not None
        rows = self.rows.all()
        members = [
            {
                "rank": record.rank,
                "incarnation": record.incarnation,
                "membership": record.state.name.lower(),
                "endpoint": record.endpoint,
                "key": record.key,
                **{name: value for name, value in rows.get(record.rank, {}).items() if name != "incarnation"},
            }
            for record in membership.records()
        ]
        setup = self._setup
        shared = {name: getattr(setup, name) for name in _SHARED}
        picture = {"version": __version__, "shown_by": setup.rank, "setup": shared, "members": members}
        while len(body := json.dumps(picture).encode()) > SHOWN_LIMIT:
            del members[len(members) // 2 :]  # some tens of thousands of ranks
            picture["cut_short"] = True
        return body


def contacts_of(setup: Setup, cards: Mapping[int, Card]) -> list[Record]:
    """Return where others are: all of them where they are known beforehand, else those whom to ask to be let in."""
    if setup.contacts:
        keys = setup.contact_keys or ("",) * len(setup.contacts)
        return [Record(ANYBODY, endpoint=endpoint, key=key) for endpoint, key in zip(setup.contacts, keys, strict=True)]
    return [
        Record(card.rank, endpoint=str(card.endpoint), key="" if card.key is None else card.key.decode())
        for card in cards.values()
        if card.rank != setup.rank
    ]
