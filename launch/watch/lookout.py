"""A look at a swarm through the first of its peers that answers."""

from __future__ import annotations

import socket
from typing import Any

from gossip.endpoint import Endpoint
from gossip.errors import GossipError
from gossip.net.observer import Looker, NothingShown
from gossip.net.routes import route_to
from launch.user_errors import CommandError
from launch.watch.invitation import Invitation
from launch.watch.picture import GONE, read_picture

__all__ = ["Lookout", "NobodyAnswers"]

#: Peers that are asked before the look fails.
_TRIES = 8
#: Seconds without an answer after which a connection is tried, to see whether any process listens.
_GLANCE = 0.5

#: What to do when every connection was refused.
_NOBODY_LISTENS = (
    ". No process listens there. If the run has ended, see its directory with gossip report; if it is still running, "
    "name another of its peers, or its run directory"
)


class NobodyAnswers(CommandError):
    """None of the peers that are known answers."""


class Lookout:
    """Asks one peer after another for its picture of the swarm; moves on when a peer no longer answers.

    The peers are those of the invitation, and those in the last picture.
    """

    def __init__(self, invitation: Invitation) -> None:
        self._keys = invitation.keys
        #: The public key of each peer, by host:port; the first is the one to look through.
        self._places = dict(invitation.members)
        self._looker: Looker | None = None

    def __enter__(self) -> Lookout:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def place(self) -> str:
        """The host:port of the peer that is asked."""
        return next(iter(self._places))

    def look(self, timeout: float = 5.0) -> dict[str, Any]:
        """Return the picture that a peer has of the swarm, as `read_picture` does; raise if none answers.

        Args:
            timeout: seconds that each peer has for its answer, if there is a peer.
        """
        failures: list[Exception] = []
        for place in list(self._places)[:_TRIES]:
            try:
                picture = read_picture(self._shown(place, timeout))
            except (GossipError, OSError, ValueError) as error:
                failures.append(error)
                self._close()
                self._places[place] = self._places.pop(place)  # to the end
            else:
                self._learn(picture)
                return picture
        told = "; ".join(map(str, failures))
        if all(isinstance(error.__cause__, ConnectionRefusedError) for error in failures):
            told += _NOBODY_LISTENS
        raise NobodyAnswers(f"no peer answered: {told}")

    def _shown(self, place: str, timeout: float) -> bytes:
        peer = Endpoint.parse(place)
        if self._looker is None:
            _knock(peer, timeout)
            self._looker = self._opened(peer, self._places[place])
        try:
            return self._looker.look(min(_GLANCE, timeout))
        except NothingShown:
            if timeout <= _GLANCE:
                raise
        _knock(peer, timeout)
        return self._looker.look(timeout - _GLANCE)

    def _opened(self, peer: Endpoint, key: str) -> Looker:
        return Looker(
            peer,
            bind=Endpoint(route_to(peer.host), 0),
            key=key.encode() or None,
            keys=self._keys,
            # A swarm without keys shows its picture to any process, so nothing secret is exchanged.
            insecure=self._keys is None,
        )

    def _learn(self, picture: dict[str, Any]) -> None:
        """Remember the peers in the picture; the peer that sent it stays the first."""
        first = self.place
        shown = {
            member["endpoint"]: member["key"]
            for member in picture["members"]
            if member["membership"] not in GONE and bool(member["key"]) == (self._keys is not None)
        }
        known = {place: key for place, key in self._places.items() if place not in shown}
        self._places = {first: self._places[first], **{k: v for k, v in {**shown, **known}.items() if k != first}}

    def _close(self) -> None:
        if self._looker is not None:
            self._looker.close()
            self._looker = None


def _knock(peer: Endpoint, timeout: float) -> None:
    """Raise an error at once if no process listens there; ZeroMQ would keep trying."""
    try:
        socket.create_connection(peer, timeout).close()
    except OSError as error:
        raise NothingShown(f"{peer} cannot be reached: {error.strerror or error}") from error
