"""What is counted, written down and told to Prometheus when something happens to a swarm."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from swarms import nothing_left, reserved_ports
from torch.utils.data import TensorDataset

import peers
from gossip import events
from gossip.errors import Reason, SettingsError
from gossip.membership import Record, State
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Hello
from launch import cli
from launch.options.options import LaunchOptions
from launch.report.run_directory import read_run
from peers.reporting.metrics import Metrics
from peers.session.chronicle import Chronicle
from peers.setup import Setup

STEPS = 5


def scraped(metrics: Metrics) -> str:
    with urllib.request.urlopen(f"http://{metrics.endpoint}/metrics", timeout=30) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
    return text


def nothing_new(before: tuple[set[str], dict[int, str]]) -> None:
    """Assert that there is nothing that was not there before; what was may have ended meanwhile."""
    threads, files = nothing_left()
    assert threads <= before[0]
    assert files.items() <= before[1].items()


def figures(text: str) -> dict[str, float]:
    """Return the value of each figure, its labels behind its name."""
    return {
        " ".join([sample.name, *(f"{name}={value}" for name, value in sample.labels.items())]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def train(peer: peers.Peer, loss: float = 0.5) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for (x,) in peer.batches(TensorDataset(torch.ones(4 * STEPS, 2)), 4, 1):
        optimizer.zero_grad()
        model(x).sum().backward()
        peer.log(loss=loss)
        optimizer.step()


def test_a_peer_tells_what_it_did() -> None:
    with peers.join(metrics_port=0, run="it") as peer:
        assert peer._closing._metrics is not None
        before = figures(scraped(peer._closing._metrics))
        assert before["gossip_steps_total"] == 0, "also before there is a model"
        train(peer)
        peer._reporter.report(state="training")
        session = peer._attached().session
        session.driver.dropped, session.chronicle.written_off = 3, 0.25
        (frame,) = WireCodec("it", peer._attached().replica.layout).encode(Hello(Address(1, 0), Address(0, 0)))
        session.driver.post(events.Received([bytes(frame[:-1]) + bytes([frame[-1] ^ 1])]))
        session.driver.merge()  # answered once the frame is counted
        text = scraped(peer._closing._metrics)
        waited, sent = peer._meter.waited, session.driver.bytes_sent
    found = figures(text)
    assert found["gossip_steps_total"] == STEPS
    assert found["gossip_samples_total"] == 4 * STEPS
    assert found["gossip_waited_seconds_total"] == pytest.approx(waited)
    assert found["gossip_sent_bytes_total"] == sent
    assert found["gossip_weight"] == 1
    assert found["gossip_dropped_messages_total"] == 3
    assert found["gossip_written_off_weight_total"] == 0.25
    assert found["gossip_members state=alive"] == 1
    assert found["gossip_rejected_frames_total reason=checksum"] == 1
    assert found["gossip_rejected_frames_total reason=shape"] == 0, "a counter is there before it counts"
    assert "gossip_disagreement" not in found, "it was not measured"
    assert {name.partition(" ")[0] for name in found} >= {
        "gossip_peer_info",
        "gossip_life",
        "gossip_received_bytes_total",
        "gossip_member_changes_total",
        "gossip_reincarnations_total",
        "gossip_parcels_total",
        "gossip_not_finite_shards_total",
    }


def test_every_figure_is_explained_and_well_named() -> None:
    with peers.join(metrics_port=0) as peer:
        train(peer)
        assert peer._closing._metrics is not None
        text = scraped(peer._closing._metrics)
    helped = re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE)
    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert [name for name, _ in helped] == list(typed)
    assert len(helped) > 15
    for name, told in helped:
        assert re.fullmatch(r"gossip_[a-z_]+", name)
        assert told.endswith(".")
        assert name.endswith("_total") == (typed[name] == "counter"), name


def test_the_loss_is_the_one_that_was_logged_last() -> None:
    with peers.join(metrics_port=0) as peer:
        assert peer._closing._metrics is not None
        train(peer, loss=0.75)
        peer.log(loss=torch.tensor(0.25))
        peer._reporter.report(state="training", disagreement=1e-3)
        found = figures(scraped(peer._closing._metrics))
        peer.log(loss=float("nan"))
        peer._reporter.report(state="training", disagreement=float("inf"))
        odd = figures(scraped(peer._closing._metrics))
    assert found["gossip_loss"] == 0.25
    assert found["gossip_disagreement"] == 1e-3
    assert odd["gossip_loss"] == 0.25, "what is not finite is no figure"
    assert "gossip_disagreement" not in odd


def test_a_port_that_is_taken_is_told_before_anything_is_opened() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = nothing_left()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot serve metrics on 127.0.0.1:{port}: Address already in use"):
            peers.join(metrics_port=port)
        nothing_new(before)


def test_who_cannot_start_for_another_reason_gives_the_port_back() -> None:
    before = nothing_left()
    with pytest.raises(SettingsError, match="host:port"):
        peers.join(metrics_port=0, incarnation=1, contacts=["nowhere"])
    nothing_new(before)


def test_the_local_rank_is_added_and_the_port_is_given_back() -> None:
    before = nothing_left()
    with reserved_ports(1) as (port,):
        for _ in range(2):
            with peers.join(metrics_port=port - 1, local_rank=1) as peer:
                assert peer._closing._metrics is not None
                assert peer._closing._metrics.endpoint.port == port
                scraped(peer._closing._metrics)
    nothing_new(before)


def test_nothing_is_served_unless_asked_for() -> None:
    with peers.join() as peer:
        assert peer._closing._metrics is None


@pytest.mark.parametrize(
    "wrong", [{"metrics_port": -2}, {"metrics_port": 65536}, {"metrics_port": 65535, "local_rank": 1}]
)
def test_a_port_that_is_none_is_told(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="metrics_port"):
        Setup().changed(**wrong)


def test_an_address_that_is_not_this_machines_is_told() -> None:
    with pytest.raises(SettingsError, match=r"cannot serve metrics on 192\.0\.2\.1"):
        Metrics(Setup(metrics_port=0, metrics_bind="192.0.2.1"))


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_a_scrape_in_the_middle_of_changes_is_whole() -> None:
    """The gossip thread writes while another reads; no lock keeps them apart."""
    known = 20_000  # so many that somebody always joins while they are counted
    chronicle = Chronicle(range(known), 1, lambda _: None, lambda **_: None)
    enough = threading.Event()
    joined = 0

    def write() -> None:
        nonlocal joined
        while not enough.is_set():
            record = Record(known + joined, endpoint="127.0.0.1:1")
            joined += 1
            chronicle.saw(events.MemberChanged(record, None), 2)
            chronicle.counts[f"kind {joined}"] += 1

    thread = threading.Thread(target=write)
    with peers.join(metrics_port=0) as peer:
        train(peer)
        peer._attached().session.chronicle = chronicle
        assert peer._closing._metrics is not None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(peer._closing._metrics._figures)
        thread.start()
        try:
            seen = [figures(generate_latest(registry).decode())["gossip_members state=alive"] for _ in range(40)]
        finally:
            enough.set()
            thread.join()
        last = figures(generate_latest(registry).decode())
    assert seen == sorted(seen)
    assert seen[-1] > seen[0], "or nobody wrote meanwhile"
    assert last["gossip_members state=alive"] == known + joined + 1
    assert last["gossip_member_changes_total kind=join"] == joined


# On the command line


def test_the_launcher_says_which_port_is_taken_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["launch", "-n", "2", "--run-dir", str(tmp_path / "run"), "--metrics-port", str(port - 1)]
        assert cli.main([*arguments, str(script)]) == 2
    said = capsys.readouterr().err
    # Whether the port below is free is a matter of chance; that of rank 1 is not.
    assert re.search(rf"--metrics-port {port - 1}: rank [01] cannot serve on 127\.0\.0\.1:\d+: Address", said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics-port", "65536"], "a port from 0 to 65535"),
        (["--metrics-port", "-1"], "a port from 0 to 65535"),
        (["-n", "2", "--metrics-port", "65535"], "above 65535; choose a lower port"),
        (["--metrics-port", "0", "--metrics-bind", "192.0.2.1"], "cannot serve on 192.0.2.1:0"),
    ],
)
def test_ports_that_cannot_be_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert cli.main(["launch", *arguments, "--dry-run", str(script)]) == 2
    assert message in capsys.readouterr().err


def test_a_toml_file_has_the_port_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script, config = tmp_path / "train.py", tmp_path / "launch.options.toml"
    script.touch()
    config.write_text('metrics_port = 0\nmetrics-bind = "127.0.0.2"\n')
    assert cli.main(["launch", "--config", str(config), "--dry-run", str(script)]) == 0
    out = capsys.readouterr().out
    assert "metrics_port: 0" in out
    assert "metrics_bind: 127.0.0.2" in out
    assert cli.main(["launch", "--dry-run", str(script)]) == 0
    assert "metrics" not in capsys.readouterr().out
    assert LaunchOptions("x").metrics_port == Setup().metrics_port == -1


# What is written down


class Diary:
    """A chronicle, with what it told and noted."""

    def __init__(self, **more: Any) -> None:
        self.told: list[str] = []
        self.noted: list[dict[str, Any]] = []
        self.chronicle = Chronicle([1, 2], 4, self.told.append, lambda **event: self.noted.append(event), **more)

    def member(self, state: State, life: int = 0, before: Record | None = None, rank: int = 1) -> Record:
        record = Record(rank, life, state=state, endpoint="127.0.0.1:5")
        self.chronicle.saw(events.MemberChanged(record, before), 3)
        return record


def test_peers_that_compare_their_models_are_not_warned_of_frames_that_do_not_fit() -> None:
    """The error of the start says it better; and once they train it is no longer to be expected."""
    diary = Diary()
    for comparing in (True, False):
        diary.chronicle.comparing = comparing
        diary.chronicle.saw(events.RejectedFrame(Reason.SHAPE, 1, "3 elements, and 4 are expected", 1, True), 3)
        diary.chronicle.saw(events.RejectedFrame(Reason.CHECKSUM, 1, "damaged", 1, True), 3)
    assert [sentence.split(": ")[1].split(" ")[0] for sentence in diary.told] == ["checksum", "shape", "checksum"]
    assert [event["reason"] for event in diary.noted] == ["shape", "checksum"]


def test_what_a_newcomer_hears_before_it_is_let_in_is_not_held_against_anybody() -> None:
    """Others push to a rank that was restarted until they know; a member knows everybody."""
    diary = Diary(newcomer=True)
    for count in range(1, 11):
        diary.chronicle.saw(events.RejectedFrame(Reason.STRANGER, 2, "not both known here", count, count == 1), 1)
    diary.chronicle.saw(events.RejectedFrame(Reason.RUN, 2, "of another run", 1, True), 1)
    assert diary.chronicle.rejected == {Reason.RUN: 1}
    diary.chronicle.saw(events.Welcomed(), 3)
    diary.chronicle.saw(events.RejectedFrame(Reason.STRANGER, 7, "not both known here", 11, False), 3)
    assert diary.chronicle.rejected == {Reason.RUN: 1, Reason.STRANGER: 1}
    assert [(event["reason"], event["count"]) for event in diary.noted if "reason" in event] == [
        ("run", 1),
        ("stranger", 1),
    ]


@pytest.mark.parametrize(("more", "unit"), [({}, "rank"), ({"unit": "replica"}, "replica")])
def test_a_member_of_a_row_of_a_grid_is_called_a_replica(more: dict[str, str], unit: str) -> None:
    diary = Diary(**more)
    diary.member(State.DEAD, before=Record(1, endpoint="127.0.0.1:5"))
    diary.member(State.ALIVE, rank=7)
    assert diary.told == [
        f"{unit} 1 is dead: it answered nobody; mass in flight to it is taken back",
        f"{unit} 7 has joined from 127.0.0.1:5, in life 0",
    ]


def test_every_change_of_a_member_is_an_event_and_counts_once() -> None:
    diary = Diary()
    alive = Record(1, endpoint="127.0.0.1:5")
    slow = diary.member(State.SLOW, before=alive)
    well = diary.member(State.ALIVE, before=slow)
    suspect = diary.member(State.SUSPECT, before=well)
    again = diary.member(State.ALIVE, before=suspect)
    suspect = diary.member(State.SUSPECT, before=again)
    dead = diary.member(State.DEAD, before=suspect)
    back = diary.member(State.ALIVE, 1, before=dead)
    diary.member(State.LEFT, 1, before=back)
    diary.member(State.ALIVE, rank=7)
    whats = ["slowed", "recovered", "suspected", "refuted", "suspected", "died", "returned", "left", "joined"]
    assert [event["what"] for event in diary.noted] == whats
    assert {event["event"] for event in diary.noted} == {"member"}
    assert diary.noted[5] == {
        "event": "member",
        "what": "died",
        "rank": 1,
        "incarnation": 0,
        "state": "dead",
        "before": "suspect",
        "endpoint": "127.0.0.1:5",
    }
    assert {what: diary.chronicle.counts[f"member {what}"] for what in set(whats)} == {
        what: whats.count(what) for what in whats
    }
    assert diary.chronicle.states == {1: "left", 2: "alive", 7: "alive"}
    assert [" ".join(sentence.split()[:4]) for sentence in diary.told] == [
        "rank 1 is dead:",
        "rank 1 has joined",
        "rank 7 has joined",
    ]


def test_a_member_that_slows_and_recovers_with_every_step_makes_few_events() -> None:
    diary = Diary()
    for _ in range(100):
        for rank in (1, 2):
            slow = diary.member(State.SLOW, before=Record(rank, endpoint="127.0.0.1:5"), rank=rank)
            diary.member(State.ALIVE, before=slow, rank=rank)
    assert [event["what"] for event in diary.noted if event["rank"] == 2] == 3 * ["slowed", "recovered"]
    assert len(diary.noted) == 12
    assert diary.chronicle.counts["member slowed"] == 200
    assert diary.chronicle.states == {1: "alive", 2: "alive"}


def test_a_death_in_a_later_life_is_a_death_and_one_by_hearsay_a_return() -> None:
    diary = Diary()
    dead = diary.member(State.DEAD, before=Record(1))
    diary.member(State.DEAD, 1, before=dead)
    diary.member(State.ALIVE, before=Record(1, state=State.DEAD))
    assert [event["what"] for event in diary.noted] == ["died", "died", "returned"]


def test_whom_a_newcomer_finds_has_not_joined() -> None:
    diary = Diary(newcomer=True)
    diary.member(State.ALIVE, rank=5)
    diary.member(State.DEAD, rank=6)
    diary.chronicle.saw(events.Reincarnated(Address(0, 2), 4.0), 1)
    assert diary.told == []
    assert diary.chronicle.written_off == 0, "what it was born with is nobody's loss"
    diary.chronicle.saw(events.Welcomed(), 3)
    diary.member(State.ALIVE, rank=7)
    assert [(event["event"], event.get("what")) for event in diary.noted] == [
        ("member", "known"),
        ("member", "known"),
        ("welcomed", None),
        ("member", "joined"),
    ]
    assert diary.noted[2]["members"] == 3


def test_the_first_rejection_of_each_kind_is_an_event_and_a_flood_is_few() -> None:
    diary = Diary()
    for count in range(1, 1001):
        diary.chronicle.saw(events.RejectedFrame(Reason.CHECKSUM, 2, "bytes", count, count == 1), 3)
    diary.chronicle.saw(events.RejectedFrame(Reason.STALE, 1, "old", 1, True), 3)
    assert [(event["reason"], event["count"]) for event in diary.noted] == [
        ("checksum", 1),
        ("checksum", 10),
        ("checksum", 100),
        ("checksum", 1000),
        ("stale", 1),
    ]
    assert diary.told == ["rejected a frame, 1 so far: checksum from 2: bytes"], "what is stale was to be expected"
    assert diary.chronicle.counts["RejectedFrame"] == 1001


def test_what_is_written_off_is_told_per_shard() -> None:
    diary = Diary()
    diary.chronicle.saw(events.Reincarnated(Address(0, 3), 6.0), 3)
    diary.chronicle.saw(events.Left(2.0), 3)
    assert diary.noted == [
        {"event": "reincarnated", "incarnation": 3, "written_off": 1.5},
        {"event": "left", "written_off": 0.5},
    ]
    assert diary.chronicle.written_off == 2.0
    assert diary.chronicle.counts["reincarnated"] == 1
    assert len(diary.told) == 2


def test_the_last_one_leaves_without_a_complaint() -> None:
    diary = Diary()
    diary.chronicle.saw(events.Left(4.0), 1)
    assert diary.noted == [{"event": "left", "written_off": 0.0}]
    assert diary.told == []


def test_who_has_to_stop_says_why() -> None:
    diary = Diary()
    diary.chronicle.saw(events.Expelled("rank 3 is taken"), 1)
    assert diary.told == ["rank 3 is taken"]
    assert diary.noted == [{"event": "expelled", "text": "rank 3 is taken"}]


def test_diverged_values_are_told_once_and_counted() -> None:
    diary = Diary()
    for shard in (0, 0, 1):
        diary.chronicle.saw(events.NotFinite(shard), 1)
    assert len(diary.told) == 2
    assert diary.chronicle.counts["NotFinite"] == 3


def test_a_report_tells_the_events(tmp_path: Path) -> None:
    diary = Diary()
    diary.member(State.DEAD, before=Record(1))
    diary.chronicle.saw(events.RejectedFrame(Reason.SHAPE, None, "<b>", 1, True), 3)
    diary.chronicle.saw(events.Reincarnated(Address(0, 3), 5.0), 3)
    diary.chronicle.saw(events.Left(0.0), 3)
    home = tmp_path / "rank-0"
    home.mkdir()
    lines = [{"time": 1e9 + index, **event} for index, event in enumerate([*diary.noted, {"event": "member"}])]
    (home / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(event.kind, event.text) for event in read_run(tmp_path).ranks[0].events] == [
        ("member", "rank 1: died; alive before, now dead, in life 0, at 127.0.0.1:5"),
        ("rejected", "shape from None, 1 so far: <b>"),
        ("reincarnated", "continues in life 0+3; a weight of 1.25 was written off"),
        ("left", "a weight of 0 was written off"),
        ("member", "rank ?: ?; ? before, now ?, in life ?, at ?"),
    ]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "&lt;b&gt;" in (tmp_path / "report.html").read_text()
