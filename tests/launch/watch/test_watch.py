"""`gossip watch` and `gossip status`: what is shown, through whom, and how they end."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Capture, failure
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gossip.endpoint import Endpoint
from gossip.keys import KeyPair
from gossip.net.zmq_transport import ZmqTransport, new_keys
from gossip.values.layout import Layout
from gossip.wire.frames import WireCodec
from gossip.wire.messages import ANYBODY, Address, Look, Shown
from launch import cli
from launch.watch.display import Display
from launch.watch.invitation import WATCH, Invitation, write_invitation
from launch.watch.lookout import Lookout, NobodyAnswers
from launch.watch.picture import behind, read_picture, status
from launch.watch.watching import table, watch
from peers.table.columns import COLUMNS, TOLD

LOOPBACK = Endpoint("127.0.0.1", 0)
SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"
PATIENCE = 60.0


def member(rank_: int, **values: Any) -> dict[str, Any]:
    usual = {"incarnation": 0, "membership": "alive", "endpoint": f"127.0.0.1:{4000 + rank_}", "key": ""}
    return {"rank": rank_, **usual, "state": "training", "step": 100, "loss": 0.5, **values}


def drawn(*members: dict[str, Any], **values: Any) -> dict[str, Any]:
    setup = {"run": "test", "world_size": 2, "topology": "ring", "algorithm": "osgp", "seed": 0}
    return {"version": "1.0", "shown_by": 0, "setup": setup, "members": list(members), **values}


def read(*members: dict[str, Any], **values: Any) -> dict[str, Any]:
    return read_picture(json.dumps(drawn(*members, **values)).encode())


class Shower:
    """A peer that only answers looks, with whatever picture it has at the time."""

    def __init__(self, keys: KeyPair | None = None, lookers: tuple[KeyPair, ...] = ()) -> None:
        self._transport = ZmqTransport(LOOPBACK, keys=keys)
        for one in lookers:
            self._transport.admit(one.public, looks_only=True)
        self.place = str(self._transport.endpoint)
        self.key = "" if keys is None else keys.public.decode()
        self.picture: dict[str, Any] | bytes = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        codec = WireCodec("test", Layout.uniform(1, 1, np.dtype(np.float32)))
        there = ""
        while not self._stop.is_set():
            self._transport.wait(0.05)
            while (frames := self._transport.receive()) is not None:
                message = codec.decode(frames)
                assert isinstance(message, Look)
                if there != message.endpoint:
                    there = message.endpoint
                    self._transport.connect(1, Endpoint.parse(there), message.key.encode() or None)
                body = self.picture if isinstance(self.picture, bytes) else json.dumps(self.picture).encode()
                answer = codec.encode(Shown(Address(0, 0), Address(ANYBODY, 0), body))
                while not self._transport.send(1, answer) and not self._stop.is_set():
                    self._transport.wait(0.01)
        self._transport.close()

    def close(self) -> None:
        self._stop.set()
        self._transport.wake()
        self._thread.join()


@contextmanager
def showers(n: int, encrypted: bool = False) -> Iterator[tuple[list[Shower], Invitation]]:
    """Start so many, of which only the first is in the invitation, and all in each other's picture."""
    looker = new_keys() if encrypted else None
    many = [Shower(new_keys(), (looker,)) if looker else Shower() for _ in range(n)]
    members = [member(rank, endpoint=one.place, key=one.key, step=100 + rank) for rank, one in enumerate(many)]
    for rank, one in enumerate(many):
        one.picture = json.loads(json.dumps(drawn(*members, shown_by=rank)))  # each its own
    try:
        yield many, Invitation({many[0].place: many[0].key}, looker)
    finally:
        for one in many:
            one.close()


# What is shown


def test_what_scripts_get_is_stable() -> None:
    """A field that goes, or means something else, is a new format: see docs/reference/records.md."""
    full = {
        "samples": 640,
        "samples_per_second": 32.5,
        "wait_share": 0.25,
        "weight": 1.5,
        "neighbours": 1,
        "bytes_per_second": 1e6,
        "disagreement": 1e-3,
        "sends": "int8, 25% of the shards",
    }
    gone = member(1, membership="dead", incarnation=3, state=None, loss=None, step=7)
    assert status(read(gone, member(0, **full)), "127.0.0.1:4000") == {
        "format": 1,
        "version": "1.0",
        "run": "test",
        "topology": "ring",
        "algorithm": "osgp",
        "world_size": 2,
        "through": "127.0.0.1:4000",
        "shown_by": 0,
        "complete": True,
        "members": [
            {
                "rank": 0,
                "life": 0,
                "membership": "alive",
                "state": "training",
                "endpoint": "127.0.0.1:4000",
                "step": 100,
                "loss": 0.5,
                **full,
                "lag": 0,
            },
            {
                "rank": 1,
                "life": 3,
                "membership": "dead",
                "state": None,
                "endpoint": "127.0.0.1:4001",
                "step": 7,
                "loss": None,
                **dict.fromkeys(full),
                "lag": None,
            },
        ],
    }
    assert status(read(member(0), cut_short=True), "x")["complete"] is False


@pytest.mark.parametrize(
    ("steps", "lags"),
    [
        ([], []),
        ([None], [None]),
        ([7], [0]),
        ([10, 4], [0, 6]),
        ([10, 9, 2, None], [0, 0, 7, None]),
        ([1000, 10, 9, 3], [0, 0, 1, 7]),
    ],
)
def test_lag_is_behind_the_median(steps: list[int | None], lags: list[int | None]) -> None:
    assert behind(steps) == lags


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        json.dumps(drawn()).encode(),
        json.dumps({**drawn(member(0)), "version": 3}).encode(),
        json.dumps({**drawn(member(0)), "version": "\x1b[2J"}).encode(),
        json.dumps({**drawn(member(0)), "setup": {}}).encode(),
        json.dumps({**drawn(member(0)), "members": {}}).encode(),
        *(
            json.dumps(drawn(member(0, **{name: value}))).encode()
            for name, value in [
                ("rank", -1),
                ("rank", "0"),
                ("rank", True),
                ("incarnation", 1.5),
                ("membership", "well"),
                ("membership", None),
                ("endpoint", "nowhere"),
                ("endpoint", None),
                ("key", "short"),
                ("key", None),
                ("state", "\x1b[2J"),
                ("state", 3),
                ("sends", "\x1b[2J"),
                ("sends", "x" * 49),
                ("sends", 8),
                ("loss", "low"),
                ("loss", True),
                ("loss", float("nan")),
                ("step", float("inf")),
                ("step", [1]),
                ("samples", 10**400),
                ("membership", []),
            ]
        ),
    ],
)
def test_a_picture_that_makes_no_sense_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - all that is promised
        read_picture(wrong)


@given(st.binary(max_size=100) | st.text(max_size=50).map(str.encode))
def test_whatever_is_shown_is_read_or_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - nothing so short is a picture
        read_picture(body)


_VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.none(), max_size=1)
)


@settings(max_examples=50)
@given(
    st.sampled_from(["rank", "incarnation", "membership", "endpoint", "key", *(column.name for column in TOLD)]),
    _VALUES,
)
def test_whatever_a_member_says_can_be_shown_or_is_refused(name: str, value: Any) -> None:
    try:
        found = read(member(0, **{name: value}))
    except ValueError:
        return
    console = Console(file=io.StringIO(), width=400)
    console.print(table(found, console.width))
    assert json.loads(json.dumps(status(found, "x"), allow_nan=False))["members"]


@pytest.mark.parametrize("width", [50, 64, 80, 100, 120, 400])
def test_a_narrow_terminal_gets_fewer_columns_and_no_halves(width: int) -> None:
    full = {"samples_per_second": 1e3, "neighbours": 1, "bytes_per_second": 2e7, "weight": 1.0, "disagreement": 1e-3}
    console = Console(file=io.StringIO(), width=width)
    console.print(table(read(member(0, step=123456, **full), member(1, membership="suspect", **full)), width))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 3
    assert "\u2026" not in "".join(lines), "an ellipsis in a number is a wrong number"
    assert {"rank", "state", "step", "loss"} <= set(lines[0].split())
    assert ("apart" in lines[0]) == (width > 110)


def test_the_launchers_table_counts_lag_in_the_same_way() -> None:
    shown = io.StringIO()
    display = Display(Console(file=shown, width=400), range(2), clock=lambda: 0.0)
    for rank, step in enumerate((10, 4)):
        display.started(rank, "here", 1)
        display.status(rank, {"state": "training", "step": step, "loss": 0.25, "neighbours": 1, "weight": 1.0})
    Console(file=shown, width=400).print(display.table())
    head, *lines = shown.getvalue().splitlines()
    assert " ".join(head.split()) == "rank host state step loss samples/s lag peers MB/s weight apart"
    assert [line.split() for line in lines] == [
        ["0", "here", "training", "10", "0.2500", "0", "2", "1.00"],
        ["1", "here", "training", "4", "0.2500", "6", "2", "1.00"],
    ]


def test_the_launcher_shows_the_rates_that_a_peer_tells_until_it_ends() -> None:
    display = Display(Console(file=io.StringIO(), width=400), range(1), clock=lambda: 0.0)
    display.started(0, "here", 1)
    display.status(0, {"state": "training", "step": 5, "weight": 0.75, "samples_per_second": 32.4})
    display.status(0, {"bytes_per_second": 2.5e6})

    def line() -> list[str]:
        shown = Console(file=io.StringIO(), width=400)
        shown.print(display.table())
        assert isinstance(shown.file, io.StringIO)
        return shown.file.getvalue().splitlines()[1].split()

    assert line() == ["0", "here", "training", "5", "32", "0", "2.50", "0.75"]
    display.ended(0, 0)
    assert line() == ["0", "here", "finished", "5", "0", "0.75"], "who has ended has no rates"


def test_every_column_is_documented() -> None:
    docs = Path(__file__).parents[3] / "docs"
    table, fields = (docs / "guide" / "watch.md").read_text(), (docs / "reference" / "records.md").read_text()
    titles = {column.title for column in COLUMNS if column.title} - {"rank", "host"}  # these explain themselves
    assert [title for title in sorted(titles) if f"`{title}`" not in table] == []
    assert [column.name for column in COLUMNS if column.in_json and f"`{column.name}`" not in fields] == []


def test_the_help_explains_every_column_and_every_field(capsys: Capture) -> None:
    assert cli.main(["watch", "--help"]) == 0
    watch_help = capsys.readouterr().out
    assert cli.main(["status", "--help"]) == 0
    status_help = capsys.readouterr().out
    for column in COLUMNS:
        if column.in_json:
            assert re.search(rf"^  {column.name} +{re.escape(column.meaning)}$", status_help, re.MULTILINE)
        if column.in_json and column.title:
            assert re.search(rf"^  {column.title} +{re.escape(column.meaning)}$", watch_help, re.MULTILINE)


# Through whom


@pytest.mark.parametrize("encrypted", [False, True])
def test_who_is_gone_is_replaced_by_another_that_the_last_picture_showed(encrypted: bool) -> None:
    with showers(3, encrypted) as (peers, invitation), Lookout(invitation) as lookout:
        assert lookout.look()["shown_by"] == 0
        peers[0].close()
        assert lookout.look()["shown_by"] == 1
        assert lookout.place == peers[1].place
        peers[1].close()
        assert lookout.look()["shown_by"] == 2
        peers[2].close()
        with pytest.raises(NobodyAnswers) as caught:
            lookout.look(0.5)
        for one in peers:
            assert one.place in str(caught.value)


def test_the_dead_and_the_gone_are_not_asked() -> None:
    with showers(1) as ((first,), invitation), Lookout(invitation) as lookout:
        first.picture = drawn(
            member(0, endpoint=first.place), member(1, membership="dead"), member(2, membership="left")
        )
        lookout.look()
        first.close()
        with pytest.raises(NobodyAnswers) as caught:
            lookout.look(0.2)
        assert "4001" not in str(caught.value)
        assert "4002" not in str(caught.value)


def test_who_shows_nonsense_is_passed_by() -> None:
    with showers(2) as (peers, _):
        both = Invitation({one.place: "" for one in peers})
        peers[0].picture = b"{}"
        with Lookout(both) as lookout:
            assert lookout.look()["shown_by"] == 1


def test_many_who_do_not_answer_are_not_all_waited_for() -> None:
    places = {f"127.0.0.1:{port}": "" for port in range(1, 40)}
    with Lookout(Invitation(places)) as lookout, pytest.raises(NobodyAnswers) as caught:
        lookout.look(0.2)
    assert str(caught.value).count("cannot be reached") == 8


# The commands


def run_watch(invitation: Invitation, *moments: Any, terminal: bool = False, rows: bool = False) -> tuple[int, str]:
    """Watch, with something done after each look; return the exit code and what was shown."""
    todo = list(moments)
    shown = io.StringIO()
    console = Console(file=shown, width=200, force_terminal=terminal, highlight=False, markup=False)

    def pause(_: float) -> None:
        todo.pop(0)()

    return cli.guarded(lambda: watch(invitation, console, timeout=PATIENCE, rows=rows, pause=pause)), shown.getvalue()


def interrupted() -> None:
    raise KeyboardInterrupt


def test_watch_prints_a_line_per_look_and_one_per_change(capsys: Capture) -> None:
    with showers(2) as (peers, invitation):

        def suspected() -> None:
            assert isinstance(peers[0].picture, dict)
            peers[0].picture["members"][1]["membership"] = "suspect"
            peers[0].picture["members"][0]["loss"] = 0.25

        code, out = run_watch(invitation, lambda: None, suspected, peers[0].close, peers[1].close)
    first, second = (one.place for one in peers)
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in out.splitlines()]
    well = "test: 2 alive; step 100 to 101; loss 0.5000; 0 samples/s; by rank {} at {}"
    assert lines == [
        f"rank 0: alive, training; life 0, at {first}",
        f"rank 1: alive, training; life 0, at {second}",
        well.format(0, first),
        well.format(0, first),
        f"rank 1: suspect, was training; life 0, at {second}",
        f"test: 1 alive, 1 suspect; step 100; loss 0.2500; 0 samples/s; by rank 0 at {first}",
        f"{first} no longer answers; continuing through {second}",
        f"rank 1: alive, training; life 0, at {second}",
        well.format(1, second),
    ]
    assert code == 3
    err = capsys.readouterr().err
    assert err.startswith("gossip: error: the swarm has ended, or is unreachable from here: no peer answered: ")
    assert err.count("\n") == 1


def test_watch_draws_a_table_on_a_terminal_and_ends_with_ctrl_c(capsys: Capture) -> None:
    with showers(2) as (_, invitation):
        code, out = run_watch(invitation, lambda: None, interrupted, terminal=True)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out)
    head = "rank state life step loss samples/s lag peers MB/s weight apart endpoint"
    assert head in [" ".join(line.split()) for line in plain.splitlines()]
    assert out.endswith("\x1b[?25h"), "the cursor is back"
    assert code == 130
    assert capsys.readouterr().err == ""


def test_a_swarm_that_was_never_there_ends_watch_at_once(capsys: Capture) -> None:
    with showers(1) as ((one,), _):
        place = one.place
    assert cli.main(["watch", place, "--timeout", "200ms"]) == 3
    err = capsys.readouterr().err
    assert err.startswith(
        f"gossip: error: no peer answered: {place} cannot be reached: Connection refused. No process listens there. If"
    )
    assert "gossip report" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("membership", "code"), [("alive", 0), ("slow", 0), ("left", 0), ("suspect", 1), ("dead", 1)])
def test_status_says_by_its_exit_code_whether_all_are_well(capsys: Capture, membership: str, code: int) -> None:
    with showers(1) as ((one,), _):
        one.picture = drawn(member(0, endpoint=one.place), member(1, membership=membership))
        assert cli.main(["status", one.place]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(rf"^ +1  {membership}", out, re.MULTILINE)


def test_status_takes_a_run_and_a_key(capsys: Capture, tmp_path: Path) -> None:
    with showers(1, encrypted=True) as ((one,), invitation):
        write_invitation(tmp_path / WATCH, invitation)
        assert cli.main(["status", str(tmp_path), "--json"]) == 0
        by_run = json.loads(capsys.readouterr().out)
        assert cli.main(["status", one.place, "--key", str(tmp_path / WATCH), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == by_run
        assert by_run["through"] == one.place
        assert "key" not in by_run["members"][0]
        assert cli.main(["status", one.place, "--timeout", "500ms"]) == 3, "without the key nothing is shown"
        assert "does the swarm do without keys" in capsys.readouterr().err


def test_mistakes_are_told(capsys: Capture, tmp_path: Path) -> None:
    assert "host:port" in failure(capsys, "watch", "nowhere")
    assert "cannot read" in failure(capsys, "status", str(tmp_path))
    assert "above 0" in failure(capsys, "watch", "127.0.0.1:1", "--every", "0")
    assert "above 0" in failure(capsys, "status", "127.0.0.1:1", "--timeout", "0")


# All of it


def test_a_launched_swarm_can_be_looked_at_and_scraped(tmp_path: Path, capsys: Capture) -> None:
    run, stop = tmp_path / "run", tmp_path / "stop"
    options = {"samples": 20_000, "epochs": 1000, "consensus": False, "stop_file": str(stop)}
    command = [sys.executable, "-m", "launch.cli", "launch", "-n", "2", "--run-dir", str(run), "--metrics-port", "0"]
    process = subprocess.Popen(
        [*command, str(SCRIPT), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        served = metrics_places(process, 2)
        # Who has met the others shows the swarm; steps follow.
        seen: dict[str, Any] = {"members": []}
        while len(seen["members"]) < 2 or not all(one["step"] for one in seen["members"]):
            assert process.poll() is None, process.communicate()[0]
            code = cli.main(["status", str(run), "--json"])
            out = capsys.readouterr().out  # there is some, too, where somebody is suspect for a while
            if code == 0:
                seen = json.loads(out)
        assert [one["rank"] for one in seen["members"]] == [0, 1]
        # Who is held up for a moment is slow, and that is well.
        assert {one["membership"] for one in seen["members"]} <= {"alive", "slow"}
        assert seen["run"] == "run"
        assert seen["members"][0]["neighbours"] == 1
        for rank in range(2):
            figures = scrape_when_well(served[rank], 2)
            assert figures["gossip_steps_total"] >= seen["members"][rank]["step"]
        stop.touch()
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0, out
    for rank in range(2):
        lines = (run / f"rank-{rank}" / "events.jsonl").read_text().splitlines()
        found = {event["event"]: event for event in map(json.loads, lines)}
        assert found["metrics"]["text"] == f"served at {served[rank]}"
        assert "left" in found
    assert cli.main(["status", str(run), "--timeout", "1s"]) == 3, "it has ended"


def metrics_places(process: subprocess.Popen[str], n: int) -> dict[int, str]:
    """Return where each rank says that it serves its metrics; by then the run can be looked at."""
    assert process.stdout is not None
    found: dict[int, str] = {}
    for line in process.stdout:
        if match := re.search(r"rank (\d+): metrics are at (http://\S+)", line):
            found[int(match[1])] = match[2]
        if len(found) == n:
            return found
    raise AssertionError("the launch ended early")


def scrape_when_well(url: str, members: int) -> dict[str, float]:
    """Return the figures of a peer once it finds so many well, and has booked a parcel of one of them.

    For a moment anybody may be suspect to it. And steps wait for no parcel.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        figures = scrape(url)
        well = sum(figures[f'gossip_members{{state="{state}"}}'] for state in ("alive", "slow"))
        if well == members and figures['gossip_parcels_total{fate="booked"}'] > 0:
            return figures
        assert time.monotonic() < deadline, figures


def scrape(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}
