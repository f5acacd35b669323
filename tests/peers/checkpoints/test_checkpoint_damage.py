"""Damaged and hostile checkpoints: every bit that changes is noticed, and nothing outside is touched."""

from __future__ import annotations

import json
import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from checkpoint_cases import FILES, filled, forge, snapshot_of, step_of

from peers.checkpoints.checkpoint import CheckpointError, Checkpoints, Damaged
from peers.checkpoints.manifest import VERSION
from peers.checkpoints.snapshot_files import read_snapshot


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Return a directory with one checkpoint, of step 10."""
    filled(tmp_path / "checkpoints", 10)
    return tmp_path / "checkpoints" / "step-00000010"


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_noticed(whole: Path, name: str) -> None:
    content = (whole / name).read_bytes()
    for length in range(len(content)):
        (whole / name).write_bytes(content[:length])
        with pytest.raises(Damaged, match=name):
            read_snapshot(whole, 10)
    (whole / name).write_bytes(content + b"\0")
    with pytest.raises(Damaged, match=name):
        read_snapshot(whole, 10)
    (whole / name).write_bytes(content)
    assert step_of(read_snapshot(whole, 10)) == 10


@pytest.mark.parametrize("name", FILES)
def test_bit_flips_are_noticed(whole: Path, name: str) -> None:
    content = (whole / name).read_bytes()
    bits = range(8 * len(content))
    for bit in bits if len(bits) < 2000 else random.Random(1).sample(bits, 2000):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (whole / name).write_bytes(flipped)
        with pytest.raises(Damaged, match=name):
            read_snapshot(whole, 10)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_noticed(whole: Path, name: str) -> None:
    (whole / name).unlink()
    with pytest.raises(Damaged, match=rf"{name}: No such file"):
        read_snapshot(whole, 10)


def test_files_of_another_checkpoint_are_noticed(whole: Path) -> None:
    filled(whole.parent, 20)
    other = whole.parent / "step-00000020"
    for name in FILES:
        content = (whole / name).read_bytes()
        (whole / name).write_bytes((other / name).read_bytes())
        with pytest.raises(Damaged):
            read_snapshot(whole, 10)
        (whole / name).write_bytes(content)
    shutil.rmtree(whole)
    other.rename(whole)
    with pytest.raises(Damaged, match="the manifest is of step 20, not of step 10"):
        read_snapshot(whole, 10)


def test_a_damaged_newest_falls_back_and_is_gone_after_the_next_save(tmp_path: Path) -> None:
    filled(tmp_path, 10, 20, 30)
    (tmp_path / "step-00000030" / "rest.msgpack").write_bytes(b"")
    (tmp_path / "step-00000020" / "manifest").unlink()
    reports: list[str] = []
    with Checkpoints(tmp_path, keep=2, report=reports.append) as checkpoints:
        assert step_of(checkpoints.load()) == 10
        assert len(reports) == 2
        assert "step-00000030/rest.msgpack: the file has 0 bytes instead of" in reports[0]
        assert "step-00000020/manifest: No such file" in reports[1]
        assert checkpoints.steps() == [10, 20, 30]
        checkpoints.save(15, snapshot_of(15))
        checkpoints.wait()
        assert checkpoints.steps() == [10, 15]
        assert step_of(checkpoints.load()) == 15
        checkpoints.save(20, snapshot_of(20))
        checkpoints.wait()
        assert checkpoints.steps() == [15, 20]
    assert len(reports) == 2


def test_the_step_that_was_damaged_can_be_saved_again(tmp_path: Path) -> None:
    filled(tmp_path, 10, 20)
    (tmp_path / "step-00000020" / "manifest").unlink()
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        assert step_of(checkpoints.load()) == 10
        checkpoints.save(20, snapshot_of(20))
        assert step_of(checkpoints.load()) == 20
        assert checkpoints.steps() == [20]


def test_if_all_are_damaged_that_is_an_error_and_nothing_is_removed(tmp_path: Path) -> None:
    filled(tmp_path, 10, 20)
    for step in (10, 20):
        (tmp_path / f"step-000000{step}" / "manifest").write_bytes(b"GOSSIP")
    reports: list[str] = []
    with Checkpoints(tmp_path, keep=1, report=reports.append) as checkpoints:
        with pytest.raises(
            CheckpointError, match=r"all checkpoints in .* are damaged; move .*20/manifest.*10/manifest"
        ):
            checkpoints.load()
        checkpoints.save(1, snapshot_of(1))
        checkpoints.wait()
        assert checkpoints.steps() == [10, 20]
    assert "already has a checkpoint of step 20" in reports[-1]


def test_a_format_of_the_future_is_an_error_and_no_reason_to_go_back(tmp_path: Path) -> None:
    filled(tmp_path, 10, 20)
    forge(tmp_path / "step-00000020", step=20, version=VERSION + 1, payload=b"who knows")
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(
            CheckpointError, match=rf"step-00000020 has format {VERSION + 1}, and .* reads formats up to {VERSION}"
        ):
            checkpoints.load()
        assert checkpoints.steps() == [10, 20]


def test_the_forger_of_these_tests_can_forge(whole: Path) -> None:
    forge(whole)
    assert step_of(read_snapshot(whole, 10)) == 10


def rename(files: dict[str, list[object]], name: str) -> None:
    files[name] = files.pop("rest.msgpack")


@pytest.mark.parametrize(
    "change",
    [
        lambda files: rename(files, "../outside"),
        lambda files: rename(files, "/etc/passwd"),
        lambda files: files.update({"../outside": [7, b"x" * 16]}),
        lambda files: files.pop("rest.msgpack"),
        lambda files: files.clear(),
        lambda files: files["rest.msgpack"].pop(),
        lambda files: files["rest.msgpack"].__setitem__(0, 2**63),
        lambda files: files["rest.msgpack"].__setitem__(0, -1),
        lambda files: files["rest.msgpack"].__setitem__(0, True),
        lambda files: files["rest.msgpack"].__setitem__(0, "../outside"),
        lambda files: files["rest.msgpack"].__setitem__(1, None),
    ],
)
def test_forged_manifests_reach_nothing(whole: Path, change: Callable[[dict[str, list[object]]], object]) -> None:
    outside = whole.parent / "outside"
    outside.write_bytes(b"outside")
    forge(whole, change=change)
    with pytest.raises(Damaged):
        read_snapshot(whole, 10)
    assert outside.read_bytes() == b"outside"


HUGE = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x92\x0a\xdf\xff\xff\xff\xff"]
DEEP = [b"\x91" * 3000 + b"\xc0", b"\x81\xa1a" * 1000 + b"\xc0", b"\x92\x0a" + b"\x91" * 500 + b"\xc0"]
WRONG = [b"", b"\xc1", b"\xc0", b"\x01\x02", msgpack.packb([]), msgpack.packb([10, []]), msgpack.packb([[10], {}])]


@pytest.mark.parametrize("payload", [*HUGE, *DEEP, *WRONG, b"\x92" * 5000], ids=lambda payload: payload[:8].hex())
def test_forged_payloads_of_a_manifest_are_errors(whole: Path, payload: bytes) -> None:
    forge(whole, payload=payload)
    assert_refused_cheaply(whole, "manifest")


def nested(depth: int) -> Any:
    structure: Any = [0]
    for _ in range(depth):
        structure = [0, structure]
    return structure


RESTS = [
    [],
    [0],
    [[2], []],
    [[0], {}],
    [[2, "a"], {}],
    [[2, "a", [77]], {}],
    [[2, "a", [5, "t0"]], {}],
    [[2], {"t0": "t1"}],
]
RESTS += [
    [[2], {"x": "absent"}],
    [[2], {"x": ["t0"]}],
    [[2, "a", nested(200)], {}],
    [[2, "a", msgpack.ExtType(1, b"")]],
]


@pytest.mark.parametrize("rest", [*HUGE, *DEEP, *WRONG, *map(msgpack.packb, RESTS)], ids=lambda rest: rest[:12].hex())
def test_forged_rests_are_errors(whole: Path, rest: bytes) -> None:
    (whole / "rest.msgpack").write_bytes(rest)
    forge(whole)
    assert_refused_cheaply(whole, "rest.msgpack")


def header(shape: list[int], end: int, dtype: str = "F32") -> bytes:
    return json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (2**40).to_bytes(8, "little") + b"{}",
        len(header([0, 2**63], 0)).to_bytes(8, "little") + header([0, 2**63], 0),
        *(
            len(head).to_bytes(8, "little") + head + b"1234"
            for head in [
                *(
                    header([2**62], 4),
                    header([2**40], 2**42),
                    header([1], 2**63),
                    header([0, 2**63], 0),
                    header([-1], 4),
                ),
                *(header([1], 4, "PICKLE"), b"[" * 100_000, b'{"a":' * 10_000, b"\x80\x04cos\nsystem\n."),
            ]
        ),
    ],
    ids=lambda content: content[8:60].decode("ascii", "replace"),
)
def test_forged_tensors_are_errors(whole: Path, content: bytes) -> None:
    (whole / "tensors.safetensors").write_bytes(content)
    forge(whole)
    assert_refused_cheaply(whole, "tensors.safetensors")


def assert_refused_cheaply(whole: Path, name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match=name):
            read_snapshot(whole, 10)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_not_a_file_is_refused_and_not_waited_for(whole: Path, name: str, kind: str) -> None:
    real = whole.parent / "elsewhere"
    (whole / name).rename(real)
    {
        "link": lambda: (whole / name).symlink_to(real),
        "pipe": lambda: os.mkfifo(whole / name),
        "directory": lambda: (whole / name).mkdir(),
    }[kind]()
    with pytest.raises(Damaged, match=name):
        read_snapshot(whole, 10)


def test_links_are_neither_loaded_nor_removed_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    filled(elsewhere, 90)
    directory = tmp_path / "checkpoints"
    filled(directory, 1)
    (directory / "step-00000090").symlink_to(elsewhere / "step-00000090")
    (directory / ".step-00000001.tmp-1").symlink_to(elsewhere)
    with Checkpoints(directory, keep=1) as checkpoints:
        assert step_of(checkpoints.load()) == 1
        checkpoints.save(2, snapshot_of(2))
        assert step_of(checkpoints.load()) == 2
    assert not (directory / ".step-00000001.tmp-1").is_symlink()
    assert step_of(read_snapshot(elsewhere / "step-00000090", 90)) == 90
