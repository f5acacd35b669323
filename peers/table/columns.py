"""The columns of the table of a swarm, each in one place: what peers tell, what is checked, shown and given to scripts.

The launcher shows the table live, `gossip watch` and `gossip status` show it through any peer, and
`gossip status --json` gives its columns as fields. To add a column, add it here and let
`peers.reporting.reporter` say its value. A column that peers tell changes the length of a row, and so the wire version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peers.table.lives import life_text

__all__ = ["COLUMNS", "LONGEST", "RATES", "TOLD", "Column"]

#: Whatever is counted or measured is smaller; infinity and NaN are not.
_LARGEST = 1e300
#: Texts are shown on terminals: a few characters, and none that moves a cursor.
LONGEST = 48
_WORD = re.compile(r"[a-z]{1,16}")
_TEXT = re.compile(rf"[ -~]{{1,{LONGEST}}}")


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Column:
    """One column of the table; None in it means: not known, or not measured."""

    #: The name in the row that a peer tells, and of the field in JSON.
    name: str
    meaning: str
    #: The place in the row that a peer tells. Peers read a row by places: a new column takes the next free one.
    #: None: the peer does not tell it; the program that shows the table knows it.
    place: int | None = None
    #: Whether a told value is valid.
    accepts: Callable[[Any], bool] = _is_figure
    #: Figures that are counted are shown as integers.
    whole: bool = False
    #: The total of the peer whose rate, per second, this is.
    total: str = ""
    #: The heading; without one it is not shown in the table.
    title: str = ""
    #: How a figure is written; without it the column is text, to the left.
    form: str = ""
    shown: Callable[[Any], Any] = _as_it_is
    #: In which order columns are left out where the terminal is narrow, the lowest first; 0 stays.
    spare: int = 0
    #: Shown only if some peer has a value.
    optional: bool = False
    #: Says nothing of a member that is dead or has left.
    living: bool = False
    in_json: bool = True

    def read(self, value: Any) -> Any:
        """Return a value that was told, or raise ValueError if it is not valid."""
        if value is not None and not self.accepts(value):
            raise ValueError(f"{self.name} is {value!r:.40}")
        return value if value is None or not self.whole else int(value)


#: All columns, in the order of the table.
COLUMNS = (
    Column("rank", "the rank of the peer", title="rank", form="d"),
    Column("host", "the machine on which the launcher started it", title="host", spare=7, in_json=False),
    Column("membership", "what the swarm takes it for: alive, slow, suspect, dead or left"),
    Column("state", "what it says that it is doing: training or mixing", 9, _is_word, title="state"),
    Column(
        "life",
        "its incarnation, which is higher after each restart; the table shows restarts+false deaths or when it started",
        title="life",
        form="s",
        shown=life_text,
        spare=8,
    ),
    Column("step", "steps of its optimizer", 0, whole=True, title="step", form="d"),
    Column("samples", "samples that it has trained on", 1, whole=True),
    Column("loss", "the loss that it logged last", 2, title="loss", form=".4f"),
    Column(
        "samples_per_second",
        "samples trained on per second",
        3,
        total="samples",
        title="samples/s",
        form=".0f",
        spare=9,
        living=True,
    ),
    Column("wait_share", "the share of its time in which it waited for the gossip", 4, total="waited"),
    Column("lag", "how many steps it is behind the median", title="lag", form="d", spare=10),
    Column(
        "neighbours",
        "other members that it sees; the table counts the peer itself too",
        6,
        whole=True,
        title="peers",
        form="d",
        shown=lambda others: others + 1,
        spare=4,
    ),
    Column(
        "bytes_per_second",
        "bytes sent per second; the table shows megabytes",
        7,
        total="bytes",
        title="MB/s",
        form=".2f",
        shown=lambda rate: rate / 1e6,
        spare=5,
        living=True,
    ),
    Column("weight", "its push-sum weight", 5, title="weight", form=".2f", spare=3, living=True),
    Column("disagreement", "the disagreement when it was last measured", 8, title="apart", form=".1e", spare=2),
    Column("endpoint", "host:port at which it listens", title="endpoint", spare=6),
    Column(
        "sends",
        "with --compress, how it encodes its parcels",
        10,
        _is_text,
        title="sends",
        spare=1,
        optional=True,
        living=True,
    ),
)
#: What a peer tells, in the order of the places.
TOLD = tuple(sorted((one for one in COLUMNS if one.place is not None), key=lambda one: one.place or 0))
#: The column that shows the rate of each total.
RATES = {one.total: one.name for one in COLUMNS if one.total}
