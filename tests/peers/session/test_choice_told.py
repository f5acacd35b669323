"""What `auto` chose is told: in the log, in the records, to the launcher, and to whoever looks at the swarm."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table

import peers
from gossip.codecs.choice import Choice
from gossip.endpoint import Endpoint
from gossip.net.observer import Looker
from launch.watch import watching
from launch.watch.display import Display
from launch.watch.picture import read_picture, status

CHOICES = [Choice("int8", 1.0, "the first look"), Choice("int8", 0.25, "too slow"), Choice("none", 1.0, "fast again")]
#: Seconds after which nobody answers.
PATIENCE = 60.0
SHOWN = ["auto", "int8", "int8, 25% of the shards", "none"]


class Channel:
    """The end of a launcher's channel that a peer writes to: what it is told goes to the table."""

    def __init__(self) -> None:
        self.display = Display(Console(file=io.StringIO(), width=400), range(1), clock=lambda: 0.0)
        self.display.started(0, "here", 1)

    def send(self, **message: Any) -> None:
        if "status" in message:
            self.display.status(0, message["status"])

    def close(self) -> None:
        pass


def sends(table: Table) -> str:
    """Return the last cell of the table's only line, below its head."""
    shown = Console(file=io.StringIO(), width=400)
    shown.print(table)
    assert isinstance(shown.file, io.StringIO)
    head, line = shown.file.getvalue().splitlines()
    return line[head.index("sends") :].strip()


def test_a_choice_goes_into_the_log_the_records_and_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = Channel()
    launched, watched, scripted = [], [], []
    with peers.join({}, run_dir=str(tmp_path), compress="auto") as peer:
        model = torch.nn.Linear(1024, 1024)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        session = peer._attached().session
        assert peer._attached().replica.layout.shards == 5, "so that there is something to leave out"
        found = iter([None, *CHOICES])
        monkeypatch.setattr(session.driver._core.coding, "exchanged", lambda *_: next(found))
        peer._reporter._channel = channel  # type: ignore[assignment]
        with Looker(peer._transport.endpoint, bind=Endpoint("127.0.0.1", 0)) as looker:
            for _ in SHOWN:
                optimizer.step()
                peer._reporter.report(state="training")
                picture = read_picture(looker.look(PATIENCE))
                launched.append(sends(channel.display.table()))
                watched.append(sends(watching.table(picture, 400)))
                scripted.append(status(picture, "here")["members"][0]["sends"])
        monkeypatch.undo()
    assert launched == watched == scripted == SHOWN
    events = [json.loads(line) for line in (tmp_path / "rank-0" / "events.jsonl").read_text().splitlines()]
    assert [(one["codec"], one["share"], one["text"]) for one in events if one["event"] == "compress"] == [
        (choice.codec, choice.share, f"{choice}: {choice.reason}") for choice in CHOICES
    ]
    said = [record.getMessage() for record in caplog.records if "chose" in record.getMessage()]
    assert said == [f"rank 0: chose to send {choice}: {choice.reason}" for choice in CHOICES]


def test_who_asked_for_no_codec_has_no_column_of_it() -> None:
    with peers.join({}) as peer:
        model = torch.nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        peer._reporter._channel = channel = Channel()  # type: ignore[assignment]
        peer._reporter.report(state="training")
        with Looker(peer._transport.endpoint, bind=Endpoint("127.0.0.1", 0)) as looker:
            picture = read_picture(looker.look(PATIENCE))
    for table in (channel.display.table(), watching.table(picture, 400)):
        assert "sends" not in [column.header for column in table.columns]
    assert status(picture, "here")["members"][0]["sends"] is None
