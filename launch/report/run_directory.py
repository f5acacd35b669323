"""Reading the records of a run from its directory, whether the peers have ended, were killed or still write."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.options.toml import read_toml
from launch.report.json_lines import read_json, read_lines
from launch.report.series import Series
from launch.user_errors import CommandError
from peers.table.lives import life_text

__all__ = ["Event", "Rank", "Run", "read_run"]

#: Rows of a series, over all ranks; and at most, and at least, for one.
_ROWS, _MOST, _LEAST = 12_000, 800, 120
#: Events that are kept of each kind and rank.
_EVENTS = 100
#: Bytes and lines of a log's end that are shown.
_LOG_BYTES, _LOG_LINES = 20_000, 30
_INJECTED = (
    ("kill is injected", "kill"),
    ("pause of", "pause"),
    ("cut from", "cut"),
    ("cut that was injected ends", "healed"),
    ("each step is made to take", "straggler"),
)
#: The sentence for an event of several fields.
_TEXTS = {
    "member": "rank {rank}: {what}; {before} before, now {state}, in life {life}, at {endpoint}",
    "rejected": "{reason} from {origin}, {count} so far: {text}",
    "reincarnated": "continues in life {life}; a weight of {written_off} was written off",
    "left": "a weight of {written_off} was written off",
    "welcomed": "let in by a swarm of {members}",
}


class _Known(dict[str, Any]):
    """The fields of an event, a question mark for those that it does not have."""

    def __missing__(self, name: str) -> str:
        return "?"


@dataclass(frozen=True)
class Event:
    """Something that does not happen at every step."""

    rank: int
    kind: str
    text: str
    time: float | None = None
    step: int | None = None
    disagreement: float | None = None


@dataclass
class Rank:
    """What one rank wrote, in all its lives."""

    rank: int
    series: Series
    events: list[Event] = field(default_factory=list)
    #: Events beyond those that are kept.
    more_events: int = 0
    starts: list[float] = field(default_factory=list)
    host: str = ""
    #: How many peers the swarm started with, as far as this one knows.
    peers: int = 0
    #: The processes of each replica, which count the samples and steps of their replica alike.
    rows: int = 1
    summary: dict[str, Any] | None = None
    log: str = ""

    @property
    def lives(self) -> int:
        """How often it was started."""
        return max(len(self.starts), int(self.series.life[-1]) + 1 if len(self.series) else 0, 1)

    @property
    def end(self) -> str:
        """How it ended."""
        if self.summary is not None:
            return str(self.summary.get("exit", "finished"))
        last = [event.kind for event in self.events if event.kind in ("kill", "start", "start again")][-1:]
        return "killed, as injected" if last == ["kill"] else "no end recorded"


@dataclass
class Run:
    """A run."""

    path: Path
    config: dict[str, Any]
    ranks: list[Rank]

    @property
    def replicas(self) -> list[list[Rank]]:
        """The ranks of each replica: without a grid, one."""
        found: dict[int, list[Rank]] = {}
        for rank in self.ranks:
            found.setdefault(rank.rank // rank.rows, []).append(rank)
        return list(found.values())

    @property
    def missing(self) -> list[int]:
        """Ranks that the swarm started with, and that have no records here."""
        there = {rank.rank for rank in self.ranks}
        started = self.config.get("peers", 0) if not self.config.get("hostfile") else 0
        started = started if isinstance(started, int) else 0
        return [rank for rank in range(max(started, *(one.peers for one in self.ranks))) if rank not in there]


def read_run(path: Path) -> Run:
    """Read a run directory; an error names the file, and the line, that cannot be read."""
    if not path.is_dir():
        raise CommandError(
            f"{path} {'is not a directory' if path.exists() else 'does not exist'}: name the directory of a run"
        )
    try:
        found = sorted(int(one.name[5:]) for one in path.iterdir() if re.fullmatch(r"rank-[0-9]{1,9}", one.name))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    config = path / "config.toml"
    if not found and not config.exists():
        raise CommandError(
            f"{path} is not a run directory: it contains neither config.toml nor rank-0; name the directory of a run"
        )
    limit = min(_MOST, max(_LEAST, _ROWS // max(1, len(found))))
    ranks = [_read_rank(path / f"rank-{rank}", rank, limit) for rank in found]
    if not any(len(rank.series) or rank.events or rank.summary for rank in ranks):
        raise CommandError(f"{path} contains no records yet: try again when its peers have trained")
    return Run(path, read_toml(config) if config.exists() else {}, ranks)


def _read_rank(path: Path, rank: int, limit: int) -> Rank:
    events, starts, resumes, more, host, (peers, rows) = _read_events(path / "events.jsonl", rank)
    series = Series(limit, starts, resumes)
    metrics = path / "metrics.jsonl"
    for number, lines in read_lines(metrics):
        if not series.add(lines):
            bad = next(index for index, line in enumerate(lines) if not Series(1).add([line]))
            raise CommandError(f"{metrics}: line {number + bad} lacks the numbers step and seconds; remove the line")
    return Rank(rank, series, events, more, starts, host, peers, rows, read_json(path / "summary.json"), _tail(path))


def _read_events(
    path: Path, rank: int
) -> tuple[list[Event], list[float], list[tuple[float, float]], int, str, tuple[int, int]]:
    events: list[Event] = []
    kept: dict[str, int] = {}
    starts: list[float] = []
    resumes: list[tuple[float, float]] = []
    more, host, peers, rows = 0, "", 0, 1
    for _, lines in read_lines(path):
        for line in lines:
            event = _event(rank, line, again=bool(kept.get("start")))
            if event.kind in ("start", "start again"):
                host = str(line.get("host", ""))
                peers = max(peers, line["peers"]) if isinstance(line.get("peers"), int) else peers
                rows = max(rows, line["rows"]) if isinstance(line.get("rows"), int) else rows
                if event.time is not None:
                    starts.append(event.time)
            if event.kind == "resume" and event.time is not None and event.step is not None:
                resumes.append((event.time, event.step))
            kept[event.kind] = kept.get(event.kind, 0) + 1
            if kept[event.kind] <= _EVENTS:
                events.append(event)
            else:
                more += 1
    return events, starts, resumes, more, host, (peers, rows)


def _event(rank: int, line: dict[str, Any], *, again: bool) -> Event:
    kind, text = str(line.get("event", "?")), str(line.get("text", ""))
    if kind == "start":
        kind = "start again" if again else "start"
        text = f"on {line.get('host', 'an unnamed host')}"
    elif kind == "injected":
        kind = "note" if "not injected" in text else next((name for words, name in _INJECTED if words in text), kind)
    elif kind in _TEXTS:
        shown = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in line.items()}
        life = line.get("incarnation")
        if isinstance(life, int):
            shown["life"] = life_text(life)
        text = _TEXTS[kind].format_map(_Known(shown))
    apart = _number(line.get("disagreement"))
    if kind == "consensus" and apart is not None:
        text = f"disagreement {apart:.2g}"
    step = _number(line.get("step"))
    return Event(rank, kind, text, _number(line.get("time")), None if step is None else int(step), apart)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 and math.isfinite(value) else None


def _tail(path: Path) -> str:
    """Return the last lines of a log."""
    log = path / "log.txt"
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:])
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CommandError(f"cannot read {log}: {error.strerror or error}") from error
