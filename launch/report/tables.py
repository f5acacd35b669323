"""The tables of a report: a line for each rank, and one for each event."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from launch.report.axes import duration, short
from launch.report.run_directory import Rank, Run
from launch.report.time_axis import TimeLine

__all__ = ["bytes_of", "events_table", "ranks_table", "samples_of"]

#: Events in the table.
_EVENTS = 400
_FREQUENT = ("warning", "member")
_HEADINGS = (
    "rank", "host", "how it ended", "lives", "steps", "samples", "time in steps", "samples/s", "waited", "sent",
    "received", "weight", "last loss", "rejected",
)  # fmt: skip
_LEFT = ("rank", "host", "how it ended")
_ABOUT_WEIGHTS = (
    "Weights are those at the end of the last steps, before the peers handed them over to each other and left. The "
    "weight that is in flight then is missing. With it, and without deaths and joins, they add up to 1 per peer."
)


def ranks_table(ranks: Sequence[Rank]) -> str:
    """Return the summary of each rank."""
    rows = [_cells(rank) for rank in ranks]
    head = "".join(f'<th scope="col"{_side(name)}>{name}</th>' for name in _HEADINGS)
    body = [
        "<tr>" + "".join(f"<td{_side(name)}>{cell}</td>" for name, cell in zip(_HEADINGS, row, strict=True)) + "</tr>"
        for row in rows
    ]
    table = f'<div class="scroll tall" tabindex="0"><table><tr>{head}</tr>\n' + "\n".join(body) + "</table></div>"
    return f'{table}<p class="note">{_ABOUT_WEIGHTS}</p>'


def samples_of(rank: Rank) -> float:
    """Return how many samples a rank trained on, in all its lives."""
    told = rank.series.total("samples")
    return told or _figure(rank.summary, "samples")


def bytes_of(rank: Rank, name: str) -> float:
    """Return the bytes ``sent`` or ``received`` in all lives; a summary also knows those outside of steps."""
    in_steps = rank.series.total(name)
    last = rank.series.total(name, last_life=True)
    return in_steps + max(0.0, _figure(rank.summary, f"bytes_{name}") - last)


def events_table(run: Run, line: TimeLine) -> str:
    """Return what happened, in the order of time."""
    events = sorted((event for rank in run.ranks for event in rank.events), key=lambda one: one.time or 0.0)
    more = sum(rank.more_events for rank in run.ranks)
    if len(events) > _EVENTS:  # what all say of each other, and warnings, give way first
        rare = [event for event in events if event.kind not in _FREQUENT][:_EVENTS]
        chosen = {id(event) for event in rare}
        chosen |= {id(event) for event in events if event.kind in _FREQUENT} if len(rare) < _EVENTS else set()
        kept = [event for event in events if id(event) in chosen][:_EVENTS]
        events, more = kept, more + len(events) - len(kept)
    rows = []
    for one in events:
        when = "" if one.time is None else f"{line.moment(one.time):.2f} s"
        step = "" if one.step is None else str(one.step)
        rows.append(
            f'<tr><td>{when}</td><td class="t">{_dot(one.rank)}</td><td>{step}</td>'
            f'<td class="t">{escape(one.kind)}</td><td class="t w">{escape(one.text)}</td></tr>'
        )
    head = '<tr><th>time</th><th class="t">rank</th><th>step</th><th class="t">event</th><th class="t">what</th></tr>'
    note = f'<p class="note">{more} more events are in the files events.jsonl of the ranks.</p>' if more else ""
    table = f'<div class="scroll tall" tabindex="0"><table>{head}\n' + "\n".join(rows) + f"</table></div>{note}"
    return table if rows else '<p class="note">None.</p>'


def _cells(rank: Rank) -> list[str]:
    series = rank.series
    seconds, samples = series.total("seconds"), samples_of(rank)
    rejected = (rank.summary or {}).get("rejected")
    counts = rejected if isinstance(rejected, dict) else {}
    refused = sum(count for count in counts.values() if isinstance(count, int))
    reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items())
    end = escape(rank.end)
    return [
        _dot(rank.rank),
        escape(rank.host) or "-",
        end if rank.end == "finished" else f'<span class="bad">{end}</span>',
        str(rank.lives),
        f"{series.total('lines'):,.0f}",
        f"{samples:,.0f}",
        duration(seconds) if seconds else "-",
        f"{samples / seconds:,.1f}" if seconds and samples else "-",
        f"{series.total('wait') / seconds:.1%}" if seconds else "-",
        short(bytes_of(rank, "sent")) + "B",
        short(bytes_of(rank, "received")) + "B",
        _weight(rank),
        _last_loss(rank),
        f'<span title="{escape(reasons)}">{refused:,}</span>' if reasons else "0" if rank.summary else "-",
    ]


def _weight(rank: Rank) -> str:
    """Return the weight in the last steps: in the summary it is what others had handed over, too."""
    weight = _figure(rank.summary, "weight")
    if rank.series.total("weights"):
        rows = rank.series.column("weights") > 0
        weight = float((rank.series.column("weight")[rows] / rank.series.column("weights")[rows])[-1])
    return f"{weight:.3g}" if weight else "-"


def _last_loss(rank: Rank) -> str:
    """Return the mean loss of the last rows, or that it was none at the end."""
    count, odd = rank.series.column("losses"), rank.series.column("odd")
    if len(odd) and odd[-1]:
        return '<span class="bad">not finite</span>'
    last = max(1, len(count) // 40)
    losses = count[-last:].sum()
    return f"{rank.series.column('loss')[-last:].sum() / losses:.4g}" if losses else "-"


def _figure(summary: dict[str, Any] | None, name: str) -> float:
    value = (summary or {}).get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _dot(rank: int) -> str:
    return f'<span class="dot r{rank}"></span>{rank}'


def _side(name: str) -> str:
    return ' class="t"' if name in _LEFT else ""
