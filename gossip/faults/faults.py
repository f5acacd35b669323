"""The faults of a run of real processes: parsing each ``--fault TEXT``, and checking all of them together.

    kill:RANK@MOMENT                   the process is killed, at its own step or at that time
    restart:RANK@MOMENT                a killed process is started again; its starter counts the steps of the others
    pause:RANK@MOMENT+SPAN             the process is stopped; the span is a time
    cut:RANKS|RANKS@MOMENT+SPAN        nothing passes between two groups; each peer counts its own steps
    drop:SHARE                         messages that are lost; the simulator's word, loss, is accepted too
    duplicate:SHARE, corrupt:SHARE     messages that arrive twice, or with a flipped bit
    delay:TIME[-TIME]                  the time that messages take
    bandwidth:50mbit                   of each directed link

With a grid a rank may be written REPLICA.ROW, as in kill:1.0@300; a restart is that of the whole replica.

The words are those of the simulator. `gossip.faults.grammar` parses the text after the colon; its names can be imported
from here. Times count from the start of the run. Every error is a `SettingsError` that quotes the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from gossip.errors import SettingsError
from gossip.faults.grammar import (
    Cut,
    Incident,
    Moment,
    Pause,
    Straggler,
    parse_bandwidth,
    parse_cut,
    parse_delay,
    parse_incident,
    parse_pause,
    parse_straggler,
)
from gossip.faults.placed import cut_in_row, with_ranks
from gossip.faults.weather import Weather
from gossip.grids import Grid
from gossip.shares import parse_share
from topologies.spec import suggest

__all__ = ["Cut", "Fault", "Faults", "Incident", "Moment", "Pause", "Straggler", "parse_bandwidth", "parse_cut",
           "parse_delay", "parse_fault", "parse_faults", "parse_incident", "parse_pause", "parse_share",
           "parse_straggler", "parse_stragglers"]  # fmt: skip

_Form = TypeVar("_Form")
#: The content of a fault, without its kind.
Said = Incident | Pause | Cut | float | tuple[float, float]

_KINDS: dict[str, Callable[[str], Said]] = {
    "kill": parse_incident,
    "restart": parse_incident,
    "pause": parse_pause,
    "cut": parse_cut,
    "drop": parse_share,
    "duplicate": parse_share,
    "corrupt": parse_share,
    "delay": parse_delay,
    "bandwidth": parse_bandwidth,
}
#: The field of the weather for each kind of fault.
_WEATHER = {
    "drop": "loss",
    "duplicate": "duplicate",
    "corrupt": "corrupt",
    "delay": "delay",
    "bandwidth": "bandwidth",
}
_EXAMPLES = "kill:1@300, pause:1@100+10s, cut:0-3|4-7@200+30s or drop:5%"


@dataclass(frozen=True)
class Fault:
    """One fault, and its text."""

    kind: str
    said: Said
    text: str


@dataclass(frozen=True)
class Faults:
    """All faults of a run."""

    kills: tuple[Incident, ...] = ()
    restarts: tuple[Incident, ...] = ()
    pauses: tuple[Pause, ...] = ()
    cuts: tuple[Cut, ...] = ()
    #: None: the network is not disturbed.
    weather: Weather | None = None

    def __bool__(self) -> bool:
        return self != Faults()

    def cuts_off(self, rank: int) -> bool:
        """Whether the rank is on a side of any cut."""
        return any(rank in cut.left | cut.right for cut in self.cuts)

    def in_row(self, grid: Grid, row: int) -> Faults:
        """Return the faults as a row of a replica has them: its transport knows replicas, and so its cuts are theirs.

        Kills, restarts and pauses are those of processes, as before.
        """
        if grid.rows == 1:
            return self
        cuts = (cut_in_row(cut, grid, row) for cut in self.cuts)
        return replace(self, cuts=tuple(cut for cut in cuts if cut is not None))


def parse_fault(text: str, grid: Grid | None = None) -> Fault:
    """Read ``KIND:...``, in which a grid lets ranks be written REPLICA.ROW."""
    kind, colon, rest = text.partition(":")
    kind = kind.strip(" ")
    kind = "drop" if kind == "loss" else kind
    if kind not in _KINDS:
        raise SettingsError(f"{text!r}: {suggest('fault', kind, _KINDS)} Examples of faults: {_EXAMPLES}")
    if not colon:
        raise SettingsError(f"{text!r} is not of the form {kind}:..., as in {_EXAMPLES}")
    try:
        said = _KINDS[kind](with_ranks(rest, "@", grid))
    except SettingsError as error:
        raise SettingsError(f"{text!r}: {error}") from None
    if isinstance(said, float) and kind != "bandwidth" and said >= 1:
        raise SettingsError(f"{text!r}: the share must be less than 100%, such as {kind}:5%")
    if isinstance(said, Pause | Cut) and not said.span.value > 0:
        raise SettingsError(f"{text!r}: the span must be longer than 0, such as +10s")
    if isinstance(said, Pause) and said.span.in_steps:
        raise SettingsError(f"{text!r}: a paused peer counts no steps; give the span as a time, such as +10s")
    return Fault(kind, said, text)


def parse_faults(texts: Iterable[str], world_size: int, seed: int = 0, grid: Grid | None = None) -> Faults:
    """Parse the faults of a run, and refuse faults that cannot happen: a silent one would look like resilience.

    Args:
        texts: the texts of the faults, for `parse_fault`.
        world_size: the number of peers; all ranks are below it.
        seed: the seed of the weather.
        grid: of the run. Its replicas are killed and restarted as a unit, whichever row is named.
    """
    faults: list[Fault] = []
    for fault in (parse_fault(text, grid) for text in texts):
        _check_ranks(fault.text, _ranks_of(fault.said), world_size)
        if grid is not None and isinstance(fault.said, Cut):
            _check_cut(fault.text, fault.said, grid)
        for other in faults:
            if fault.kind == other.kind and (fault.said == other.said or isinstance(fault.said, float | tuple)):
                raise SettingsError(f"{fault.text!r}: {fault.kind} is already given by {other.text!r}; give it once")
        faults.append(fault)
    rows = 1 if grid is None else grid.rows
    for replica in range(world_size // rows):
        lives = [one for one in faults if isinstance(one.said, Incident) and one.said.rank // rows == replica]
        kills, restarts = ([one for one in lives if one.kind == kind] for kind in ("kill", "restart"))
        # Rows that are killed at the same moment die together.
        kills = list({_at(one): one for one in kills}.values()) if rows > 1 else kills
        _check_lives("rank" if rows == 1 else "replica", str(replica) + ".0" * (rows > 1), kills, restarts)
    said: dict[str, Any] = {_WEATHER[one.kind]: one.said for one in faults if one.kind in _WEATHER}
    weather = Weather(seed, **said)
    return Faults(
        _all(faults, "kill", Incident),
        _all(faults, "restart", Incident),
        _all(faults, "pause", Pause),
        _all(faults, "cut", Cut),
        None if weather == Weather(seed) else weather,
    )


def parse_stragglers(texts: Iterable[str], world_size: int, grid: Grid | None = None) -> tuple[Straggler, ...]:
    """Parse the stragglers of a run of real processes, each by `parse_straggler`. None may be faster than normal."""
    stragglers = []
    for text in texts:
        straggler = parse_straggler(with_ranks(text, "=", grid))
        _check_ranks(text, straggler.ranks or (), world_size)
        if min(straggler.factors) < 1:
            raise SettingsError(
                f"{text!r}: a real peer can be slowed down, not sped up; use a factor of 1x or more, such as 4x"
            )
        stragglers.append(straggler)
    return tuple(stragglers)


def _all(faults: Iterable[Fault], kind: str, form: type[_Form]) -> tuple[_Form, ...]:
    return tuple(one.said for one in faults if one.kind == kind and isinstance(one.said, form))


def _ranks_of(said: Said) -> Iterable[int]:
    if isinstance(said, Cut):
        return said.left | said.right
    return (said.rank,) if isinstance(said, Incident | Pause) else ()


def _check_ranks(text: str, ranks: Iterable[int], world_size: int) -> None:
    outside = sorted(rank for rank in ranks if rank >= world_size)
    if outside:
        raise SettingsError(f"{text!r}: rank {outside[0]} does not exist; ranks are 0 to {world_size - 1}")


def _check_cut(text: str, cut: Cut, grid: Grid) -> None:
    """Raise a `SettingsError` if a cut separates no two processes that exchange anything."""
    if all(cut_in_row(cut, grid, row) is None for row in range(grid.rows)):
        raise SettingsError(
            f"{text!r} cuts nothing off: with the grid {grid} a process exchanges with the same row of other replicas. "
            f"Name the same row on both sides, such as cut:0.0|1.0@200+30s"
        )


def _check_lives(unit: str, who: str, kills: Sequence[Fault], restarts: Sequence[Fault]) -> None:
    """Raise a `SettingsError` unless the kills and restarts of one rank, or of one replica, alternate."""
    name = f"{unit} {who.partition('.')[0]}"
    if len(restarts) > len(kills):
        often = "never killed" if not kills else f"killed only {len(kills)}x"
        raise SettingsError(f"{restarts[-1].text!r}: {name} is {often}, so it cannot be restarted; add kill:{who}@100")
    if len(kills) > len(restarts) + 1:
        raise SettingsError(f"{kills[-1].text!r}: {name} is killed before; add a restart:{who}@... in between")
    if len({_at(one).in_steps for one in (*kills, *restarts)}) > 1:
        if len(kills) > 1:
            raise SettingsError(f"{kills[-1].text!r}: give all moments of {name} in steps, or all as times")
        return  # steps and times cannot be compared
    kills, restarts = (sorted(some, key=lambda one: _at(one).value) for some in (kills, restarts))
    turns = [one for pair in zip(kills, restarts, strict=False) for one in pair] + list(kills[len(restarts) :])
    for before, after in pairwise(turns):
        if not _at(before).value < _at(after).value:
            wrong = "is killed only after that" if after.kind == "restart" else "is not restarted before that"
            raise SettingsError(f"{after.text!r}: {name} {wrong} (see the fault {before.text!r})")


def _at(fault: Fault) -> Moment:
    assert isinstance(fault.said, Incident)
    return fault.said.at
