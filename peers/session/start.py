"""The start of a session: the peers come together, and all get the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gossip import events
from gossip.endpoint import Endpoint
from gossip.membership import Record
from gossip.net.driver import Driver
from gossip.net.routes import look_up
from gossip.policies import Policy
from peers.session.bounded_call import Overdue, call_within
from peers.session.listener import Listener
from peers.session.rendezvous import Rendezvous, StartError
from peers.setup import Setup

__all__ = ["Start"]

#: Levels of "state" in the roll call: a peer has one, from a checkpoint; and it trains.
_TRAINS = 2
#: Seconds in which the name of a host is looked up.
_LOOK_UP = 2.0


class Start:
    """Brings one peer to where it can train. For the trainer's thread, while the values are lent to the core."""

    def __init__(
        self,
        setup: Setup,
        policy: Policy,
        driver: Driver,
        listener: Listener,
        rendezvous: Rendezvous,
        contacts: Sequence[Record],
        warn: Callable[[str], None],
        failed: Callable[[], Mapping[int, str]],
    ) -> None:
        """Prepare.

        Args:
            setup: who this peer is.
            policy: the algorithm.
            driver: of the core.
            listener: hears the core.
            rendezvous: where the others are waited for.
            contacts: where others are.
            warn: is called with a sentence that the user should read.
            failed: returns how ranks ended that had not attached a model, as far as that is known.
        """
        self._rank, self._incarnation, self._timeout = setup.rank, setup.incarnation, setup.start_timeout
        self._share = setup.share
        self._hosts = setup.hosts
        self._policy = policy
        self._driver = driver
        self._listener = listener
        self._rendezvous = rendezvous
        self._contacts = contacts
        self._warn = warn
        self._failed = failed

    def gather(self, has_state: bool) -> None:
        """Come together with the others, adopt a state if need be, and give it to those who ask.

        Args:
            has_state: whether this peer's values are to be kept.
        """
        donors = self._newcomers_donors() if self._incarnation else self._founders_donors()
        if self._was_here_before() and has_state:
            self._warn(
                "the swarm has gone on without this rank: its checkpoint is older, and the model comes from them"
            )
            has_state = False
        if donors and not has_state:
            self._adopt(donors)
        self._driver.post(events.Donate())
        self._rendezvous.reach("state", _TRAINS)
        if not self._incarnation:
            reached = self._rendezvous.reached
            self._rendezvous.wait(lambda: reached("state") >= self._rendezvous.here(), self._timeout)
            self._rendezvous.settle()
        self._rendezvous.spread()

    def _was_here_before(self) -> bool:
        """Whether the others have seen this rank train: it was started again by the same command."""
        return self._rendezvous.roll.former("state") >= _TRAINS

    def _founders_donors(self) -> list[int]:
        """Wait for the others; return the ranks to ask for the state, none if this peer's state is the one to keep."""
        reached = self._rendezvous.reached
        everybody = set(self._driver.status().members)
        self._rendezvous.wait(lambda: reached("here") >= everybody or bool(self._lost()), self._timeout)
        for rank, how in self._lost().items():
            raise StartError(
                f"rank {rank} {how} before it attached a model, so rank {self._rank} waits for it in vain; see its log"
            )
        self._driver.post(events.Watch())
        here = reached("here")
        missing = sorted(everybody - here)
        if len(everybody) > 1 and here == {self._rank}:
            raise StartError(
                f"rank {self._rank}: none of the other {len(missing)} peers came within {self._timeout:g} s. "
                f"Do they run, and can they reach each other's ports?{self._nameless(missing)}"
            )
        if missing:
            late = f"going on without ranks {missing}, which did not come within {self._timeout:g} s"
            self._warn(f"{late}{self._nameless(missing)}")
        holders = reached("state") - {self._rank}
        lower = {rank for rank in here if rank < self._rank}
        return sorted(holders | lower)

    def _nameless(self, ranks: Sequence[int]) -> str:
        """Return which of the hosts of these ranks have no address, as after a start of pods that is not complete."""
        names = []
        for host in [Endpoint.parse(self._hosts[rank]).host for rank in ranks if rank < len(self._hosts)]:
            try:
                call_within(_LOOK_UP, lambda host=host: look_up(host))  # type: ignore[misc]
            except (OSError, Overdue):
                names.append(host)
        return f"; no address is known of {', '.join(names)}" if names else ""

    def _lost(self) -> dict[int, str]:
        """Return how ranks ended that never came: a rank that came is a member, and its death is noticed as such."""
        here = self._rendezvous.reached("here")
        return {rank: how for rank, how in self._failed().items() if rank not in here}

    def _newcomers_donors(self) -> list[int]:
        """Ask for admission; return the ranks to ask for the state: all members."""
        heard = self._listener
        self._driver.post(events.Join(self._contacts))
        if not self._rendezvous.wait(lambda: heard.members_found is not None or bool(heard.refusal), self._timeout):
            asked = ", ".join(record.endpoint for record in self._contacts)
            raise StartError(
                f"rank {self._rank}: nobody let it in within {self._timeout:g} s. Asked: {asked}. "
                "If the swarm is just starting, try again: a peer lets others in once its script has attached the "
                "model. Otherwise: do they run, can they reach this peer, and is the key one that they let in?"
            )
        heard.check()
        return [rank for rank in heard.members_found or () if rank != self._rank]

    def _adopt(self, donors: list[int]) -> None:
        """Take the state over from the donors."""
        heard = self._listener
        self._driver.post(events.Adopt(donors))
        # A large model takes its time; what counts is that pieces keep coming.
        while not heard.adopted:
            moved = self._rendezvous.wait(self._progress(), self._timeout)
            heard.check()
            if not moved:
                raise StartError(
                    f"rank {self._rank}: no state came from ranks {donors} within {self._timeout:g} s. "
                    "If the swarm is just starting, try again: it has none before its peers have met. "
                    "Otherwise: are they still there?"
                )
        # From now on this peer exchanges when the others do, as far as turns tell.
        self._driver.advance(self._policy.step_of(round(max(heard.turns) / self._share)))

    def _progress(self) -> Callable[[], bool]:
        """Return a function that says whether a piece of the state has come since."""
        lacking = self._driver.status().lacking
        heard = self._listener
        return lambda: bool(heard.adopted or heard.refusal) or self._driver.status().lacking != lacking
