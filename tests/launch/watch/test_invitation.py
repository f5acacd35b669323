"""Invitations: what it takes to join or look, in files that only their owner can read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gossip.errors import SettingsError
from gossip.net.zmq_transport import new_keys
from launch.user_errors import CommandError
from launch.watch.invitation import JOIN, WATCH, Invitation, found, read_invitation, write_invitation

PLACES = ("127.0.0.1:4001", "[::1]:4002")


@pytest.fixture
def invitation() -> Invitation:
    return Invitation({place: new_keys().public.decode() for place in PLACES}, new_keys())


def test_what_is_written_is_read(tmp_path: Path, invitation: Invitation) -> None:
    write_invitation(tmp_path / WATCH, invitation)
    assert read_invitation(tmp_path / WATCH) == invitation


def test_a_swarm_without_keys_has_invitations_without(tmp_path: Path) -> None:
    bare = Invitation(dict.fromkeys(PLACES, ""))
    write_invitation(tmp_path / WATCH, bare)
    assert read_invitation(tmp_path / WATCH) == bare


def test_only_its_owner_can_read_it_whatever_was_there_before(tmp_path: Path, invitation: Invitation) -> None:
    path = tmp_path / JOIN
    path.write_text("something of a former run")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        write_invitation(path, invitation)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_secret_does_not_show(invitation: Invitation) -> None:
    assert invitation.keys is not None
    assert invitation.keys.secret.decode() not in repr(invitation)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_one_that_others_can_read_is_refused(tmp_path: Path, invitation: Invitation, mode: int) -> None:
    write_invitation(tmp_path / WATCH, invitation)
    (tmp_path / WATCH).chmod(mode)
    with pytest.raises(CommandError, match="chmod 600"):
        read_invitation(tmp_path / WATCH)


def test_one_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot read .*watch\.json: .*if the run is just starting, try again"):
        found(str(tmp_path), WATCH)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"members": {}, "keys": None},
        {"members": [PLACES[0]], "keys": None},
        {"members": {PLACES[0]: ""}},
        {"members": {"nowhere": ""}, "keys": None},
        {"members": {PLACES[0]: "no key"}, "keys": None},
        {"members": {PLACES[0]: ""}, "keys": ["short", "keys"]},
        {"members": {PLACES[0]: ""}, "keys": ["a" * 40]},
        {"members": {PLACES[0]: ""}, "keys": [1, 2]},
        {"members": {PLACES[0]: ""}, "keys": "text"},
    ],
    ids=repr,
)
def test_a_damaged_one_is_said_to_be(tmp_path: Path, wrong: Any) -> None:
    path = tmp_path / WATCH
    path.write_text(json.dumps(wrong))
    path.chmod(0o600)
    with pytest.raises(CommandError, match="is not an invitation"):
        read_invitation(path)


def test_what_is_no_json_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / WATCH
    path.write_bytes(b"\xff\x00")
    path.chmod(0o600)
    with pytest.raises(CommandError, match="is not an invitation"):
        read_invitation(path)


def test_a_run_has_one_for_each_purpose(tmp_path: Path, invitation: Invitation) -> None:
    other = Invitation(invitation.members, new_keys())
    write_invitation(tmp_path / JOIN, invitation)
    write_invitation(tmp_path / WATCH, other)
    assert found(str(tmp_path), JOIN) == invitation
    assert found(str(tmp_path), WATCH) == other
    assert found(str(tmp_path), WATCH, tmp_path / JOIN) == invitation, "the one that was handed over counts"


def test_a_peer_by_name_needs_no_file_or_is_found_in_it(tmp_path: Path, invitation: Invitation) -> None:
    assert found(PLACES[0], WATCH) == Invitation({PLACES[0]: ""})
    write_invitation(tmp_path / "handed", invitation)
    for place in PLACES:
        one = found(place, WATCH, tmp_path / "handed")
        assert one == Invitation({place: invitation.members[place]}, invitation.keys)
    with pytest.raises(CommandError, match=r"does not list 127\.0\.0\.1:1; it lists"):
        found("127.0.0.1:1", WATCH, tmp_path / "handed")


def test_what_is_neither_a_peer_nor_a_directory_is_said_to_be() -> None:
    with pytest.raises(CommandError, match="nowhere is neither a directory nor host:port"):
        found("nowhere", WATCH)
    with pytest.raises(SettingsError, match="the port must be a number"):
        found("no:where", WATCH)
