"""The settings in which all peers of a swarm agree: shown to newcomers, who take them over, and compared by everybody.

The launcher and `gossip join` give every peer the same settings. A script can override them, and peers that are started
by a list of hosts or by torchrun get theirs from nowhere else. So each peer says what it has before it trains.
"""

from __future__ import annotations

import json
from typing import Any

import msgpack

from peers.setup import Setup

__all__ = ["SettingsAgreement", "shared"]

#: What every peer must have alike. A difference would not fail by itself: the peers would average wrongly, or wait.
_COMPARED = ("world_size", "algorithm", "topology", "preset", "seed", "share", "compress")
#: What newcomers are told besides. Frames of another run are rejected anyway.
_TOLD = ("run", "insecure", "join_key", "watch_key")
#: The most variants that are kept: two are enough to refuse.
_VARIANTS = 4
#: The most bytes of a variant.
_LIMIT = 1 << 10


def shared(setup: Setup) -> dict[str, Any]:
    """Return the settings that a newcomer has to take over."""
    return {name: getattr(setup, name) for name in (*_COMPARED, *_TOLD)}


class SettingsAgreement:
    """A topic of the bulletin: each variant of the settings, and the lowest rank that has it.

    Variants are passed on, so that every peer hears of two that differ, whoever its neighbours are. A swarm that
    trains passes on no others: a newcomer whose settings differ refuses to train, and nobody else does.
    """

    def __init__(self, setup: Setup) -> None:
        self._rank = setup.rank
        self._own = {name: getattr(setup, name) for name in _COMPARED}
        self._variants = {json.dumps(self._own): setup.rank}
        self._closed = False
        self._newcomer = setup.incarnation > 0
        #: Which setting differs and where; empty while all that was heard agrees.
        self.conflict = ""

    def close(self) -> None:
        """Take in no more variants: all peers of the start have been heard."""
        self._closed = True

    def encode(self) -> bytes:
        """Return all variants that are known."""
        packed: bytes = msgpack.packb(self._variants)
        return packed

    def merge(self, data: bytes) -> bool:
        """Take in the variants that another knows; return whether some of them were new."""
        try:
            heard = msgpack.unpackb(data, max_array_len=0, max_ext_len=0, max_str_len=_LIMIT)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise ValueError(f"not msgpack: {error!r:.80}") from None
        if not isinstance(heard, dict) or not all(type(rank) is int and rank >= 0 for rank in heard.values()):
            raise ValueError("settings must be a map of texts to ranks")
        settings = {text: _parsed(text) for text in heard}
        if self._closed:
            return False
        before = dict(self._variants)
        for text, rank in heard.items():
            if text in self._variants or len(self._variants) < _VARIANTS:
                self._variants[text] = min(rank, self._variants.get(text, rank))
            if settings[text] != self._own and not self.conflict:
                self.conflict = self._difference(rank, settings[text])
        self._closed = self._newcomer  # the swarm has said what it has
        return self._variants != before

    def _difference(self, rank: int, other: dict[str, Any]) -> str:
        name = next((one for one in _COMPARED if self._own[one] != other.get(one)), "settings")
        return (
            f"rank {self._rank} has {name}={self._own.get(name)!r}, and rank {rank} has {name}={other.get(name)!r}: "
            "all peers of a swarm need the same. Start them with the same arguments of peers.join"
        )


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError("a variant of the settings is no text")
    settings = json.loads(text)  # its errors are ValueErrors
    if not isinstance(settings, dict):
        raise ValueError("a variant of the settings is no map")
    return settings
