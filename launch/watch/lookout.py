"""A look at a swarm through the first of its peers that answers."""

from __future__ import annotations

import socket
from typing import Any

from gossip.endpoint import Endpoint
from gossip.errors import GossipError
from gossip.net.observer import Looker, NothingShown
from gossip.net.routes import route_to
from launch.swarm.invitation import Invitation
from launch.user_errors import CommandError
from launch.watch.picture import GONE, read_picture

__all__ = ["Lookout", "NobodyAnswers"]

#: Peers that are asked before it is said that nobody answers.
_TRIES = 8
#: Seconds after which it is asked whether there is anybody at all at a place.
_GLANCE = 0.5

#: What to do where every connection was refused.
_NOBODY_LISTENS = (
    ". Nobody listens there: if the run has ended, gossip report and its directory show how it went; if it has not, "
    "name another of its peers, or its directory"
)


class NobodyAnswers(CommandError):
    """None of the peers that are known answers."""


class Lookout:
    """Looks again and again; goes on to another peer when the one it looked through is gone.

    Others are those of the invitation, and those whom the last picture showed.
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
        """Through whom it looks."""
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
        raise NobodyAnswers(told)

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
            # Nothing is told to the peer that it would not tell anybody, since the swarm itself does without keys.
            insecure=self._keys is None,
        )

    def _learn(self, picture: dict[str, Any]) -> None:
        """Know, from now on, the peers that were shown; the one that showed them stays the first."""
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
    """Raise an error at once if nobody listens there, where ZeroMQ would go on trying."""
    try:
        socket.create_connection(peer, timeout).close()
    except OSError as error:
        raise NothingShown(f"{peer} cannot be reached: {error.strerror or error}") from error
