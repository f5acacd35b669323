"""What one peer owes, and attempts at one average that are put together by hand."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from gossip.codecs import MomentumCorrection, parse
from gossip.collective.coded import CodedAttempt, cells_of
from gossip.collective.residuals import Residuals
from gossip.errors import Rejected, SettingsError

SIZE, LOSSY = 50, 41


def vector(*key: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(key).normal(size=size).astype(np.float32)


def attempts(owed: list[Residuals], values: list[np.ndarray]) -> list[CodedAttempt]:
    n = len(owed)
    return [CodedAttempt(owed[place], n, place, values[place], LOSSY, (place,)) for place in range(n)]


def carry(working: list[CodedAttempt], most: int = 1_000_000) -> None:
    """Deliver what is sent, in the order in which it is, but no more than so much."""
    due = deque((place, out) for place, one in enumerate(working) for out in one.start())
    for _ in range(most):
        if not due:
            break
        sender, out = due.popleft()
        more = working[out.place].arrived(sender, out.step, out.cell, out.values)
        due.extend((out.place, one) for one in more)


def averaged(owed: list[Residuals], values: list[np.ndarray]) -> np.ndarray:
    """Return the mean that all come to, and let it count."""
    working = attempts(owed, values)
    carry(working)
    found = []
    for one, residuals in zip(working, owed, strict=True):
        out = np.empty(SIZE, np.float32)
        assert one.finished
        assert one.finish(out)
        residuals.commit()
        found.append(out)
    assert len({one.tobytes() for one in found}) == 1
    return found[0]


@pytest.mark.parametrize("compress", ["int8", "topk:share=10%", "sign", "terngrad"])
@pytest.mark.parametrize("delivered", [0, 3, 7, 100])
def test_attempts_that_came_to_nothing_leave_no_trace(compress: str, delivered: int) -> None:
    """Three are at it when one dies; the two that are left come to what they would have without it, to the bit."""
    results = []
    for disturbed in (False, True):
        owed = [Residuals(parse(compress)) for _ in range(3)]
        for number in range(3):  # so that something is owed
            averaged(owed[:2], [vector(number, place) for place in range(2)])
        values = [vector(9, place) for place in range(3)]
        if disturbed:
            carry(attempts(owed, values), delivered)
        results.append(averaged(owed[:2], values[:2]))
        results.append(owed[0].own.copy())
        results.append(owed[1].handed.copy())
    for first, second in zip(results[:3], results[3:], strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("compress", ["bf16", "fp16", "int8", "int4", "int2", "sign", "topk:share=10%", "adacomp"])
def test_all_that_was_given_is_in_the_means_or_owed(compress: str) -> None:
    owed = [Residuals(parse(compress)) for _ in range(3)]
    given, got = np.zeros(LOSSY), np.zeros(LOSSY)
    for number in range(30):
        values = [vector(number, place) for place in range(3)]
        given += np.mean(values, axis=0, dtype=np.float64)[:LOSSY]
        mean = averaged(owed, values)
        got += mean[:LOSSY]
        np.testing.assert_allclose(mean[LOSSY:], np.mean(values, axis=0)[LOSSY:], rtol=1e-6)
    still = sum(one.own / 3 + one.handed for one in owed)
    np.testing.assert_allclose(got + still, given, atol=1e-4)


def test_what_an_owner_owes_stays_owed_when_places_change() -> None:
    """At three, place 2 owes some of its part; at two it has no such part, and puts it in with its own gradient."""
    owed = [Residuals(parse("sign")) for _ in range(3)]
    for number in range(4):
        averaged(owed, [vector(number, place) for place in range(3)])
    assert all(one.handed.any() for one in owed)
    before = sum(one.own / 2 + one.handed for one in owed[1:])
    values = [vector(9, place) for place in range(2)]
    mean = averaged(owed[1:], values)
    after = sum(one.own / 2 + one.handed for one in owed[1:])
    expected = before + np.mean(values, axis=0)[:LOSSY] - mean[:LOSSY]
    np.testing.assert_allclose(after, expected, atol=1e-5)


@pytest.mark.parametrize("compress", ["terngrad", "qsgd"])
def test_what_is_rounded_by_chance_is_right_on_average_and_owed_by_nobody(compress: str) -> None:
    owed = [Residuals(parse(compress)) for _ in range(2)]
    values = [vector(0, place) for place in range(2)]
    total = np.zeros(SIZE)
    rounds = 200
    for number in range(rounds):
        working = [CodedAttempt(owed[place], 2, place, values[place], LOSSY, (place, number)) for place in range(2)]
        carry(working)
        out = np.empty(SIZE, np.float32)
        assert working[0].finish(out)
        for one in owed:
            one.commit()
        total += out
    assert not any(one.own.any() or one.handed.any() for one in owed)
    # One draw is off by at most the largest value, twice: of the mean of so many, five standard deviations.
    largest = np.abs(values).max()
    np.testing.assert_allclose(total / rounds, np.mean(values, axis=0), atol=5 * 2 * largest / rounds**0.5)


def test_momentum_is_corrected_as_by_the_formulas() -> None:
    """Cell by cell what `MomentumCorrection` sends; and where something was sent the velocity starts again."""
    codec = parse("topk:share=20%")
    owed = [Residuals(codec, 0.9), Residuals(codec, 0.9)]
    cells = cells_of(2, LOSSY, SIZE, 4)
    alike = {cell: MomentumCorrection(codec, cell.stop - cell.start, 0.9) for cell in cells}
    for number in range(10):
        values = [vector(number, place) for place in range(2)]
        averaged(owed, values)
        for cell, one in alike.items():
            one.encode(values[0][cell.start : cell.stop])
            np.testing.assert_array_equal(owed[0].own[cell.start : cell.stop], one.residual)
            np.testing.assert_array_equal(owed[0].velocity[cell.start : cell.stop], one.velocity)
    with pytest.raises(SettingsError, match="needs a sparse codec"):
        Residuals(parse("int8"), 0.9)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize(("lossy", "size"), [(0, 5), (5, 5), (3, 8), (1_000_000, 1_000_100), (10, 900_000)])
def test_cells_cover_everything_once(n: int, lossy: int, size: int) -> None:
    seen = np.zeros(size, int)
    for owner, start, stop, plain_start, plain_stop in cells_of(n, lossy, size, 4):
        assert 0 <= owner < n
        assert 0 <= start <= stop <= lossy <= plain_start <= plain_stop <= size
        assert 0 < 4 * (stop - start + plain_stop - plain_start) <= 4 << 20
        seen[start:stop] += 1
        seen[plain_start:plain_stop] += 1
    assert (seen == 1).all()


def test_lies_are_rejected_and_the_truth_is_taken_after_them() -> None:
    owed = [Residuals(parse("int8")) for _ in range(2)]
    values = [vector(0, place) for place in range(2)]
    first, second = attempts(owed, values)
    (out,) = [one for one in first.start() if one.place == 1]
    list(second.start())
    body = out.values
    for lie in (body[:0], body[:-1], np.append(body, body[:1]), np.append(np.uint8(0), body[1:]), body[:3]):
        with pytest.raises(Rejected):
            list(second.arrived(0, 0, out.cell, lie))
    bad = body.copy()
    bad[0] = 2
    with pytest.raises(Rejected, match="kind 2"):
        list(second.arrived(0, 0, out.cell, bad))
    for nobody in ((0, 1, out.cell), (0, 0, 99), (0, 0, -1), (1, 0, out.cell), (0, 5, out.cell)):
        assert not list(second.arrived(*nobody, body))
    assert list(second.arrived(0, 0, out.cell, body)), "now its part is whole"
    assert not list(second.arrived(0, 0, out.cell, body)), "once is enough"


def test_what_is_lacking_is_named_and_sent_again() -> None:
    owed = [Residuals(parse("int8")) for _ in range(3)]
    working = attempts(owed, [vector(0, place) for place in range(3)])
    for one in working:
        list(one.start())
    while not all(one.finished for one in working):
        for place, one in enumerate(working):
            for other, step, cell in list(one.lacking()):
                found = working[other].again(place, step, cell)
                assert found is None or found.place == place
                if found is not None:
                    list(one.arrived(other, step, cell, found.values))
    results = [np.empty(SIZE, np.float32) for _ in working]
    assert all(one.finish(out) for one, out in zip(working, results, strict=True))
    assert len({out.tobytes() for out in results}) == 1
    assert working[0].again(1, 0, cells_of(3, LOSSY, SIZE, 4).index(_first_of(2))) is None, (
        "that goes to its owner only"
    )


def _first_of(owner: int) -> object:
    return next(cell for cell in cells_of(3, LOSSY, SIZE, 4) if cell.owner == owner)
