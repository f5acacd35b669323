"""`peers.plan`, the models of scripts, and what is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

import peers
from gossip.errors import SettingsError
from peers.planner.measuring import measure_loopback, measure_pace
from peers.planner.model_reading import InputShape
from peers.planner.planning_splits import GridPlan
from peers.planner.script_models import model_of

EXAMPLES = Path(__file__).parents[3] / "examples"


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))


def chosen(**more: object) -> GridPlan:
    given: dict[str, object] = {"batch": 256, "hosts": [2, 2], "between": "50Mbit", **more}
    return peers.plan(mlp(), **given)  # type: ignore[arg-type]


def across(plan: GridPlan) -> float:
    return plan.choice.splits[0].across_volume.size


def test_a_plan_in_one_call() -> None:
    plan = chosen(flops="100T", spanning=True)
    assert str(plan.choice.best) == "4x1 tensor"
    assert plan.sources[0] == (
        "2 hosts, 4 processes: 10 Gbit/s and 50 us for each process inside a host; "
        "50 Mbit/s and 1 ms for each host to the others"
    )
    assert str(chosen().choice.best) == "2x2 tensor"


def test_codec_share_topology_and_local_steps_change_what_is_sent() -> None:
    full = across(chosen())
    assert full == 4 * (2 * 256 * 1024 + 1024 + 256)
    assert across(chosen(compress="bf16")) == pytest.approx(full / 2, rel=0.01)
    assert across(chosen(compress="int8")) == pytest.approx(full / 4, rel=0.05)
    assert across(chosen(share=0.25)) == full / 4
    assert across(chosen(topology="complete")) == 3 * full
    assert across(chosen(algorithm="local:h=4")) == full / 4
    assert across(chosen(algorithm="sgp:rounds=2")) == 2 * full
    assert across(chosen(algorithm="allreduce")) == 1.5 * full


def test_algorithms_that_wait_do_not_overlap() -> None:
    osgp, sgp = (chosen(algorithm=name, flops="1G").choice.splits[0] for name in ("osgp", "sgp"))
    assert osgp.step == max(osgp.computing, osgp.across)
    assert sgp.step == sgp.computing + sgp.across


def test_a_topology_that_has_no_such_size_falls_back_as_a_run_does() -> None:
    plan = peers.plan(mlp(), batch=60, hosts=[6], topology="one-peer-hypercube")
    assert [str(split.grid) for split in plan.choice.splits if split.kind in ("data", "fsdp")] == [
        "1x6",
        "2x3",
        "3x2",
        "6x1",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": 0}, "batch must be 1 or more samples, not 0"),
        ({"optimizer": "lion"}, "optimizer must be one of sgd, momentum, adam, not 'lion'"),
        ({"between": "fast"}, "'fast' is not a rate"),
        ({"inside": 0}, "rate of a link must be above 0"),
        ({"memory": "8"}, "'8' is not a size"),
        ({"hosts": []}, "hosts must have one slot or more"),
        ({"compress": "auto"}, "compress auto follows the link"),
        ({"compress": "zip"}, "zip"),
        ({"algorithm": "parameter-server"}, "parameter-server cannot be planned: choose a gossip algorithm"),
        ({"kinds": ["magic"]}, "kind must be one of"),
        ({"shape": [3]}, "shape 3 does not pass through Sequential"),
    ],
)
def test_mistakes_are_told(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        chosen(**given)


def test_computing_and_the_loopback_are_measured() -> None:
    """On any machine: positive, finite, and far from nonsense. How fast is not for tests to say."""
    plan = chosen(hosts=[2], batch=4, measure=True)
    assert "measured on this machine" in plan.sources[1]
    assert 0 < plan.choice.job.pace.each < 10
    link = plan.choice.machine.inside
    assert 1e4 < link.rate < 1e13
    assert 0 < link.latency < 10


def test_measuring_leaves_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp()
    clock = iter([0.0, 9.0, *[0.0, 2.0] * 3, 0.0, 9.0, *[0.0, 5.0] * 3])
    monkeypatch.setattr("peers.planner.measuring.time.perf_counter", lambda: next(clock))
    pace = measure_pace(model, InputShape([256]), samples=1, processes=1)
    assert (pace.each, pace.fixed) == (1.0, 1.0)  # 2 s for one sample, 5 s for four
    assert all(one.grad is None for one in model.parameters())


def test_processes_that_share_a_core_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0] * 4 + [0.0, 5.0] * 4)
    monkeypatch.setattr("peers.planner.measuring.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("peers.planner.measuring.os.cpu_count", lambda: 2)
    pace = measure_pace(mlp(), InputShape([256]), samples=1, processes=8)
    assert (pace.each, pace.fixed) == (4.0, 4.0)


def test_a_disturbed_measurement_has_no_fixed_part(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 8.0] * 4 + [0.0, 4.0] * 4)
    monkeypatch.setattr("peers.planner.measuring.time.perf_counter", lambda: next(clock))
    pace = measure_pace(mlp(), InputShape([256]), samples=1, processes=1)
    assert (pace.each, pace.fixed) == (1.0, 0.0)


def test_a_failed_measurement_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SettingsError, match="measure: 2 of 2 processes on this machine failed: no message"):
        measure_loopback(1)


@pytest.mark.parametrize(
    ("name", "weights"),
    [("fashion.py:resnet(16)", 77_818), ("fashion.py:resnet(width=8)", None), ("chars.py:Transformer", 104_717)],
)
def test_models_of_training_scripts_are_made_without_training(name: str, weights: int | None) -> None:
    join, path, argv = peers.join, list(sys.path), list(sys.argv)
    model = model_of(f"{EXAMPLES}/{name}")
    assert weights in (None, sum(one.numel() for one in model.parameters()))
    assert (peers.join, sys.path, sys.argv) == (join, path, argv)


SCRIPT = """
from dataclasses import dataclass
import sys
from torch import nn
from peers import join

@dataclass
class Size:
    n: int = 3

class Net(nn.Linear):
    def __init__(self, n: int = Size().n) -> None:
        super().__init__(n, n)

ready = Net(5)
number = 3
assert len(sys.argv) == 1
try:
    with join() as peer:
        raise SystemExit("trained")
except Exception:
    raise SystemExit("caught")
late = Net()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_classes_functions_and_modules_are_models(script: Path) -> None:
    assert [model_of(f"{script}:{name}").in_features for name in ("Net", "Net(4)", "ready")] == [3, 4, 5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"names no model: write .*train.py:NAME, where NAME is one of Size, Net, ready"),
        (":late", "defines no late before peers.join; it has Size, Net, ready"),
        (":number", "is a int, not a torch.nn.Module"),
        (":Size", "is a Size, not a torch.nn.Module"),
        (":Net('x')", "cannot be made: TypeError: "),
        (":Net(", "is not a name, as in Net, or one with arguments"),
        (":Net(number)", "is not a name"),
        (":Net(**{})", "is not a name"),
        (":a.b", "is not a name"),
    ],
)
def test_other_names_are_refused(script: Path, name: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        model_of(f"{script}{name}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no data')", "failed before it called peers.join: RuntimeError: no data"),
        ("this is no Python", "failed before it called peers.join: SyntaxError"),
        ("import sys; sys.exit(3)", "ended with exit code 3 before it called peers.join"),
    ],
)
def test_a_script_that_fails_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        model_of(f"{path}:Net")
    with pytest.raises(SettingsError, match=r"there is no file missing\.py; a model is written"):
        model_of("missing.py:Net")
