"""Where peers listen, how long they wait for a name, and whose keys they take."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from swarms import reserved_ports, together

import peers
from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.net.shared_secret import keys_of, read_secret, write_secret
from gossip.net.zmq_transport import new_keys
from launch import cli
from peers import meeting
from peers.meeting import card_table, with_known_keys
from peers.session.cards import Card, RendezvousError
from peers.setup import Setup


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    write_secret(tmp_path / "secret")
    return tmp_path / "secret"


def test_a_name_that_gets_its_address_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look_up(host: str) -> None:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(meeting, "look_up", look_up)
    monkeypatch.setattr(meeting, "_NAME_PAUSE", 0.0)
    setup = Setup().changed(hosts=["train-0.train:7000", "train-1.train:7000"], rank=1, start_timeout=60.0)
    _, settled = card_table(setup, None)
    assert asked == ["train-1.train"] * 3
    assert settled.bind == "train-1.train:7000"


def test_a_name_that_never_has_an_address_is_named() -> None:
    with pytest.raises(RendezvousError) as caught:
        peers.join({}, hosts=["a.invalid:7000", "b.invalid:7000"], rank=1, start_timeout=0.1, insecure=True)
    assert "b.invalid, which is rank 1 in hosts, has no address after 0.1 s: " in str(caught.value)
    assert "publishNotReadyAddresses" in str(caught.value)


def test_who_listens_everywhere_is_known_by_its_place_in_the_list() -> None:
    hosts = ["a.invalid:7000", "b.invalid:7000"]
    _, settled = card_table(Setup().changed(hosts=hosts, rank=1, bind="0.0.0.0:7000"), None)
    assert (settled.bind, settled.advertise) == ("0.0.0.0:7000", "b.invalid")
    _, settled = card_table(Setup().changed(hosts=hosts, rank=1, bind="0.0.0.0:7000", advertise="c"), None)
    assert settled.advertise == "c"


# Keys that follow from a secret


def test_the_keys_of_a_rank_are_the_same_everywhere_and_those_of_others_differ() -> None:
    pairs = [keys_of(bytes(32), "run", who) for who in (0, 1, "join.json", "watch.json")]
    pairs += [keys_of(bytes(32), "other", 0), keys_of(b"another" * 5, "run", 0)]
    assert len({pair.secret for pair in pairs}) == len({pair.public for pair in pairs}) == 6
    assert keys_of(bytes(32), "run", 0) == pairs[0]
    # Of another version it would be another swarm.
    assert pairs[0].public == b"+l<oG&0.e^NM#8@pBzb5uFKf%d6BeU!sr3g]T=dD"


def test_peers_with_the_same_secret_find_each_other_encrypted(secret: Path, tmp_path: Path) -> None:
    with reserved_ports(2) as ports:
        hosts = [f"127.0.0.1:{port}" for port in ports]

        def meet(rank: int) -> tuple[bool, list[str]]:
            run = str(tmp_path / "run")
            with peers.join({}, hosts=hosts, rank=rank, secret_file=str(secret), run_dir=run) as peer:
                keys = [card.key.decode() for _, card in sorted(peer._cards.items()) if card.key is not None]
                return peer._setup.keys is not None, keys

        found = together([lambda rank=rank: meet(rank) for rank in range(2)])
    expected = [keys_of(read_secret(secret), "run", rank).public.decode() for rank in range(2)]
    assert found == [(True, expected)] * 2
    assert (
        keys_of(read_secret(secret), "run", "watch.json").secret.decode() in (tmp_path / "run/watch.json").read_text()
    )


def test_a_key_from_the_store_that_does_not_follow_from_the_secret_is_refused(secret: Path) -> None:
    setup = Setup(secret_file=str(secret))
    place = Endpoint("n1", 5)
    right = keys_of(read_secret(secret), "run", 1).public
    assert with_known_keys(setup, {1: Card(1, place, right)})[1].key == right
    assert with_known_keys(setup, {1: Card(1, place)})[1].key == right, "of a list of hosts"
    with pytest.raises(RendezvousError, match=r"rank 1 at n1:5 shows a key that does not follow from secret_file="):
        with_known_keys(setup, {1: Card(1, place, new_keys().public)})
    stranger = new_keys().public
    assert with_known_keys(Setup(), {1: Card(1, place, stranger)})[1].key == stranger


def test_a_secret_is_for_its_owner(secret: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert secret.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="exists; a secret is not overwritten"):
        write_secret(secret)
    for mode in (0o604, 0o640):
        secret.chmod(mode)
        with pytest.raises(SettingsError, match="can be read by others: chmod 600 it"):
            read_secret(secret)
    short = tmp_path / "short"
    short.write_text("0123456789\n")
    short.chmod(0o600)
    with pytest.raises(SettingsError, match="has 10 characters, and 32 are the least"):
        read_secret(short)
    with pytest.raises(SettingsError, match="cannot be read: No such file or directory; gossip keygen --shared FILE"):
        read_secret(tmp_path / "none")
    with pytest.raises(SettingsError, match="leave out keys, public_keys and insecure"):
        peers.join({}, hosts=["127.0.0.1:0"], secret_file=str(secret), insecure=True)
    made = tmp_path / "deep" / "secret"
    assert cli.main(["keygen", "--shared", str(made)]) == 0
    assert read_secret(made).decode() not in capsys.readouterr().out


def test_a_group_may_read_what_belongs_to_another_user(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the volume of a container that does not run as root."""
    secret.chmod(0o640)
    owner = secret.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert read_secret(secret)
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by others"):
        read_secret(secret)
