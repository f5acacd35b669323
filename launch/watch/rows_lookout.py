"""A look at a run whose replicas have several processes: each row gossips in a swarm of its own, and all are shown."""

from __future__ import annotations

from typing import Any

from gossip.grids import row_of_run
from launch.user_errors import CommandError
from launch.watch.invitation import Invitation
from launch.watch.lookout import Lookout, NobodyAnswers

__all__ = ["RowsLookout"]


class RowsLookout:
    """Looks at the swarm of every row, through one of its members."""

    def __init__(self, invitation: Invitation) -> None:
        self._invitation = invitation
        self._lookouts: dict[int, Lookout] = {}

    def __enter__(self) -> RowsLookout:
        return self

    def __exit__(self, *_: object) -> None:
        for lookout in self._lookouts.values():
            lookout.__exit__()

    def look(self, timeout: float = 5.0) -> list[tuple[dict[str, Any], str]]:
        """Return the picture of each row and where it came from; raise if no member of a row answers."""
        if not self._lookouts:
            return self._first(timeout)
        return [(lookout.look(timeout), lookout.place) for lookout in self._lookouts.values()]

    def _first(self, timeout: float) -> list[tuple[dict[str, Any], str]]:
        """Ask one member after another, until one of each row has answered."""
        found: dict[int, tuple[dict[str, Any], str]] = {}
        rows, failures = 0, []
        for place, key in self._invitation.members.items():
            lookout = Lookout(Invitation({place: key}, self._invitation.keys))
            try:
                picture = lookout.look(timeout)
            except NobodyAnswers as error:
                lookout.__exit__()
                failures.append(error)
                continue
            of_row = row_of_run(picture["setup"]["run"])
            if of_row is None:
                lookout.__exit__()
                raise CommandError(
                    f"--rows shows the processes of replicas, and the run {picture['setup']['run']} has no grid: leave "
                    "--rows out"
                )
            _, rows, row = of_row
            if row in found:
                lookout.__exit__()
                continue
            found[row], self._lookouts[row] = (picture, lookout.place), lookout
            if len(found) == rows:
                break
        if not found and failures:
            raise failures[-1]
        missing = [str(row) for row in range(rows) if row not in found]
        if missing:
            raise NobodyAnswers(
                f"no peer of row {', '.join(missing)} answered, among the {len(self._invitation.members)} that are "
                "known here: name the run directory, which lists all"
            )
        self._lookouts = dict(sorted(self._lookouts.items()))
        return [found[row] for row in sorted(found)]
