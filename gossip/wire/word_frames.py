"""Short bodies: news, rolls, looks and what they are answered with."""

from __future__ import annotations

from gossip.endpoint import Endpoint
from gossip.errors import Reason, SettingsError
from gossip.keys import valid_key
from gossip.wire.body import Arrival, Body, RunContext, Written
from gossip.wire.fields import count
from gossip.wire.limits import NEWS_LIMIT, SHOWN_LIMIT
from gossip.wire.messages import Look, News, Roll, Shown

__all__ = ["LOOK", "NEWS", "ROLL", "SHOWN"]


def _write_news(news: News, _: RunContext) -> Written:
    return memoryview(news.updates + news.body), (len(news.updates),), None


def _read_news(arrival: Arrival) -> News:
    words, (length,) = arrival.whole(NEWS_LIMIT), arrival.fields
    if length > len(words):
        raise arrival.rejected(Reason.TRUNCATED, f"the body has {len(words)} of {length} bytes of updates")
    return News(arrival.origin, arrival.destination, words[length:], words[:length])


def _write_body(message: Roll | Shown, _: RunContext) -> Written:
    return memoryview(message.body), (), None


def _read_roll(arrival: Arrival) -> Roll:
    return Roll(arrival.origin, arrival.destination, arrival.whole(NEWS_LIMIT))


def _read_shown(arrival: Arrival) -> Shown:
    return Shown(arrival.origin, arrival.destination, arrival.whole(SHOWN_LIMIT))


def _write_look(look: Look, _: RunContext) -> Written:
    return memoryview(f"{look.endpoint} {look.key}".encode()), (), None


def _read_look(arrival: Arrival) -> Look:
    words = arrival.whole(NEWS_LIMIT)
    try:
        endpoint, key = words.decode("ascii").split(" ")
        Endpoint.parse(endpoint)
    except (ValueError, SettingsError):
        detail = f"the body must be an endpoint, a space and a key or nothing, not {words!r:.80}"
        raise arrival.rejected(Reason.MALFORMED, detail) from None
    if key and not valid_key(key.encode()):
        raise arrival.rejected(Reason.MALFORMED, f"key must be 40 characters of Z85, not {key!r:.80}")
    return Look(arrival.origin, arrival.destination, endpoint, key)


_UPDATES = count("length of the updates")
NEWS = Body("the updates, then what is for the layers above", _write_news, _read_news, (_UPDATES,))
ROLL = Body("a body of `gossip.membership`", _write_body, _read_roll)
LOOK = Body("the endpoint, a space, and the key if there are keys", _write_look, _read_look)
SHOWN = Body("what is for the layers above", _write_body, _read_shown)
