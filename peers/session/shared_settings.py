"""The settings in which all peers of a swarm agree: shown to newcomers, who take them over, and compared by everybody.

The launcher and `gossip join` give every peer the same settings. A script can override them, and peers that are started
by a list of hosts or by torchrun get theirs from nowhere else. So each peer says what it has before it trains.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgpack

from peers.setup import Setup

__all__ = ["SettingsAgreement", "shared"]

#: What every peer must have alike. A difference would not fail by itself: the peers would average wrongly, or wait.
_COMPARED = ("world_size", "algorithm", "topology", "preset", "seed", "share", "compress")
#: What newcomers are told besides. Frames of another run are rejected anyway.
_TOLD = ("run", "insecure", "join_key", "watch_key", "link", "step_time", "parameters")
#: The most variants that are kept: two are enough to refuse.
_VARIANTS = 4
#: The most bytes of a variant, and the bytes of its digest.
_LIMIT, _DIGEST = 1 << 10, 8


def shared(setup: Setup) -> dict[str, Any]:
    """Return the settings that a newcomer has to take over."""
    return {name: getattr(setup, name) for name in (*_COMPARED, *_TOLD)}


class SettingsAgreement:
    """A topic of the bulletin: each variant of the settings, and the lowest rank that has it.

    Variants are passed on, so that every peer hears of two that differ, whoever its neighbours are. A swarm that
    trains passes on no others: a newcomer whose settings differ refuses to train, and nobody else does. News are sent
    with every step, so a digest stands for a variant until somebody has another one.
    """

    def __init__(self, setup: Setup) -> None:
        self._rank = setup.rank
        self._settings = {name: getattr(setup, name) for name in _COMPARED}
        text = json.dumps(self._settings)
        self._own = _digest(text)
        #: The lowest rank that has a variant, and its text where that is known, both by its digest.
        self._ranks = {self._own: setup.rank}
        self._texts = {self._own: text}
        #: Whether the texts are told, because somebody has another variant.
        self._tells = self._closed = False
        self._newcomer = setup.incarnation > 0

    def close(self) -> None:
        """Take in no more variants: all peers of the start have been heard."""
        self._closed = True

    def encode(self) -> bytes:
        """Return all variants that are known."""
        texts = self._texts if self._tells else {}
        packed: bytes = msgpack.packb({one: [rank, texts.get(one, "")] for one, rank in self._ranks.items()})
        return packed

    def merge(self, data: bytes) -> bool:
        """Take in the variants that another knows; return whether there is something new to tell."""
        heard = _unpacked(data)
        before = self.encode()
        self._tells = self._tells or bool(heard.keys() - {self._own})
        for digest, (rank, text) in heard.items():
            if digest in self._ranks or (not self._closed and len(self._ranks) < _VARIANTS):
                self._ranks[digest] = min(rank, self._ranks.get(digest, rank))
                if text:
                    self._texts[digest] = text
        self._closed = self._closed or self._newcomer  # a newcomer has heard what the swarm has
        return self.encode() != before

    @property
    def conflict(self) -> str:
        """Which setting differs and where; empty while all that was heard agrees."""
        for digest, rank in self._ranks.items():
            if digest != self._own:
                return self._difference(rank, self._texts.get(digest, ""))
        return ""

    def _difference(self, rank: int, text: str) -> str:
        if not text:
            return f"rank {self._rank} has other settings ({', '.join(_COMPARED)}) than rank {rank}"
        other = json.loads(text)
        name = next((one for one in _COMPARED if self._settings[one] != other.get(one)), "settings")
        return (
            f"rank {self._rank} has {name}={self._settings.get(name)!r}, and rank {rank} has {name}={other.get(name)!r}"
        )


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()


def _unpacked(data: bytes) -> dict[bytes, tuple[int, str]]:
    """Return what was heard: the rank and the text of each variant, by its digest."""
    try:
        heard = msgpack.unpackb(data, max_array_len=2, max_ext_len=0, max_str_len=_LIMIT, max_map_len=_VARIANTS)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ValueError(f"not msgpack: {error!r:.80}") from None
    if not isinstance(heard, dict):
        raise ValueError("settings must be a map of digests")
    for digest, variant in heard.items():
        if not (isinstance(digest, bytes) and len(digest) == _DIGEST):
            raise ValueError("the digest of settings has another form")
        if not (isinstance(variant, list) and [type(one) for one in variant] == [int, str] and variant[0] >= 0):
            raise ValueError("a variant of the settings must be a rank and a text")
        if text := variant[1]:
            if _digest(text) != digest:
                raise ValueError("a variant of the settings has another digest")
            if not isinstance(json.loads(text), dict):  # its errors are ValueErrors
                raise ValueError("a variant of the settings is no map")
    return {digest: (rank, text) for digest, (rank, text) in heard.items()}
