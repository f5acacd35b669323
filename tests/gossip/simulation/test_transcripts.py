"""The protocol does what it did: transcripts of simulated runs, line by line, and digests of longer ones."""

from __future__ import annotations

import json

import pytest
from repeats import some
from transcripts import DIGESTS, FOLDER, SEEDS, cases, digest, transcript

HINT = "if this was meant: python tests/support/transcripts.py --write, and a decision record that says why"


@pytest.mark.parametrize("name", cases())
def test_a_transcript_has_not_changed(name: str) -> None:
    golden = (FOLDER / f"{name}.txt").read_text().splitlines()
    lines = transcript(name).splitlines()
    for number, (line, expected) in enumerate(zip(lines, golden, strict=False), 1):
        assert line == expected, f"{name}.txt, line {number}; {HINT}"
    assert len(lines) == len(golden), f"{name}.txt has {len(golden)} lines, and now there are {len(lines)}; {HINT}"


@pytest.mark.parametrize("seed", some(SEEDS, 1))
@pytest.mark.parametrize("name", cases())
def test_a_longer_run_has_not_changed(name: str, seed: int) -> None:
    golden = json.loads(DIGESTS.read_text())
    assert digest(transcript(name, seed).encode()) == golden[f"{name} {seed}"], f"{name}, seed {seed}; {HINT}"


def test_every_transcript_belongs_to_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(cases())
    assert set(json.loads(DIGESTS.read_text())) == {f"{name} {seed}" for name in cases() for seed in SEEDS}
