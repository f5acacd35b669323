"""How peers find each other: lists of hosts, and the launcher's two descriptors."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Iterator

import pytest
from swarms import LONGEST, more_than, nothing_left

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.net.routes import route_to
from gossip.net.zmq_transport import new_keys
from peers.session.cards import Card, Channel, FixedTable, RendezvousError

HERE = Endpoint("127.0.0.1", 5)


def test_a_card_survives_its_encoding() -> None:
    for card in (Card(3, HERE), Card(0, Endpoint("::1", 7), new_keys().public)):
        assert Card.decode(json.loads(json.dumps(card.encode()))) == card


@pytest.mark.parametrize(
    "fields",
    [None, 3, [], [1, "a:1"], ["x", "a:1", None], [1, "a", None], [1, 5, None], [1, "a:1", 5], [1, "a:1", "short"]],
    ids=str,
)
def test_what_is_no_card_is_refused(fields: object) -> None:
    with pytest.raises(RendezvousError, match="is not a card"):
        Card.decode(fields)


def test_a_card_with_half_a_key_is_refused() -> None:
    with pytest.raises(SettingsError, match="rank 2: its key of 39 bytes is not a CURVE key"):
        Card(2, HERE, b"0" * 39)


def test_a_list_of_hosts_is_all_cards_but_for_the_own() -> None:
    keys = [new_keys().public.decode() for _ in range(2)]
    table = FixedTable(("127.0.0.1:10", "127.0.0.1:11"), tuple(keys))
    own = Card(1, Endpoint("127.0.0.1", 99), keys[1].encode())
    assert table.exchange(own) == {0: Card(0, Endpoint("127.0.0.1", 10), keys[0].encode()), 1: own}
    with pytest.raises(SettingsError, match="hosts has 2 entries and public_keys has 1"):
        FixedTable(("a:1", "b:2"), (keys[0],))


class Launcher:
    """The other end of a channel."""

    def __init__(self) -> None:
        self._peer_reads, self._write = os.pipe()
        self._read, self._peer_writes = os.pipe()
        self.channel = Channel(f"{self._peer_reads},{self._peer_writes}")

    def say(self, text: str) -> None:
        os.write(self._write, text.encode() + b"\n")

    def hear(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in os.read(self._read, 1 << 16).splitlines()]

    def go(self) -> None:
        for end in ("_write", "_read"):
            if getattr(self, end) >= 0:
                os.close(getattr(self, end))
                setattr(self, end, -1)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    before = nothing_left()
    found = Launcher()
    yield found
    found.channel.close()
    found.go()
    assert more_than(before) == (set(), {})


def test_the_launcher_passes_cards_and_settings(launcher: Launcher) -> None:
    launcher.say('{"setup": {"rank": 1}}')
    assert launcher.channel.read() == {"setup": {"rank": 1}}
    cards = [Card(0, HERE), Card(1, HERE._replace(port=6))]
    launcher.say(json.dumps({"cards": [card.encode() for card in cards]}))
    assert launcher.channel.exchange(cards[1]) == {0: cards[0], 1: cards[1]}
    assert launcher.hear() == [{"card": [1, "127.0.0.1:6", None]}]


def test_a_launcher_that_is_gone_stops_the_start_and_nothing_else(launcher: Launcher) -> None:
    assert launcher.channel.send(status={"step": 1})
    launcher.go()
    assert not launcher.channel.send(status={"step": 2})
    with pytest.raises(RendezvousError, match="the launcher ended before"):
        launcher.channel.read()


def test_a_launcher_that_sleeps_holds_nobody_up(launcher: Launcher) -> None:
    line = "x" * 1000
    for _ in range(2000):
        if not launcher.channel.send(text=line):
            break
    else:
        pytest.fail("the pipe never was full")
    assert all(message == {"text": line} for message in launcher.hear()), "no line is torn"


def test_a_last_word_waits_for_a_launcher_that_is_behind(launcher: Launcher) -> None:
    for size in (1000, 1):
        while launcher.channel.send(text="x" * size):
            pass
    assert not launcher.channel.send(within=0.01, ended="finished")
    heard: list[dict[str, object]] = []
    reader = threading.Timer(0.05, lambda: heard.extend(launcher.hear()))
    reader.start()
    assert launcher.channel.send(within=LONGEST, ended="finished")
    reader.join()
    assert (heard + launcher.hear())[-1] == {"ended": "finished"}


def test_a_line_that_could_be_torn_is_refused(launcher: Launcher) -> None:
    with pytest.raises(ValueError, match="could be torn"):
        launcher.channel.send(text="x" * select.PIPE_BUF)


@pytest.mark.parametrize("text", ["", "3", "a,b", "1,2,3", "987,988"])
def test_descriptors_that_are_none_are_named(text: str) -> None:
    with pytest.raises(SettingsError, match=f"GOSSIP_CHANNEL='{text}' does not name two open file descriptors"):
        Channel(text)


def test_the_way_to_a_host_leaves_from_an_address_of_ours() -> None:
    assert route_to("127.0.0.1") == "127.0.0.1"
    assert route_to("localhost") in ("127.0.0.1", "::1")
