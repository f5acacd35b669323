"""A picture of a simulated run: how the disagreement falls, and what happened meanwhile."""

from __future__ import annotations

from matplotlib.figure import Figure

from gossip.faults import Moment
from gossip.simulation import Result

__all__ = ["figure"]

_FLOOR = 1e-16


def figure(result: Result) -> Figure:
    """Draw the disagreement over virtual time; kills, joins and cuts are marked where they happened."""
    scenario = result.scenario
    picture = Figure(figsize=(9, 5), dpi=110)
    axes = picture.subplots()
    times = [time for time, _ in result.curve]
    axes.plot(times, [max(value, _FLOOR) for _, value in result.curve], color="C0", linewidth=1.6)
    axes.set_yscale("log")
    axes.set(xlabel="virtual seconds", ylabel="disagreement, relative to the start", xlim=(0, times[-1] or 1))
    axes.grid(alpha=0.3)

    def seconds(moment: Moment) -> float:
        return moment.seconds(scenario.step_seconds)

    marks = [(seconds(kill.at), f"kill {kill.rank}", "C3") for kill in scenario.kills]
    marks += [(seconds(join.at), f"join {join.rank}", "C2") for join in scenario.joins]
    marks += [(seconds(restart.at), f"restart {restart.rank}", "C2") for restart in scenario.restarts]
    marks += [(seconds(pause.at), f"pause {pause.rank}", "C1") for pause in scenario.pauses]
    for at, label, colour in marks:
        axes.axvline(at, color=colour, linewidth=1, linestyle="--")
        axes.text(at, 0.98, f" {label}", color=colour, rotation=90, va="top", transform=axes.get_xaxis_transform())
    for cut in scenario.cuts:
        start = seconds(cut.at)
        axes.axvspan(start, start + seconds(cut.span), color="C7", alpha=0.2)
        axes.text(start, 0.02, " cut", color="C7", va="bottom", transform=axes.get_xaxis_transform())
    axes.set_title(
        f"{scenario.peers} peers, {scenario.algorithm} on {scenario.topology}, loss {scenario.loss:.0%}", fontsize=11
    )
    return picture
