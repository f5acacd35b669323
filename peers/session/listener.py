"""What the gossip thread reports to a peer: written down, shown, or kept for the trainer's thread to find.

The listener runs in the gossip thread. It is the only part of a peer that reads the core, which belongs to that thread:
what an effect is about is already true of the core and not yet of the published status.
"""

from __future__ import annotations

from collections.abc import Callable

from gossip import events
from gossip.core.core import Core
from peers.session.bulletin import Bulletin
from peers.session.chronicle import Chronicle
from peers.session.rendezvous import RankTaken, StartError

__all__ = ["Listener"]


class Listener:
    """Takes in the effects of one core. What it keeps may be read in any thread."""

    def __init__(
        self,
        core: Core,
        chronicle: Chronicle,
        bulletin: Bulletin,
        post: Callable[[events.Event], None],
        page: Callable[[], bytes],
        sends: str,
    ) -> None:
        """Prepare.

        Args:
            core: whose effects they are.
            chronicle: counts and records what happens.
            bulletin: takes in the news of neighbours.
            post: raises an event in the core.
            page: returns what is shown to observers.
            sends: how parcels go out at first.
        """
        self._core = core
        self._chronicle = chronicle
        self._bulletin = bulletin
        self._post = post
        self._page = page
        #: How parcels go out.
        self.sends = sends
        #: The members that a newcomer found when it was let in; None before that.
        self.members_found: tuple[int, ...] | None = None
        #: Whether this peer has adopted a state, and the turns of that state.
        self.adopted = False
        self.turns: tuple[int, ...] = ()
        #: Why this peer cannot go on; empty while it can.
        self.refusal = ""
        #: Returns the whole state of the replica in a round, or None, for algorithms that are collective.
        self.state: Callable[[int], bytes | None] | None = None
        self._adopted: bytes | None = None
        self._expelled = False

    def hear(self, effect: events.Effect) -> None:
        """Take in an effect of the core."""
        self._chronicle.saw(effect, len(self._core.view.members))
        match effect:
            case events.Heard(body=body):
                self._bulletin.hear(body)
            case events.Welcomed():
                self.members_found = tuple(self._core.view.members)
                self._bulletin.wake()
            case events.Expelled(reason):
                self.refusal, self._expelled = reason, True
                self._bulletin.wake()
            case events.Looked(endpoint, key):
                self._post(events.Show(endpoint, key, self._page()))
            case events.Compressing(choice):
                self.sends = str(choice)
            case events.StateWanted(number) if self.state is not None:
                state = self.state(number)
                if state is not None:
                    self._post(events.Offer(number, state))
            case events.Synchronized(state=state) if state is not None:
                self._adopted = state
            case events.Stranded(reason):
                self.refusal = reason
            case events.Adopted():
                self.turns = tuple(self._core.turns)
                self.adopted = True
                self._bulletin.wake()

    def take_adopted(self) -> bytes | None:
        """Return the state that this peer has to take over, once; None if there is none."""
        adopted, self._adopted = self._adopted, None
        return adopted

    def check(self) -> None:
        """Raise an error if this peer cannot go on."""
        if self._expelled:
            raise RankTaken(f"this peer has to stop: {self.refusal}")
        if self.refusal:
            raise StartError(f"this peer has to stop: {self.refusal}")
