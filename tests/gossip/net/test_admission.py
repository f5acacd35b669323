"""Who gets in, and what can be read on the way: CURVE with an allow-list, through real sockets."""

from __future__ import annotations

import selectors
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engines import LOOPBACK, PATIENCE

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.keys import KeyPair
from gossip.net.key_files import read_keys, write_keys
from gossip.net.zmq_transport import ZmqTransport, new_keys
from launch import cli

SECRET = b"these parameters are nobody else's business"


def exchange(sender: ZmqTransport, receiver: ZmqTransport, frames: list[bytes], seconds: float) -> list[bytes] | None:
    """Try to get a message through for a while; both sides stay awake."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sender.send(0, frames)
        sender.wait(0.005)
        receiver.wait(0.005)
        got = receiver.receive()
        if got is not None:
            return [bytes(frame) for frame in got]
    return None


@contextmanager
def pair(admitted: bool, server_key: bytes | None = None) -> Iterator[tuple[ZmqTransport, ZmqTransport, KeyPair]]:
    """A receiver and a sender with keys of their own, the sender admitted or not."""
    mine, yours = new_keys(), new_keys()
    receiver = ZmqTransport(LOOPBACK, keys=mine, admitted=[yours.public] if admitted else [])
    sender = ZmqTransport(LOOPBACK, keys=yours)
    sender.connect(0, receiver.endpoint, server_key or mine.public)
    try:
        yield sender, receiver, yours
    finally:
        sender.close()
        receiver.close()


def test_an_admitted_key_gets_in() -> None:
    with pair(admitted=True) as (sender, receiver, _):
        assert exchange(sender, receiver, [b"hello"], PATIENCE) == [b"hello"]


def test_a_key_that_is_not_on_the_list_gets_nothing_in() -> None:
    with pair(admitted=False) as (sender, receiver, _):
        assert exchange(sender, receiver, [b"hello"], 1.0) is None


def test_who_takes_somebody_else_for_the_receiver_sends_it_nothing() -> None:
    with pair(admitted=True, server_key=new_keys().public) as (sender, receiver, _):
        assert exchange(sender, receiver, [b"hello"], 1.0) is None


def test_without_any_key_nothing_gets_in() -> None:
    receiver, sender = ZmqTransport(LOOPBACK, keys=new_keys()), ZmqTransport(LOOPBACK)
    try:
        sender.connect(0, receiver.endpoint)
        assert exchange(sender, receiver, [b"hello"], 1.0) is None
    finally:
        sender.close()
        receiver.close()


def test_a_key_can_be_admitted_while_running() -> None:
    with pair(admitted=False) as (sender, receiver, keys):
        assert exchange(sender, receiver, [b"hello"], 0.5) is None
        receiver.admit(keys.public)
        assert exchange(sender, receiver, [b"hello"], PATIENCE) == [b"hello"]


def test_a_key_that_is_revoked_is_out_at_once_though_its_connection_stands() -> None:
    with pair(admitted=True) as (sender, receiver, keys):
        assert exchange(sender, receiver, [b"hello"], PATIENCE) == [b"hello"]
        receiver.revoke(keys.public)
        assert exchange(sender, receiver, [b"again"], 1.0) is None
        receiver.admit(keys.public)
        assert exchange(sender, receiver, [b"once more"], PATIENCE) is not None


def test_all_have_keys_or_none() -> None:
    with pair(admitted=True) as (sender, receiver, _), pytest.raises(SettingsError, match="either all"):
        sender.connect(5, receiver.endpoint, None)


class Wiretap:
    """A TCP relay that keeps every byte it passes on."""

    def __init__(self, target: Endpoint) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._server.getsockname()[1])
        self.heard = bytearray()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        other: dict[socket.socket, socket.socket] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in selector.select(0.02):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is self._server:
                        near, _ = self._server.accept()
                        far = socket.create_connection((self._target.host, self._target.port))
                        other[near], other[far] = far, near
                        selector.register(near, selectors.EVENT_READ)
                        selector.register(far, selectors.EVENT_READ)
                        continue
                    data = one.recv(1 << 16)
                    self.heard += data
                    if data:
                        other[one].sendall(data)
                    else:
                        selector.unregister(one)
        for one in other:
            one.close()
        self._server.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("encrypted", [True, False])
def test_nothing_is_readable_on_the_wire(encrypted: bool) -> None:
    """The same capture in the clear does show the secret: the wiretap works."""
    mine, yours = (new_keys(), new_keys()) if encrypted else (None, None)
    receiver = ZmqTransport(LOOPBACK, keys=mine, admitted=[yours.public] if yours else [])
    sender = ZmqTransport(LOOPBACK, keys=yours)
    tap = Wiretap(receiver.endpoint)
    try:
        sender.connect(0, tap.endpoint, mine.public if mine else None)
        assert exchange(sender, receiver, [b"header", SECRET * 100], PATIENCE) == [b"header", SECRET * 100]
    finally:
        tap.close()
        sender.close()
        receiver.close()
    assert len(tap.heard) > len(SECRET) * 100
    assert (SECRET in tap.heard) is not encrypted


def test_keygen_writes_a_pair_that_only_its_owner_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "keys"
    assert cli.main(["keygen", str(directory)]) == 0
    keys = read_keys(directory)
    out = capsys.readouterr().out
    assert keys.public.decode() in out
    assert keys.secret.decode() not in out
    assert keys.secret.decode() not in repr(keys)
    assert stat.S_IMODE((directory / "secret.key").stat().st_mode) == 0o600
    assert cli.main(["keygen", str(directory)]) == 2, "a key is not overwritten"
    assert read_keys(directory) == keys


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    write_keys(tmp_path / "k", new_keys())
    (tmp_path / "k" / "secret.key").chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_keys(tmp_path / "k")


def test_missing_and_damaged_keys_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="gossip keygen"):
        read_keys(tmp_path)
    write_keys(tmp_path / "k", new_keys())
    (tmp_path / "k" / "public.key").write_text("short\n")
    with pytest.raises(SettingsError, match="public: not a CURVE key"):
        read_keys(tmp_path / "k")
    with pytest.raises(SettingsError, match="cannot write keys there"):
        write_keys(Path("/dev/null/keys"), new_keys())
