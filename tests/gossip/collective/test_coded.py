"""Averages through a codec: the same bits everywhere, nothing lost but late, whatever happens on the way."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from collective_swarm import RATE, Node, Swarm

from gossip import events
from gossip.codecs import names, parse
from gossip.collective.coded import cells_of
from gossip.faults.weather import Weather
from gossip.wire.messages import Address

BAD = {"loss": 0.1, "duplicate": 0.1, "corrupt": 0.05, "delay": (0.001, 0.2)}
CODECS = [*names(), "topk:share=10%,values=int8", "qsgd:levels=127"]


def error(swarm: Swarm, node: Node | None = None) -> float:
    """Return how far the model is from the optimum, over how far it was."""
    best = swarm.targets[: len(swarm.nodes)].mean(axis=0)
    x = (node or swarm.nodes[0]).x
    return float(np.linalg.norm(x - best) / np.linalg.norm(best))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_a_codec_that_takes_nothing_off_gives_the_mean(n: int) -> None:
    """As in dense float64: x <- x - rate (x - the mean of the targets)."""
    swarm = Swarm(n, compress="none", rounds=50, dtype=np.float64, lossy=30)
    swarm.run()
    swarm.check()
    expected = (1 - (1 - RATE) ** 50) * swarm.targets[:n].mean(axis=0)
    np.testing.assert_allclose(swarm.nodes[n - 1].x, expected, rtol=1e-12, atol=1e-14)
    for node in swarm.nodes.values():
        assert node.residuals is not None
        assert not node.residuals.own.any(), "nothing is owed"


@pytest.mark.parametrize("compress", CODECS)
def test_all_have_the_same_bits_in_bad_weather(compress: str) -> None:
    swarm = Swarm(3, compress=compress, rounds=8, weather=Weather(seed=1, **BAD), lossy=30)
    swarm.run()
    swarm.check()
    assert all(len(group) == 3 for node in swarm.nodes.values() for group in node.computed.values())


def test_int8_ends_where_no_codec_does() -> None:
    """With y = x - rate (e + f), e the mean of what peers owe and f what owners owe, y makes the exact moves of x.

    The gradient is x less a constant, so y differs from the exact x by at most rate max|e + f|, and x from y by as
    much again. Both e and f are at most half a code's step of the largest value that was encoded.
    """
    plain, coded = (Swarm(4, compress=compress, rounds=50, size=600) for compress in ("", "int8"))
    for swarm in (plain, coded):
        swarm.run()
        swarm.check()
    largest = max(np.abs(one).max() for node in coded.nodes.values() for one in node.gradients.values())
    half_step = 1.01 * largest / 127 / 2
    assert np.abs(coded.nodes[0].x - plain.nodes[0].x).max() <= 2 * RATE * 2 * half_step
    assert error(coded) == pytest.approx(error(plain), rel=0.05)


@pytest.mark.parametrize("compress", ["topk:share=25%", "sign", "adacomp"])
def test_what_is_left_out_comes_later_and_training_gets_there(compress: str) -> None:
    """With feedback the distance shrinks to what the rate leaves; without, peers' biases stay in the mean."""
    left = {}
    for feedback in (True, False):
        swarm = Swarm(3, compress=compress, rounds=120, size=48, rate=0.06, seed=3)
        for node in swarm.nodes.values():
            assert node.residuals is not None
            node.residuals.feedback = feedback
        swarm.run()
        swarm.check()
        left[feedback] = error(swarm)
    assert left[True] < 0.1
    assert left[True] < left[False] / 2


def largest(values: np.ndarray, k: int) -> np.ndarray:
    return np.where(np.abs(values) >= np.sort(np.abs(values))[-k], values, 0.0)


def test_momentum_correction_is_its_formula_in_dense_float64() -> None:
    """u <- 0.9 u + g, v <- v + u, a quarter of v is sent and both start again there; owners keep what is left."""
    n, k = 3, 4
    swarm = Swarm(n, compress="topk:share=25%", correction=0.9, rounds=50, size=48, dtype=np.float64, rate=0.02)
    swarm.run()
    swarm.check()
    x, handed = np.zeros(48), np.zeros(48)
    u, v = np.zeros((n, 48)), np.zeros((n, 48))
    for _ in range(50):
        u = 0.9 * u + x - swarm.targets[:n]
        v = v + u
        sent = np.stack([np.concatenate([largest(part, k) for part in np.split(one, n)]) for one in v])
        u, v = np.where(sent, 0.0, u), v - sent
        handed = handed + sent.mean(axis=0)
        moved = np.concatenate([largest(part, k) for part in np.split(handed, n)])
        handed, x = handed - moved, x - 0.02 * moved
    np.testing.assert_allclose(swarm.nodes[0].x, x, rtol=1e-9, atol=1e-11)
    assert error(swarm) < 0.2, "without correction it is 0.37"


@pytest.mark.parametrize("compress", ["int8", "int2", "topk:share=10%", "terngrad"])
def test_a_death_at_any_moment_leaves_all_others_with_the_same_averages(compress: str) -> None:
    for seed in range(20):
        generator = np.random.default_rng([seed, 1])
        weather = Weather(seed=seed, **BAD) if seed % 2 else Weather(seed=seed, delay=(0.001, 0.05))
        n = int(generator.integers(2, 6))
        swarm = Swarm(n, compress=compress, weather=weather, seed=seed, rounds=4, lossy=33)
        for victim in generator.choice(n, size=int(generator.integers(1, n)), replace=False):
            swarm.at(
                float(generator.uniform(0.0, 1.0)), partial(swarm.kill, int(victim), partial(generator.uniform, 0, 2))
            )
        swarm.run()
        swarm.check()


def test_who_is_given_a_result_owes_what_its_own_attempt_left() -> None:
    """It was in the average, so its residual is that of the attempt: small, and another one than before."""
    seen = 0
    for seed in range(25):
        swarm = Swarm(4, compress="int8", weather=Weather(seed=seed, delay=(0.001, 0.2)), seed=seed, rounds=3)

        def some_have_finished(swarm: Swarm = swarm) -> bool:
            steps = {node.step for node in swarm.nodes.values()}
            return steps == {1, 2} or all(node.done for node in swarm.nodes.values())

        swarm.run(some_have_finished)
        behind = [node for node in swarm.nodes.values() if node.step == 1]
        if not 2 <= len(behind) <= 3:
            continue
        owed = {node.me.rank: node.residuals.own.copy() for node in behind if node.residuals is not None}
        swarm.kill(behind[0].me.rank, lambda: 0.0)
        swarm.run(lambda swarm=swarm: all(node.step >= 2 for node in swarm.nodes.values() if node.alive))
        for node in behind[1:]:
            assert node.residuals is not None
            if 1 not in node.computed and node.step == 2:
                seen += 1
                before, after = owed[node.me.rank], node.residuals.own
                half_step = 1.01 * (np.abs(node.gradients[1]).max() + np.abs(before).max()) / 127 / 2
                assert not np.array_equal(before, after)
                assert np.abs(after).max() <= half_step
        swarm.run()
        swarm.check()
    assert seen > 5, "results were taken over"


@pytest.mark.parametrize("compress", ["bf16", "int8", "int4", "int2", "sign", "topk:share=10%"])
@pytest.mark.parametrize("n", [2, 5])
def test_bytes_are_as_the_format_says(compress: str, n: int) -> None:
    lossy, size = 40_000, 40_100
    swarm = Swarm(n, compress=compress, size=size, lossy=lossy, rounds=2)
    swarm.run()
    codec, cells = parse(compress), cells_of(n, lossy, size, 4)
    bodies = [1 + codec.size(cell.stop - cell.start) + 4 * (cell.plain_stop - cell.plain_start) for cell in cells]
    for rank in range(n):
        gathered = sum(body for body, cell in zip(bodies, cells, strict=True) if cell.owner != rank)
        spread = (n - 1) * sum(body for body, cell in zip(bodies, cells, strict=True) if cell.owner == rank)
        assert swarm.bytes[rank] == 2 * (gathered + spread), "in two rounds"
        whole = codec.size(lossy) + 4 * (size - lossy)
        assert gathered + spread == pytest.approx(2 * (n - 1) / n * whole, rel=0.02), "as a ring"


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("place", [3, 35])
def test_a_round_that_is_not_finite_leaves_no_trace(bad: float, place: int) -> None:
    """Whether in gradients or in what goes as it is; 3e38 is finite at each place, and in the sum of two not."""
    before: dict[int, bytes] = {}

    def gradient(node: Node) -> np.ndarray:
        found = node.x - swarm.targets[node.me.rank]
        if node.step == 2 and (node.me.rank == 1 or bad == 3e38):
            found[place] = bad
        return np.asarray(found)

    swarm = Swarm(3, compress="int8", rounds=6, gradient=gradient, lossy=30)
    swarm.run(lambda: all(node.step >= 2 for node in swarm.nodes.values()))
    for node in swarm.nodes.values():
        assert node.residuals is not None
        before[node.me.rank] = node.residuals.own.tobytes() + node.residuals.handed.tobytes()
        assert node.residuals.own.any()
    swarm.run(lambda: all(node.step >= 3 for node in swarm.nodes.values()))
    for node in swarm.nodes.values():
        if node.step == 3:
            assert node.residuals is not None
            assert node.residuals.own.tobytes() + node.residuals.handed.tobytes() == before[node.me.rank]
    swarm.run()
    swarm.check()
    assert all(node.skipped == [2] for node in swarm.nodes.values())
    assert np.isfinite(swarm.nodes[0].x).all()


def test_a_newcomer_owes_nothing_and_stays_the_same() -> None:
    swarm = Swarm(3, compress="topk:share=20%", rounds=10)
    newcomer = Address(4, 1)
    swarm.run(lambda: all(node.step >= 3 for node in swarm.nodes.values()))
    members = {node.me.rank: node.me.incarnation for node in swarm.nodes.values()}
    node = swarm.add(newcomer, {**members, newcomer.rank: newcomer.incarnation})
    assert node.residuals is not None
    node.residuals.begin(1, 0, swarm.size, np.dtype(np.float32))
    node.residuals.own += 1  # of a model that is gone
    for other in members:
        swarm.see(other, newcomer)
    swarm.call(node, events.Synchronize(0))
    swarm.run(lambda: bool(node.adopted))
    assert not node.residuals.own.any()
    swarm.run()
    swarm.check()
    assert len(node.computed[9]) == 4
