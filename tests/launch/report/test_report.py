"""``gossip report``: what was recorded is on the page, whatever state it is in; what cannot be read is named."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from commands import Capture, failure, said

_BEGIN = 1_700_000_000.0
_ALONE = {"meta", "input"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.words: list[str] = []
        self.paths: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        told = dict(attrs)
        assert not {"src", "href", "onload", "onclick"} & set(told), "nothing from elsewhere"
        if tag not in _ALONE:
            self._open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag == "path":
            self.paths.setdefault(told.get("class") or "", told.get("d") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _ALONE:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if "td" in self._open or "th" in self._open:
            self.cells[-1][-1] += data

    def rank(self, rank: int) -> dict[str, str]:
        return dict(zip(self.cells[0], self.cells[1 + rank], strict=True))

    @property
    def text(self) -> str:
        return " ".join(self.words)


def steps(count: int, first: int = 1, begin: float = _BEGIN, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "time": begin + step - first + 1, "step": step, "seconds": 1.0, "wait_seconds": 0.25, "weight": 0.5,
            "bytes_sent": 1000, "bytes_received": 500, "samples": 32, "loss": 1 / step, **more,
        }
        for step in range(first, first + count)
    ]  # fmt: skip


def write(path: Path, *lines: dict[str, Any], tail: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)


def start(time: float = _BEGIN, **more: Any) -> dict[str, Any]:
    return {"time": time, "event": "start", "host": "box", "peers": 1, **more}


def summary(**more: Any) -> dict[str, Any]:
    return {"exit": "finished", "bytes_sent": 12_000, "bytes_received": 5000, "weight": 0.75, "rejected": {}, **more}


def make(run: Path, count: int = 10, rank: int = 0, tail: str = "", **more: Any) -> Path:
    """Write a rank that finished."""
    home = run / f"rank-{rank}"
    write(home / "metrics.jsonl", *steps(count, **more), tail=tail)
    write(home / "events.jsonl", start())
    write(home / "summary.json", summary())
    return home


def report_text(capsys: Capture, run: Path) -> str:
    assert said(capsys, "report", str(run)) == f"{run / 'report.html'}\n"
    return (run / "report.html").read_text()


def report(capsys: Capture, run: Path) -> Page:
    return Page(report_text(capsys, run))


def test_the_table_has_the_figures_of_each_rank(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path)
    write(make(tmp_path, rank=1, count=4) / "summary.json", summary(exit="failed: X", rejected={"stale": 2, "late": 1}))
    page = report(capsys, tmp_path)
    assert page.rank(0) == {
        "rank": "0", "host": "box", "how it ended": "finished", "lives": "1", "steps": "10", "samples": "320",
        "time in steps": "10 s", "samples/s": "32.0", "waited": "25.0%", "sent": "12 kB", "received": "5 kB",
        "weight": "0.5", "last loss": "0.1", "rejected": "0",
    }  # fmt: skip
    second = page.rank(1)
    assert (second["how it ended"], second["steps"], second["rejected"]) == ("failed: X", "4", "3")
    assert "1 of 2 ranks finished; began 2023-11-14 22:13:20 UTC" in page.text


def test_the_rows_of_a_replica_count_its_samples_and_steps_once(capsys: Capture, tmp_path: Path) -> None:
    for rank, count in enumerate((10, 9, 4, 4)):  # row 1 of replica 0 was killed before it wrote its last step
        home = make(tmp_path, rank=rank, count=count)
        write(home / "events.jsonl", start(peers=4, rows=2))
    (tiles,) = re.findall(r'<dl class="tiles">(.*?)</dl>', report_text(capsys, tmp_path))
    figures = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", tiles))
    assert (figures["ranks"], figures["replicas"]) == ("4", "2")
    assert (figures["steps"], figures["samples"]) == ("14", str(14 * 32))
    assert figures["samples per second"] == f"{14 * 32 / 10:.1f}"
    assert figures["sent"] == "48 kB", "each row sends its own part"


def test_how_it_was_launched_is_a_command(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "config.toml").write_text(
        'script = "a b.py"\narguments = ["--x"]\npeers = 1\nseed = 0\nresume = true\nfault = ["kill:1@3", "drop:5%"]\n'
    )
    page = report(capsys, tmp_path)
    assert "gossip launch --peers 1 --resume --fault kill:1@3 --fault drop:5% 'a b.py' --x" in page.text


def test_each_curve_is_there_and_says_what_it_is(capsys: Capture, tmp_path: Path) -> None:
    home = make(tmp_path)
    write(home / "events.jsonl", start(), {"time": _BEGIN + 9, "event": "consensus", "step": 9, "disagreement": 0.25})
    page = report(capsys, tmp_path)
    for title in ("Loss over time", "Loss over steps", "Time of a step", "Time spent waiting", "Push-sum weight",
                  "Sent", "Received", "Disagreement"):  # fmt: skip
        assert page.words.count(title) + page.words.count(f"{title} ") == 2, f"{title}: heading and title of the SVG"
    assert page.tags.count("desc") == 10
    assert page.paths["l r0"].count("L") == 9


def test_a_curve_is_where_its_values_are(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path, 2)
    page = report(capsys, tmp_path)
    (x1, y1), (x2, y2) = (
        [float(one) for one in found] for found in re.findall(r"[ML]([\d.]+) ([\d.]+)", page.paths["l r0"])
    )
    assert (x1 - 54, x2 - 54) == (pytest.approx(204), pytest.approx(408)), "1 s and 2 s of 2 s"
    assert y1 < y2, "the loss falls from 1 to 0.5"


@pytest.mark.parametrize("tail", ['{"step": 11, "seco', '{"time": 1', "{", "\x00\x00"])
def test_a_torn_last_line_is_left_out(capsys: Capture, tmp_path: Path, tail: str) -> None:
    make(tmp_path, tail=tail)
    assert report(capsys, tmp_path).rank(0)["steps"] == "10"


def test_a_run_that_goes_on_has_no_end(capsys: Capture, tmp_path: Path) -> None:
    (make(tmp_path) / "summary.json").unlink()
    page = report(capsys, tmp_path)
    row = page.rank(0)
    assert (row["how it ended"], row["sent"], row["weight"], row["rejected"]) == (
        "no end recorded",
        "10 kB",
        "0.5",
        "-",
    )
    assert "Rank 0 has no recorded end" in page.text


def test_a_restarted_rank_is_two_lives_in_one_row(capsys: Capture, tmp_path: Path) -> None:
    home = tmp_path / "rank-0"
    kill = {"time": _BEGIN + 10, "event": "injected", "text": "a kill is injected at step 10"}
    write(home / "metrics.jsonl", *steps(10), *steps(5, begin=_BEGIN + 20))
    write(home / "events.jsonl", start(), kill, start(_BEGIN + 20))
    write(home / "summary.json", summary())
    page = report(capsys, tmp_path)
    row = page.rank(0)
    assert (row["lives"], row["steps"], row["samples"]) == ("2", "15", "480")
    assert row["sent"] == "22 kB", "10 kB of the first life, and what the summary says of the last"
    assert page.paths["l r0"].count("M") == 2, "the curve is broken"
    kinds = [row[3] for row in page.cells if len(row) == 5]
    assert kinds == ["event", "start", "kill", "start again"]
    (home / "summary.json").unlink()
    write(home / "events.jsonl", start(), start(_BEGIN + 1), kill)
    assert report(capsys, tmp_path).rank(0)["how it ended"] == "killed, as injected"


def test_steps_that_were_done_again_after_a_resume_count_once(capsys: Capture, tmp_path: Path) -> None:
    home = make(tmp_path)
    resume = {"time": _BEGIN + 20, "event": "resume", "step": 6, "text": "from the checkpoint of step 6"}
    write(home / "metrics.jsonl", *steps(10), *steps(4, first=7, begin=_BEGIN + 20))
    write(home / "events.jsonl", start(), start(_BEGIN + 20), resume)
    write(home / "summary.json", summary(bytes_sent=4000, bytes_received=2000))
    page = report(capsys, tmp_path)
    row = page.rank(0)
    assert (row["lives"], row["steps"], row["samples"], row["sent"]) == ("2", "10", "320", "10 kB")
    assert "4 steps of rank 0 were repeated after a resume, and count once." in page.text
    assert "from the checkpoint of step 6" in page.text


def test_a_loss_that_is_not_finite_is_shown_as_such(capsys: Capture, tmp_path: Path) -> None:
    told = steps(10)
    for line in told[6:]:
        line["loss"] = float("nan")
    write(make(tmp_path) / "metrics.jsonl", *told)
    page = report(capsys, tmp_path)
    assert "The loss of rank 0 is NaN or infinite in 4 of 10 steps, first in step 7." in page.text
    assert page.rank(0)["last loss"] == "not finite"
    assert page.words.count("not finite") == 3, "in the table and in both charts"
    assert page.paths["l r0"].count("L") == 5


def test_one_huge_loss_does_not_spoil_those_after_it(capsys: Capture, tmp_path: Path) -> None:
    told = steps(400)
    told[0]["loss"] = 1e30
    write(make(tmp_path) / "metrics.jsonl", *told)
    text = (tmp_path / "report.html").read_text() if report(capsys, tmp_path) else ""
    assert "At the end: rank 0 0.00" in text


def test_without_a_loss_the_page_says_how_to_log_it(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path, loss=None)
    page = report(capsys, tmp_path)
    assert "peer.log(loss=loss)" in page.text
    assert "Loss over time" not in page.text
    assert "Time of a step " in page.words


def test_text_is_escaped(capsys: Capture, tmp_path: Path) -> None:
    evil = "</pre><script>alert('x')</script>&"
    run = tmp_path / "<b>run"
    home = make(run)
    (home / "log.txt").write_text(evil)
    write(home / "events.jsonl", start(host=evil), {"time": _BEGIN + 1, "event": "warning", "text": evil},
          {"time": _BEGIN + 1, "event": evil, "text": evil})  # fmt: skip
    write(home / "summary.json", summary(exit=evil, rejected={evil: 1}))
    (run / "config.toml").write_text(f"script = {json.dumps(evil)}\n")
    page = report(capsys, run)
    assert "script" not in page.tags
    assert page.rank(0)["how it ended"] == evil
    assert page.words.count(evil) >= 4


def test_64_ranks_and_very_many_events_still_make_a_page(capsys: Capture, tmp_path: Path) -> None:
    for rank in range(64):
        make(tmp_path, rank=rank, count=30)
    many = [{"time": _BEGIN + at / 100, "event": "warning", "text": "w"} for at in range(3000)]
    write(tmp_path / "rank-0" / "events.jsonl", start(), *many)
    page = report(capsys, tmp_path)
    assert len([row for row in page.cells if len(row) == 14]) == 65
    assert "2900 more events are in the files events.jsonl" in page.text
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_ranks_of_other_hosts_are_missed(capsys: Capture, tmp_path: Path) -> None:
    write(make(tmp_path) / "events.jsonl", start(peers=3))
    assert "Rank 1, 2 has no records here:" in report(capsys, tmp_path).text


def test_the_night_before_a_resume_is_left_out(capsys: Capture, tmp_path: Path) -> None:
    later = _BEGIN + 36_000
    home = make(tmp_path)
    write(home / "metrics.jsonl", *steps(100), *steps(100, 101, later))
    write(home / "events.jsonl", start(), start(later))
    page = report(capsys, tmp_path)
    assert "The time axes leave out 9.97 h in which no rank wrote anything" in page.text
    assert page.rank(0)["lives"] == "2"


def test_nothing_is_left_out_of_a_run_without_gaps(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path)
    assert "left out" not in report(capsys, tmp_path).text


def test_before_the_first_step_there_are_events_only(capsys: Capture, tmp_path: Path) -> None:
    write(tmp_path / "rank-0" / "events.jsonl", start())
    assert report(capsys, tmp_path).rank(0)["steps"] == "0"


def test_the_page_goes_where_it_is_told_to(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path / "run")
    target = tmp_path / "page.html"
    assert said(capsys, "report", str(tmp_path / "run"), "-o", str(target)) == f"{target}\n"
    assert sorted(one.name for one in (tmp_path / "run").iterdir()) == ["rank-0"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["page.html", "run"], "no temporary file is left"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rank-0/metrics.jsonl", '{"step": 1, "seconds": 1}\n{"st\n{"step": 2}\n', "line 2 is not JSON: "),
        ("rank-0/metrics.jsonl", '{"step": 1, "seconds": 1}\n[]\n', "line 2 is not a JSON object"),
        (
            "rank-0/metrics.jsonl",
            '{"step": 1, "seconds": 1}\n{"step": 2}\n',
            "line 2 lacks the numbers step and seconds",
        ),
        ("rank-0/metrics.jsonl", '{"a": [1\n2]}\n', "line 1 is not JSON: "),
        ("rank-0/metrics.jsonl", "\x00" * 3_000_000, "line 1 is longer than a million characters"),
        ("rank-0/events.jsonl", "x\n", "line 1 is not JSON: "),
        ("rank-0/summary.json", "[" * 100_000, "is not JSON: "),
        ("rank-0/summary.json", "[]", "does not contain a JSON object"),
        ("config.toml", "x =\n", "line 1, column "),
    ],
)
def test_what_cannot_be_read_is_named(capsys: Capture, tmp_path: Path, name: str, content: str, message: str) -> None:
    make(tmp_path)
    (tmp_path / name).write_text(content)
    error = failure(capsys, "report", str(tmp_path))
    assert error.startswith(f"{tmp_path / name}: ")
    assert message in error
    assert not (tmp_path / "report.html").exists()


def test_what_is_no_run_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert "does not exist" in failure(capsys, "report", str(tmp_path / "none"))
    assert "is not a run directory" in failure(capsys, "report", str(tmp_path))
    (tmp_path / "rank-0").mkdir()
    assert "contains no records yet" in failure(capsys, "report", str(tmp_path))
    (tmp_path / "rank-0" / "metrics.jsonl").mkdir()
    assert f"cannot read {tmp_path}/rank-0/metrics.jsonl: " in failure(capsys, "report", str(tmp_path))
    (tmp_path / "file").touch()
    assert "not a directory" in failure(capsys, "report", str(tmp_path / "file"))


def test_a_page_that_cannot_be_written_is_named(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path)
    assert f"cannot write {tmp_path}: " in failure(capsys, "report", str(tmp_path), "-o", str(tmp_path))
    nowhere = tmp_path / "none" / "x.html"
    assert f"cannot write {nowhere}: " in failure(capsys, "report", str(tmp_path), "-o", str(nowhere))


def test_a_full_disk_leaves_the_page_before_and_no_rest(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    (tmp_path / "report.html").write_text("before")

    def full(_: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    assert "No space left on device" in failure(capsys, "report", str(tmp_path))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["rank-0", "report.html"]
    assert (tmp_path / "report.html").read_text() == "before"


def test_a_straggler_of_very_short_steps_is_not_judged_by_its_factor(capsys: Capture, tmp_path: Path) -> None:
    make(tmp_path, seconds=0.001)
    make(tmp_path, rank=1, seconds=0.01)
    (tmp_path / "config.toml").write_text('straggler = ["1=4x"]\n')
    assert "A step takes 1.0 ms on the fastest rank." in report(capsys, tmp_path).text
    make(tmp_path, seconds=0.01)
    assert "A step takes" not in report(capsys, tmp_path).text
