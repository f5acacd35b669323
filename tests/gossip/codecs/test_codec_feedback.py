"""What a codec takes off is kept: nothing is lost, only late."""

from __future__ import annotations

import numpy as np
import pytest
from codec_cases import ALL, DTYPES, SPARSE, normal, wide

from gossip.codecs import ErrorFeedback, MomentumCorrection, Unencodable, parse
from gossip.errors import SettingsError

SIZE = 700


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", ALL)
def test_what_was_sent_and_what_is_left_is_what_was_given(text: str, dtype: np.dtype) -> None:
    codec = parse(text)
    feedback = ErrorFeedback(codec, SIZE, dtype)
    given, sent = np.zeros(SIZE), np.zeros(SIZE)
    for step in range(20):
        values = normal(SIZE, step).astype(dtype)
        payload = feedback.encode(values, keys=(step,))
        given += wide(values)
        sent += wide(codec.decode(payload, SIZE, dtype))
        most = max(np.abs(given).max(), np.abs(sent).max())
        np.testing.assert_allclose(sent + feedback.residual, given, rtol=0, atol=most * 1e-5)
    if text == "none" and dtype == np.float32:
        assert not feedback.residual.any()


@pytest.mark.parametrize("text", ALL)
def test_what_is_taken_back_was_never_sent(text: str) -> None:
    feedback = ErrorFeedback(parse(text), SIZE)
    first, second = normal(SIZE, 1).astype(np.float32), normal(SIZE, 2).astype(np.float32)
    feedback.encode(first, keys=(1,))
    before = feedback.residual.copy()
    payload = feedback.encode(second, keys=(2,))
    feedback.take_back(payload)
    np.testing.assert_allclose(feedback.residual, before + second, atol=1e-4)


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_a_bad_gradient_leaves_everything_as_it_was(text: str, bad: str) -> None:
    feedback = ErrorFeedback(parse(text), SIZE)
    feedback.encode(normal(SIZE, 1).astype(np.float32), keys=(1,))
    before = feedback.residual.copy()
    values = normal(SIZE, 2).astype(np.float32)
    values[3] = float(bad)
    with pytest.raises(Unencodable):
        feedback.encode(values, keys=(2,))
    assert feedback.residual.tobytes() == before.tobytes()


def test_what_is_too_large_for_half_precision_waits() -> None:
    feedback = ErrorFeedback(parse("int8"), 8, np.float16)
    feedback.residual[:] = 60_000
    payload = feedback.encode(np.full(8, 60_000, np.float16))
    sent = wide(feedback.codec.decode(payload, 8, np.float16))
    assert (np.abs(sent + feedback.residual - 120_000) < 1).all()


def descended(text: str, *, kept: bool, steps: int = 600) -> float:
    """Return how far from the optimum of a badly scaled quadratic compressed descent ends."""
    codec = parse(text)
    curvature = 10.0 ** np.linspace(-1, 0, 64)
    x = normal(64, 1)
    feedback = ErrorFeedback(codec, 64)
    for step in range(steps):
        move = (0.1 * curvature * x).astype(np.float32)
        payload = feedback.encode(move, keys=(step,)) if kept else codec.encode(move, keys=(step,))
        x = x - codec.decode(payload, 64, np.float32)
    return float(np.linalg.norm(x))


@pytest.mark.parametrize("text", ["sign", "topk:share=5%", "adacomp", "int4", "int2"])
def test_descent_converges_with_what_is_left_out_kept(text: str) -> None:
    assert descended(text, kept=True) < 0.05


def test_signs_alone_do_not_converge_without() -> None:
    assert descended("sign", kept=False) > 2 * descended("sign", kept=True)


@pytest.mark.parametrize("text", SPARSE)
def test_momentum_correction_against_its_definition(text: str) -> None:
    codec = parse(text)
    correction = MomentumCorrection(codec, SIZE, momentum=0.9)
    u, v = np.zeros(SIZE), np.zeros(SIZE)
    for step in range(30):
        gradient = normal(SIZE, step).astype(np.float32)
        sent = wide(codec.decode(correction.encode(gradient, keys=(step,)), SIZE, np.float32))
        u = 0.9 * u + gradient
        v = v + u - sent
        u[sent != 0] = 0
        np.testing.assert_allclose(correction.velocity, u, atol=1e-5)
        np.testing.assert_allclose(correction.residual, v, atol=1e-4)
        u, v = wide(correction.velocity), wide(correction.residual)


def test_momentum_correction_sends_what_momentum_would_have() -> None:
    # Everything is sent at once: each step sends the gradient, and nothing is left to build up.
    correction = MomentumCorrection(parse("topk:share=100%"), 8, momentum=0.5)
    for _ in range(3):
        payload = correction.encode(np.ones(8, np.float32))
        assert (correction.codec.decode(payload, 8, np.float32) == 1).all()
    # One value of two: the other waits two steps, with its momentum: 1 + (1 + 0.5).
    correction = MomentumCorrection(parse("topk:share=50%"), 2, momentum=0.5)
    first = correction.codec.decode(correction.encode(np.array([2, 1], np.float32)), 2, np.float32)
    second = correction.codec.decode(correction.encode(np.array([2, 1], np.float32)), 2, np.float32)
    assert first.tolist() == [2, 0]
    assert second.tolist() == [0, 2.5]


def test_momentum_correction_with_bad_gradients_and_settings() -> None:
    correction = MomentumCorrection(parse("topk"), 4)
    correction.encode(np.array([1, 2, 3, 4], np.float32))
    before = correction.velocity.copy(), correction.residual.copy()
    with pytest.raises(Unencodable):
        correction.encode(np.array([1, np.nan, 3, 4], np.float32))
    assert (correction.velocity == before[0]).all()
    assert (correction.residual == before[1]).all()
    with pytest.raises(SettingsError, match="momentum correction needs a sparse codec, and int8 sends every value"):
        MomentumCorrection(parse("int8"), 4)
    with pytest.raises(SettingsError, match="momentum must be from 0 to below 1, not 1"):
        MomentumCorrection(parse("topk"), 4, momentum=1)
    for wrong in (correction, ErrorFeedback(parse("topk"), 4)):
        with pytest.raises(SettingsError, match=r"must have the shape of the residual, \(4,\), not \(5,\)"):
            wrong.encode(np.ones(5, np.float32))
