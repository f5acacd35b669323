"""A picture of a simulated run: how the disagreement falls, and what happened meanwhile."""

from __future__ import annotations

from matplotlib.figure import Figure

from gossip.simulation import Result

__all__ = ["figure"]

_FLOOR = 1e-16
_COLOURS = {"kill": "C3", "join": "C2", "restart": "C2"}


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

    cut_since = None
    for at, what in result.incidents:
        if what == "cut":
            cut_since = at
        elif what == "heal" and cut_since is not None:
            axes.axvspan(cut_since, at, color="C7", alpha=0.2)
            axes.text(cut_since, 0.98, " cut", color="C7", va="top", transform=axes.get_xaxis_transform())
        else:
            colour = _COLOURS.get(what.split()[0], "C1")
            axes.axvline(at, color=colour, linewidth=1, linestyle="--")
            axes.text(at, 0.98, f" {what}", color=colour, rotation=90, va="top", transform=axes.get_xaxis_transform())
    axes.set_title(
        f"{scenario.peers} peers, {scenario.algorithm} on {scenario.topology}, loss {scenario.loss:.0%}", fontsize=11
    )
    return picture
