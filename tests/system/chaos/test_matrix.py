"""The fault matrix: every row's bars hold. Two rows, of less training, are in every run of the tests.

`make chaos` runs all of them, with a table; so does ``pytest -m chaos tests/system/chaos``, one by one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.chaos.harness import QUICK, Session
from benchmarks.chaos.matrix import ROWS
from benchmarks.chaos.outcome import PAUSE, Outcome
from benchmarks.chaos.rows import Result, reference, run_row

#: Those that wait for no death and no second start, which takes too long for every run of the tests.
QUICK_ROWS = ["nan", "wrong-key"]
ROOT = os.geteuid() == 0


def verdict(result: Result, without: Collection[str] = ()) -> None:
    assert not result.error, f"{result.name}: {result.error}"
    failed = [str(bar) for bar in result.failed if bar.name not in without]
    assert not failed, f"{result.name}: {failed}"


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[Session, Outcome]]:
    with Session() as session:
        yield session, reference(session)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_quick_rows_hold() -> None:
    """Both at once, in one session.

    How long a peer paused is left to the whole matrix: beside other tests any process may be held up for longer.
    """
    possible = [name for name in QUICK_ROWS if ROOT or not ROWS[name].root]
    with Session(QUICK) as session, ThreadPoolExecutor(len(possible)) as pool:
        results = list(pool.map(lambda name: run_row(session, name, None), possible))
    for result in results:
        verdict(result, without=[PAUSE])
        assert result.outcome.accuracy > 90, "nothing was learnt"
    if possible != QUICK_ROWS:
        pytest.skip("these held; the others need root, for network namespaces")


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in ROWS if name != "undisturbed"])
def test_row(full: tuple[Session, Outcome], name: str) -> None:
    if ROWS[name].root and not ROOT:
        pytest.skip("network namespaces and mounts need root")
    session, undisturbed = full
    result = run_row(session, name, undisturbed)
    verdict(result)
    held = [bar.name for bar in result.bars if bar.holds and bar.name in ROWS[name].exempt]
    assert not held, f"{name} is said not to hold {held}, and does by now: say so"
