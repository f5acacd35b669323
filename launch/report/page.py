"""A report as one page of HTML, with everything in it: no script, nothing from elsewhere."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import fields
from html import escape
from typing import Any

from gossip.version import __version__
from launch.options.options import LaunchOptions
from launch.report.axes import duration, short
from launch.report.charts import charts
from launch.report.lanes import lanes, skipped
from launch.report.run_directory import Run
from launch.report.style import style
from launch.report.svg import drawn, shape
from launch.report.tables import bytes_of, events_table, ranks_table, samples_of
from launch.report.time_axis import TimeLine

__all__ = ["page"]

#: Steps that take fewer seconds depend on the machine more than on an injected straggler.
_SHORT_STEP = 0.005
_SIGNS = ("kill", "start again", "cut", "healed", "pause", "straggler", "warning", "consensus")


def page(run: Run) -> str:
    """Return the page about a run."""
    line = TimeLine(run)
    name = escape(run.path.resolve().name)
    figures = "\n".join(
        f"<figure><h3>{escape(chart.title)} <small>{escape(chart.y.label)}</small></h3>{drawn(chart)}</figure>"
        for chart in charts(run, line)
    )
    ranks = [rank.rank for rank in run.ranks]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} - gossip report</title>
<style>
{style(ranks)}
</style>
</head>
<body>
<header>
<h1>{name}</h1>
<p class="sub">{_ends(run)}{_began(line)}</p>
{_notices(run, line)}
{_tiles(run, line)}
</header>
<main>
<h2>How it was launched</h2>
{_launched(run.config)}
<h2>Ranks</h2>
{ranks_table(run.ranks)}
<h2>Curves</h2>
{_picker(ranks)}
<div class="grid">
<figure class="wide"><h3>What happened to each rank</h3>
{lanes(run, line, 480)}{lanes(run, line, 1080)}{_signs(run)}</figure>
{figures}
</div>
<p class="note">Bold lines are smoothed; faint ones, where there are any, are not. {_faint(run)}</p>
<h2>Events</h2>
{events_table(run, line)}
<h2>Ends of the logs</h2>
{_logs(run)}
</main>
<footer>gossip report, version {escape(__version__)}. From {escape(str(run.path.resolve()))}</footer>
</body>
</html>
"""


def _ends(run: Run) -> str:
    good = sum(rank.end == "finished" for rank in run.ranks)
    return f"{good} of {len(run.ranks)} ranks finished"


def _began(line: TimeLine) -> str:
    if not 1e9 < line.begin < 1e11:
        return ""
    return time.strftime("; began %Y-%m-%d %H:%M:%S UTC", time.gmtime(line.begin))


def _notices(run: Run, line: TimeLine) -> str:
    found = []
    for rank in run.ranks:
        odd = rank.series.total("odd")
        if odd:
            share = f"in {odd:,.0f} of {rank.series.total('lines'):,.0f} steps"
            found.append(
                f"The loss of rank {rank.rank} is NaN or infinite {share}, first in step {rank.series.first_odd}."
            )
        if rank.series.superseded:
            found.append(
                f"{rank.series.superseded:,} steps of rank {rank.rank} were repeated after a resume, and count once."
            )
    open_ends = [str(rank.rank) for rank in run.ranks if rank.summary is None]
    if open_ends:
        found.append(f"Rank {', '.join(open_ends)} has no recorded end: it was killed, or is still running.")
    if run.missing:
        found.append(f"Rank {', '.join(map(str, run.missing))} has no records here: each rank writes on its own host.")
    if line.left_out:
        found.append(f"The time axes leave out {duration(line.left_out)} in which no rank wrote anything.")
    paces = [rank.series.total("seconds") / rank.series.total("lines") for rank in run.ranks if len(rank.series)]
    if run.config.get("straggler") and paces and min(paces) < _SHORT_STEP:
        found.append(
            f"A step takes {1000 * min(paces):.1f} ms on the fastest rank. So short a step depends on which process "
            "gets the CPU: a straggler may be much slower than it was told to be. Longer steps show the factor."
        )
    if not any(rank.series.total("losses") + rank.series.total("odd") for rank in run.ranks):
        found.append("No loss was recorded: log it in the script with peer.log(loss=loss).")
    return '<ul class="notices">' + "".join(f"<li>{escape(one)}</li>" for one in found) + "</ul>" if found else ""


def _tiles(run: Run, line: TimeLine) -> str:
    # The rows of a replica make its steps together, and each of them records all its samples.
    samples = sum(max(map(samples_of, rows)) for rows in run.replicas)
    steps = sum(max(rank.series.total("lines") for rank in rows) for rows in run.replicas)
    crews = {} if len(run.replicas) == len(run.ranks) else {"replicas": str(len(run.replicas))}
    tiles = {
        "ranks": str(len(run.ranks)),
        **crews,
        "restarts": str(sum(rank.lives - 1 for rank in run.ranks)),
        "duration": duration(line.length),
        "steps": f"{steps:,.0f}",
        "samples": f"{samples:,.0f}",
        "samples per second": f"{samples / line.length:,.1f}" if line.length else "-",
        "sent": short(sum(bytes_of(rank, "sent") for rank in run.ranks)) + "B",
    }
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles.items())
    return f'<dl class="tiles">{cells}</dl>'


def _launched(config: Mapping[str, Any]) -> str:
    if not config:
        return '<p class="note">The run has no config.toml, so gossip launch did not start it.</p>'
    rows = "\n".join(f"{escape(name)} = {escape(repr(value))}" for name, value in config.items())
    return (
        f'<pre class="wrap">{escape(_command(config))}</pre>'
        f"<details><summary>all options (config.toml)</summary><pre>{rows}</pre></details>"
    )


def _command(config: Mapping[str, Any]) -> str:
    """Return the command line that says the same as a config."""
    usual = {one.name: one.default for one in fields(LaunchOptions)}
    words = ["gossip", "launch"]
    for name, value in config.items():
        value = tuple(value) if isinstance(value, list) else value
        if name in ("script", "arguments") or value == usual.get(name) or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, tuple) else (value,):
            words += [option] if one is True else [option, str(one)]
    arguments = config.get("arguments", [])
    return shlex.join([*words, str(config.get("script", "?")), *(map(str, arguments) if arguments else ())])


def _picker(ranks: list[int]) -> str:
    labels = ['<label><input type="radio" name="pick" id="pick-all" checked>all</label>']
    for rank in ranks:
        swatch = f'<svg class="sw r{rank}" viewBox="0 0 20 10" aria-hidden="true"><path d="M1 5H19"/></svg>'
        labels.append(f'<label><input type="radio" name="pick" id="pick-{rank}">{swatch}rank {rank}</label>')
    return f'<fieldset class="pick"><legend>Show</legend>{"".join(labels)}</fieldset>'


def _signs(run: Run) -> str:
    there = {event.kind for rank in run.ranks for event in rank.events} - skipped(run)
    signs = "".join(
        f'<li><svg viewBox="-6 -6 12 12" aria-hidden="true">{shape(kind, 0, 0)}</svg>{kind}</li>'
        for kind in _SIGNS
        if kind in there
    )
    caption = "A bar is one life of a rank: from its start to its last record."
    return f'<ul class="keys">{signs}</ul><figcaption>{caption}</figcaption>'


def _faint(run: Run) -> str:
    lines = max(rank.series.total("lines") / max(1, len(rank.series)) for rank in run.ranks)
    return f"Each point stands for up to about {2 * lines:.0f} steps." if lines > 1 else "Each point is a step."


def _logs(run: Run) -> str:
    logs = [
        f'<details><summary>rank {rank.rank}</summary><pre class="wrap">{escape(rank.log)}</pre></details>'
        for rank in run.ranks
        if rank.log
    ]
    return "\n".join(logs) or '<p class="note">None.</p>'
