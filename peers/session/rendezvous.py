"""Where a peer waits for others: each says how far it has come, and all check that they train the same model."""

from __future__ import annotations

from collections.abc import Callable

from gossip.net.driver import Driver
from peers.model.model_lines import ModelLines
from peers.model.replica import Replica
from peers.session.bulletin import Agreement, Bulletin, RollCall
from peers.session.cards import RendezvousError
from peers.session.shared_settings import SettingsAgreement
from peers.setup import Setup

__all__ = ["RankTaken", "Rendezvous", "StartError"]

#: Seconds after which a peer that waits looks whether the gossip thread still runs.
_GLANCE = 0.2
#: Glances for which a peer with another model goes on to say so, so that the others hear it as well.
_LAST_WORDS = 8


class StartError(RendezvousError):
    """The peers came together, but do not fit together."""


class RankTaken(StartError):
    """Another process has this peer's rank. `gossip join` knows this error by its name, and tries another rank."""


class Rendezvous:
    """The points at which this peer waits for others. For the trainer's thread."""

    def __init__(self, setup: Setup, driver: Driver, bulletin: Bulletin, replica: Replica) -> None:
        self._rank = rank = setup.rank
        self._settings = SettingsAgreement(setup)
        self._driver = driver
        self._bulletin = bulletin
        self._model = Agreement(replica.fingerprint, rank)
        self._lines = ModelLines(rank, replica.lines)
        #: How far each rank has come.
        self.roll = RollCall(rank, setup.life)

    def enter(self, has_state: bool) -> None:
        """Say that this peer is here, and whether it has a state to give."""
        self._bulletin.add("settings", self._settings)
        self._bulletin.add("model", self._model)
        # At once, so that nobody hears that this peer is here and not yet that it has a state.
        if has_state:
            self.roll.reach("state", self._rank)
        self.roll.reach("here", self._rank)
        self._bulletin.add("roll", self.roll)

    def reach(self, what: str, level: int = 1) -> None:
        """Say that this peer has come to a point."""
        self.roll.reach(what, self._rank, level)
        self._bulletin.publish()

    def here(self) -> set[int]:
        """Return the ranks that came and have not left since."""
        return self.reached("here") & self._driver.status().members.keys()

    def reached(self, what: str, level: int = 1) -> set[int]:
        """Return the ranks whose present life has come to a point, as far as this peer has heard."""
        return self.roll.ranks(what, level, self._driver.status().members)

    def wait(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Wait until news make the predicate true; return False if they do not within the timeout.

        Raises:
            StartError: another peer trains another model, or with other settings.
            DriverError: the gossip thread failed.
        """
        # In glances, so that a process that was suspended has lost one of them and not all of its time.
        left = timeout
        while not self._bulletin.wait_for(lambda: predicate() or self._conflicts(), min(left, _GLANCE)):
            self._driver.check()
            left -= _GLANCE
            if left <= 0:
                return False
        self.check_settings()
        if self._model.conflict is not None:
            self._bulletin.add("model-lines", self._lines)
            self._linger()
            raise StartError(self._lines.complaint(self._model.conflict))
        return True

    def check_settings(self) -> None:
        """Raise an error if another peer has other settings."""
        if self._settings.conflict:
            self._linger()
            raise StartError(
                f"{self._settings.conflict}: all peers of a swarm need the same. Start them with the same arguments of "
                "peers.join"
            )

    def settle(self) -> None:
        """Note that the peers of the start have compared their settings: from now on newcomers compare theirs."""
        self._settings.close()

    def _conflicts(self) -> bool:
        return bool(self._settings.conflict) or self._model.conflict is not None

    def _linger(self) -> None:
        for _ in range(_LAST_WORDS):
            self._bulletin.wait_for(lambda: False, _GLANCE)

    def lacking(self, what: str, level: int) -> set[int]:
        """Return the members that have not come to a point."""
        return set(self._driver.status().members) - self.reached(what, level)

    def wait_for_all(self, what: str, level: int, go_on: Callable[[set[int]], bool]) -> bool:
        """Come to a point and wait there until every member has; return whether that came about.

        Args:
            what: the point.
            level: how often it is come to.
            go_on: is called now and then with those who lack, and returns whether to wait on for them. It may raise.
        """
        self._driver.rest(merge=False)
        self.reach(what, level)
        try:
            while not self.wait(lambda: not self.lacking(what, level), _GLANCE):
                if not go_on(self.lacking(what, level)):
                    return False
            return True
        finally:
            self.spread()
            self._driver.resume()

    def spread(self) -> None:
        """Publish to the neighbours of several rounds: some wait for this peer's word, whatever it does next."""
        for _ in range(2 * len(self._driver.status().members).bit_length()):
            self._bulletin.publish()
