"""Stochastic rounding is right on average, and a function of its keys and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from codec_cases import ALL, normal

from gossip.codecs import parse

STOCHASTIC = ["terngrad", "qsgd", "qsgd:levels=127", "qsgd:levels=1,block=64"]
#: Payloads to take the mean of.
DRAWN = 2000


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("text", STOCHASTIC)
def test_the_mean_of_many_payloads_is_the_values(text: str, seed: int) -> None:
    codec = parse(text)
    values = normal(64, seed).astype(np.float32)
    values[:4] = [0.0, 1e-3, -1e-3, np.abs(values).max()]
    step = float(np.abs(values).max()) / codec.levels  # type: ignore[attr-defined]
    mean = np.zeros(64)
    for turn in range(DRAWN):
        mean += codec.decode(codec.encode(values, keys=(seed, turn)), 64, np.float32)
    mean /= DRAWN
    # Bernoulli between two levels: its variance is p (1 - p), 1/4 at most. Five deviations, for each of 64 values.
    fraction = np.abs(values) / step % 1
    deviation = step * np.sqrt(fraction * (1 - fraction) / DRAWN)
    off = np.abs(mean - values)
    assert (off <= 5 * deviation + step * 1e-3).all(), (off / step).max()
    assert abs(float((mean - values).mean())) < step * 5 * 0.5 / np.sqrt(DRAWN * 64)


@pytest.mark.parametrize("text", ALL)
def test_the_same_keys_give_the_same_payload(text: str) -> None:
    codec, values = parse(text), normal(70_000, 5).astype(np.float32)
    payload = codec.encode(values, keys=(7, 3)).tobytes()
    assert codec.encode(values.copy(), keys=(7, 3)).tobytes() == payload
    assert parse(text).encode(values, keys=(7, 3)).tobytes() == payload
    assert (codec.encode(values, keys=(7, 4)).tobytes() == payload) != codec.stochastic


@pytest.mark.parametrize("text", STOCHASTIC)
def test_values_are_rounded_independently_of_each_other(text: str) -> None:
    codec = parse(text)
    # All 0.5 or 2.5 steps but for the largest of each block, so that each draw decides one bit.
    values = np.full(1 << 17, 0.5 / codec.levels, np.float32)  # type: ignore[attr-defined]
    values[:: codec.block] = 1.0  # type: ignore[attr-defined]
    up = codec.decode(codec.encode(values, keys=(1,)), values.size, np.float32) > values
    up = up[1:].astype(np.float64) - 0.5
    for lag in (1, 2, 3, 4, 8, 65_536 % up.size):
        assert abs(float((up[:-lag] * up[lag:]).mean()) * 4) < 5 / np.sqrt(up.size - lag) + 0.01, lag


@pytest.mark.parametrize("text", [*STOCHASTIC, "int8", "int4", "sign"])
def test_a_shards_beginning_does_not_depend_on_its_end(text: str) -> None:
    codec = parse(text)
    block = codec.block  # type: ignore[attr-defined]
    values = normal(200 * 512, 6).astype(np.float32)
    whole = codec.decode(codec.encode(values, keys=(2,)), values.size, np.float32)
    for count in (512, 130 * 512):
        assert count % block == 0
        part = codec.decode(codec.encode(values[:count], keys=(2,)), count, np.float32)
        assert part.tobytes() == whole[:count].tobytes()
