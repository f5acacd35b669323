"""How peers find each other in a store, and how soon each thing that can be wrong with it ends the start."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from swarms import LONGEST_PROCESS, clean_environment, nothing_left, reserved_ports, together

import peers
from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from peers.session import store_table
from peers.session.bounded_call import call_within
from peers.session.cards import Card, RendezvousError
from peers.session.store_table import StoreTable

SCRIPT = Path(__file__).parents[2] / "support" / "store_script.py"
HERE = Endpoint("127.0.0.1", 5)
#: Seconds beyond a time limit after which something hangs, however busy the machine is.
STALL = 30.0


@pytest.fixture(autouse=True)
def _serve_no_longer() -> Iterator[None]:
    yield
    store_table._served.clear()


def place(port: int, host: str = "127.0.0.1") -> dict[str, str]:
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port)}


def card(rank: int, port: int = 100) -> Card:
    return Card(rank, HERE._replace(port=port + rank))


def meet(rank: int, ranks: int, port: int, timeout: float = 60.0, first: int = 100) -> dict[int, Card]:
    return StoreTable(rank, ranks, place(port), timeout).exchange(card(rank, first))


def test_the_store_gives_everybody_all_cards_each_time() -> None:
    with reserved_ports(1) as (port,):
        meet_all(port, 0)
        threads, files = nothing_left()  # the first one made what torch keeps, and the store, which is kept too
        for attempt in range(1, 5):
            meet_all(port, attempt)
        deadline = time.monotonic() + STALL
        while not (nothing_left()[0] <= threads and len(nothing_left()[1]) <= len(files)):
            # Threads end, and the store closes connections, a little later than an exchange returns.
            assert time.monotonic() < deadline
            time.sleep(0.01)


def meet_all(port: int, attempt: int) -> None:
    """Let four ranks join once more: at other places than the last time."""
    first = 1000 * (attempt + 1)
    for found in together([lambda rank=rank: meet(rank, 4, port, first=first) for rank in range(4)]):
        assert found == {rank: card(rank, first) for rank in range(4)}


def test_a_process_group_may_be_there_before_or_come_after() -> None:
    actions = ["group, then join", "join, then group", "join twice"]
    with reserved_ports(1) as (port,):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "3", str(port), *actions],
            capture_output=True,
            text=True,
            timeout=LONGEST_PROCESS,
            env=clean_environment(),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    views = [[rank, 3, [0, 1, 2]] for rank in range(3)]
    expected = [[action, rank, [views[rank], 6.0]] for action in actions[:2] for rank in range(3)]
    expected += [[actions[2], rank, [views[rank]] * 2] for rank in range(3)]
    assert sorted(map(json.loads, done.stdout.splitlines())) == sorted(expected)


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({}, "MASTER_ADDR and MASTER_PORT must be set for 2 peers to find each other"),
        ({"MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT must be set"),
        ({"MASTER_ADDR": "", "MASTER_PORT": "5"}, "MASTER_ADDR must be set"),
        (place(0), "MASTER_PORT='0' in the environment must be a port from 1 to 65535"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "http"}, "MASTER_PORT='http' in the environment must be a port"),
    ],
)
def test_a_store_without_a_place_is_refused(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        StoreTable(0, 2, environment, 1.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_host_that_does_not_resolve_is_named(rank: int) -> None:
    environment = {"RANK": str(rank), "WORLD_SIZE": "2", **place(5, "no-such-host.invalid")}
    with pytest.raises(RendezvousError, match=r"MASTER_ADDR='no-such-host\.invalid' cannot be reached: .*; set it to"):
        peers.join(environment, start_timeout=20.0)


def staged(table: StoreTable, act: Callable[[], None], *, hurry: bool = False) -> StoreTable:
    """Let something happen once a rank has laid its card down; it waits no longer for the others if it is to hurry."""
    wait = table._wait

    def acting(look: Callable[[], object], deadline: float) -> object:
        act()
        return wait(look, 0.0 if hurry else deadline)

    table._wait = acting  # type: ignore[method-assign, assignment]
    return table


def test_who_does_not_come_is_named_to_all_who_came() -> None:
    """Two ranks come where there are to be four: the others failed, or WORLD_SIZE is wrong."""
    both_came, both_looked = threading.Barrier(2), threading.Barrier(2)

    def come(rank: int, port: int) -> dict[int, Card]:
        table = staged(StoreTable(rank, 4, place(port), 60.0), lambda: both_came.wait(STALL) and None, hurry=True)
        missing = table._missing

        def looked(*arguments: object) -> RendezvousError:
            found = missing(*arguments)  # type: ignore[arg-type]
            both_looked.wait(STALL)
            return found

        table._missing = looked  # type: ignore[method-assign]
        return table.exchange(card(rank))

    with reserved_ports(1) as (port,):
        found = together([lambda rank=rank: come(rank, port) for rank in (0, 2)])
    for error in found:
        assert isinstance(error, RendezvousError)
        assert f"ranks 1, 3 of 4 peers did not come to the store at 127.0.0.1:{port} within 60 s" in str(error)


def test_ranks_that_expect_another_number_of_peers_are_told() -> None:
    came = threading.Event()

    def zero(port: int) -> dict[int, Card]:
        return staged(StoreTable(0, 3, place(port), 2.0), came.set).exchange(card(0))

    def one(port: int) -> dict[int, Card]:
        assert came.wait(STALL)
        return meet(1, 2, port)

    with reserved_ports(1) as (port,):
        missed, mistaken = together([lambda: zero(port), lambda: one(port)])
    assert "rank 0 was started for 3 peers, and rank 1 for 2: WORLD_SIZE must be the same for all" in str(mistaken)
    assert "of 3 peers did not come" in str(missed)


def test_a_rank_that_comes_twice_is_told_and_a_restarted_one_takes_its_place() -> None:
    laid, told = threading.Event(), threading.Event()

    def first(port: int) -> dict[int, Card]:
        try:
            return staged(StoreTable(1, 3, place(port), 60.0), laid.set).exchange(card(1))
        finally:
            told.set()

    def after(event: threading.Event, rank: int, port: int, first: int) -> dict[int, Card]:
        assert event.wait(STALL)
        return meet(rank, 3, port, first=first)

    with reserved_ports(1) as (port,):
        zero, one, again, two = together(
            [
                lambda: meet(0, 3, port),
                lambda: first(port),
                lambda: after(laid, 1, port, 500),
                lambda: after(told, 2, port, 100),
            ]
        )
    assert isinstance(one, RendezvousError)
    assert f"another process came to the store at 127.0.0.1:{port} as rank 1" in str(one)
    for found in (zero, again, two):
        assert found == {0: card(0), 1: card(1, 500), 2: card(2)}


# What is at the port and is no store


class Hello(http.server.BaseHTTPRequestHandler):
    """A web server."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def foreign(kind: str, on_visit: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Serve something that is no store, and yield its port; the first visitor is noted."""
    if kind == "a web server":
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield server.server_port
            server.shutdown()
            thread.join()
        return
    visitors: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    visitor, _ = listener.accept()
                except OSError:
                    return
                if kind == "closes at once":
                    visitor.close()
                else:
                    visitors.append(visitor)
                on_visit()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for visitor in visitors:
        visitor.close()


@pytest.mark.parametrize("kind", ["a web server", "says nothing", "closes at once"])
def test_what_is_no_store_ends_the_start_in_time_and_by_name(kind: str) -> None:
    with foreign(kind) as port:
        began = time.monotonic()
        with pytest.raises(RendezvousError, match=r"does another program have the port") as caught:
            meet(1, 2, port, 1.0)
        assert time.monotonic() - began < 1.0 + STALL
        assert f"the store at 127.0.0.1:{port} did not answer rank 1 within 1 s" in str(caught.value)
        with pytest.raises(RendezvousError, match=f"rank 0 cannot serve the store at 127.0.0.1:{port}.*in use"):
            meet(0, 2, port, 1.0)


def test_a_place_at_which_nobody_is_is_named() -> None:
    with reserved_ports(1) as (port,), pytest.raises(RendezvousError) as caught:
        meet(1, 2, port, 0.5)
    assert "Connection refused; does rank 0 run there, and can this machine reach it?" in str(caught.value)


def test_ctrl_c_is_heard_while_a_store_says_nothing() -> None:
    main = threading.main_thread().ident or 0
    with foreign("says nothing", on_visit=lambda: signal.pthread_kill(main, signal.SIGINT)) as port:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            meet(1, 2, port, 100.0)
        assert time.monotonic() - began < STALL


def test_ctrl_c_is_heard_while_others_are_missing_and_the_script_may_try_again() -> None:
    main = threading.main_thread().ident or 0
    with reserved_ports(1) as (port,):
        table = staged(StoreTable(0, 2, place(port), 100.0), lambda: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            table.exchange(card(0))
        for found in together([lambda rank=rank: meet(rank, 2, port, first=500) for rank in range(2)]):
            assert found == {0: card(0, 500), 1: card(1, 500)}


def test_a_bounded_call_returns_and_raises_as_the_call_does() -> None:
    assert call_within(STALL, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        call_within(STALL, lambda: 1 // 0)
