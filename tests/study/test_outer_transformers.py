"""The curve of outer's loss against h: gaps are of pairs with the same seed, and bytes are compared with a ring's."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_cases import outcome

from benchmarks import outer_transformers
from benchmarks.outer_transformers import compared, main, ring_bytes, run
from benchmarks.study.cache import Cache
from benchmarks.study.run import Run
from benchmarks.transformers import SEEDS, TUNING


def test_gaps_and_bytes() -> None:
    ring = ring_bytes(8)
    assert ring == 2 * 7 / 8 * 4 * 108_864
    found = {run(0, 8, 10, seed): outcome(validation_loss=2.0 + seed) for seed in (0, 1)}
    sent = round(80 * ring / 100)
    found |= {run(32, 8, 10, seed): outcome(validation_loss=2.1 + 1.2 * seed, bytes=sent) for seed in (0, 1)}
    (baseline, outer), gaps = compared([32], 8, 10, (0, 1), found)
    assert baseline[2:6] == ["2.000", "3.000", "2.500", "-"]
    assert outer[2:6] == ["2.100", "3.300", "2.700", "+0.200 ± 0.100"]
    assert outer[-1] == "100.0"
    assert gaps[32] == pytest.approx(0.2)


def test_only_the_method_its_rate_and_its_codec_differ() -> None:
    one, other = run(0, 8, 10, 0), run(16, 8, 10, 0)
    assert other.algorithm.startswith("outer:h=16,")
    assert other.compress == "int4"
    assert other.but(algorithm=one.algorithm, topology=one.topology, compress="none", rate=one.rate) == one
    assert not set(TUNING) & set(SEEDS)


@pytest.mark.parametrize(("lost", "holds"), [(0.09, True), (0.11, False)])
def test_the_bar_is_on_32_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: float, holds: bool) -> None:
    def done(_: Cache, runs: list[Run]) -> dict[Run, object]:
        losses = {"allreduce": 2.0, **{f"outer:h={h},{outer_transformers.OUTER}": 2.5 for h in (8, 16)}}
        return {one: outcome(validation_loss=losses.get(one.algorithm, 2.0 + lost)) for one in runs}

    monkeypatch.setattr(Cache, "fill", lambda *_: None)
    monkeypatch.setattr(Cache, "results", done)
    assert main(["--cache", str(tmp_path / "cache")]) == holds
