"""Hostfiles: what is read from them, which hosts are chosen, and what is said about mistakes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from launch.swarm.hostfile import HostLine, parse_hostfile, read_hostfile, selected
from launch.user_errors import CommandError

THREE = [HostLine("a", 4), HostLine("b", 2), HostLine("fd00::3")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("node1", HostLine("node1")),
        ("node1 slots=4", HostLine("node1", 4)),
        ("  node1\tslots=4   # the big one", HostLine("node1", 4)),
        ("node1 slots=4#the big one", HostLine("node1", 4)),
        ("alice@node1", HostLine("node1", user="alice")),
        ("alice@node1:2222 slots=2", HostLine("node1", 2, "alice", 2222)),
        ("node-1.example.org:2222", HostLine("node-1.example.org", port=2222)),
        ("10.0.0.1:22", HostLine("10.0.0.1", port=22)),
        ("fd00::3", HostLine("fd00::3")),
        ("fe80::3%eth0", HostLine("fe80::3%eth0")),
        ("[fd00::3]", HostLine("fd00::3")),
        ("alice@[fd00::3]:2222", HostLine("fd00::3", user="alice", port=2222)),
        ("node1 advertise=10.0.0.1", HostLine("node1", advertise="10.0.0.1")),
        ("node1 advertise=[fd00::3]", HostLine("node1", advertise="fd00::3")),
        ("node1 advertise=fd00::3 slots=3", HostLine("node1", 3, advertise="fd00::3")),
        ("node1 python=/opt/venv/bin/python", HostLine("node1", python="/opt/venv/bin/python")),
    ],
)
def test_a_line(line: str, expected: HostLine) -> None:
    assert parse_hostfile(line) == [expected]


def test_a_file_has_comments_and_blank_lines_and_keeps_its_order(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\n\nz slots=2\r\n   \n#a\na\n")
    assert read_hostfile(path) == [HostLine("z", 2), HostLine("a")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("node1 slots=x", "slots must be a number"),
        ("node1 slots=0", "slots must be a number"),
        ("node1 slots=-1", "slots must be a number"),
        ("node1 slots=4097", "slots must be a number"),
        ("node1 slots=1e3", "slots must be a number"),
        ("node1 slots=\u0663", "slots must be a number"),
        ("node1 slots=", "slots needs a value"),
        ("node1 slots", "slots needs a value"),
        ("node1 slots=1 slots=2", "slots is given twice"),
        ("node1 slot=2", "unknown word 'slot=2'"),
        ("node1 max_slots=2", "unknown word 'max_slots=2'"),
        ("node1 4", "unknown word '4'"),
        ("node1:ssh", "the port of 'node1:ssh'"),
        ("node1:0", "the port of 'node1:0'"),
        ("node1:65536", "the port of 'node1:65536'"),
        ("node1:", "the port of 'node1:'"),
        ("-oProxyCommand=evil", "is not a host name or address"),
        ("node1;reboot", "is not a host name or address"),
        (":22", "'' is not a host name"),
        ("@node1", "'' is not a user name"),
        ("-l@node1", "'-l' is not a user name"),
        ("a b@node1", "unknown word 'b@node1'"),
        ("fd00::xyz", "is not an IPv6 address"),
        ("fd00::3:22222:1:2:3:4:5:6", "is not an IPv6 address"),
        ("[node1]:22", "is not an IPv6 address in brackets"),
        ("[fd00::3", "is not an IPv6 address in brackets"),
        ("[fd00::3]22", "is not an IPv6 address in brackets"),
        ("node1 advertise=10.0.0.1:5000", "without a port"),
        ("node1 advertise=$(id)", "is not a host name or address"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_it_should_be(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(f"# first\nfine slots=2\n{line}\n", "utf-8")
    with pytest.raises(CommandError) as error:
        read_hostfile(path)
    message = str(error.value)
    assert message.startswith(f"{path}, line 3: ")
    assert words in message
    assert message.endswith("a line reads: [user@]host[:port] [slots=N] [advertise=ADDRESS] [python=PATH]")


@pytest.mark.parametrize("second", ["a slots=2", "A", "alice@a", "a:2222"])
def test_a_doubled_host_is_told_with_both_lines(second: str) -> None:
    with pytest.raises(CommandError, match=r"hostfile, line 3: [aA] is already listed in line 1: list it once"):
        parse_hostfile(f"a\nb\n{second}\n")


def test_this_machine_under_two_names_is_doubled() -> None:
    with pytest.raises(CommandError, match=r"line 2: 127\.0\.0\.1 is already listed in line 1"):
        parse_hostfile("localhost slots=2\n127.0.0.1 slots=2\n")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_an_empty_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(CommandError, match=rf"{path} lists no host; a line reads"):
        read_hostfile(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=rf"cannot read the hostfile {tmp_path / 'hosts'}: No such file"):
        read_hostfile(tmp_path / "hosts")
    with pytest.raises(CommandError, match="Is a directory"):
        read_hostfile(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="it is not UTF-8 text"):
        read_hostfile(tmp_path / "bytes")


def test_what_is_local() -> None:
    own = socket.gethostname()
    for line in ("localhost", "LOCALHOST", "127.0.0.1", "::1", "[::1]", own, own.partition(".")[0]):
        assert parse_hostfile(line)[0].is_local, line
    # A user, a port or an interpreter of its own is asked for by ssh.
    for line in (
        "alice@localhost",
        "localhost:2222",
        "[::1]:22",
        "localhost python=/usr/bin/python3",
        "node1",
        "127.0.0.2",
    ):
        assert not parse_hostfile(line)[0].is_local, line


def test_what_only_its_own_machine_can_reach() -> None:
    assert [
        HostLine(host).is_loopback for host in ("localhost", "127.0.0.2", "::1", "10.0.0.1", "node1", "fd00::3")
    ] == [
        *[True] * 3,
        *[False] * 3,
    ]


def slots(hosts: list[HostLine]) -> dict[str, tuple[int, ...]]:
    return {host.host: host.local_ranks for host in hosts}


ALL = {"a": (0, 1, 2, 3), "b": (0, 1), "fd00::3": (0,)}


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("", ALL),
        ("a", {"a": (0, 1, 2, 3)}),
        ("b@a", {"a": (0, 1, 2, 3), "b": (0, 1)}),
        ("b,a", {"a": (0, 1, 2, 3), "b": (0, 1)}),
        ("a:1,3", {"a": (1, 3)}),
        ("a:3,1@b", {"a": (1, 3), "b": (0, 1)}),
        ("a:3,1,b", {"a": (1, 3), "b": (0, 1)}),
        ("a:3,1,b:1", {"a": (1, 3), "b": (1,)}),
        ("b@a:0,2", {"a": (0, 2), "b": (0, 1)}),
        ("a:0@a:2", {"a": (0, 2)}),
        ("a:0@a", {"a": (0, 1, 2, 3)}),
        ("a:2,2", {"a": (2,)}),
        ("fd00::3", {"fd00::3": (0,)}),
        ("[fd00::3]:0@a:1", {"a": (1,), "fd00::3": (0,)}),
        (" a , b ", {"a": (0, 1, 2, 3), "b": (0, 1)}),
    ],
)
def test_include(include: str, expected: dict[str, tuple[int, ...]]) -> None:
    assert slots(selected(THREE, include, "")) == expected


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        ("a", {"b": (0, 1), "fd00::3": (0,)}),
        ("a,b", {"fd00::3": (0,)}),
        ("a:0", {**ALL, "a": (1, 2, 3)}),
        ("a:0,2@b:0", {**ALL, "a": (1, 3), "b": (1,)}),
        ("b:0,1", {"a": (0, 1, 2, 3), "fd00::3": (0,)}),
    ],
)
def test_exclude(exclude: str, expected: dict[str, tuple[int, ...]]) -> None:
    assert slots(selected(THREE, "", exclude)) == expected


def test_what_is_known_of_a_host_survives_the_choice() -> None:
    host = HostLine("a", 4, "alice", 2222, "10.0.0.1", "/usr/bin/python3")
    (chosen,) = selected([host], "a:3", "")
    assert chosen == HostLine("a", 4, "alice", 2222, "10.0.0.1", "/usr/bin/python3", (3,))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("c", "the hostfile has no host 'c'; it has: a (slots 0-3), b (slots 0-1), fd00::3 (slot 0)"),
        ("a,c", "the hostfile has no host 'c'"),
        ("c:0", "the hostfile has no host 'c'"),
        ("0", "the hostfile has no host '0'"),
        ("a,0", "the hostfile has no host '0'"),
        ("a@", "the hostfile has no host ''"),
        ("a:4", "a has no slot '4'; the hostfile has: a (slots 0-3)"),
        ("a:0,4", "a has no slot '4'"),
        ("a:", "a has no slot ''"),
        ("a:x", "a has no slot 'x'"),
        ("a:-1", "a has no slot '-1'"),
        ("b:\u0660", "b has no slot"),
    ],
)
@pytest.mark.parametrize("option", ["--include", "--exclude"])
def test_an_unknown_host_or_slot_is_told_with_what_there_is(option: str, choice: str, words: str) -> None:
    with pytest.raises(CommandError) as error:
        selected(THREE, *((choice, "") if option == "--include" else ("", choice)))
    assert str(error.value).startswith(f"{option} {choice}: ")
    assert words in str(error.value)


def test_both_together_are_refused() -> None:
    with pytest.raises(CommandError, match="cannot be combined: give one"):
        selected(THREE, "a", "b")


def test_nothing_left_is_told() -> None:
    with pytest.raises(CommandError, match=r"--exclude a,b,fd00::3 leaves no slot of a \(slots 0-3\)"):
        selected(THREE, "", "a,b,fd00::3")
