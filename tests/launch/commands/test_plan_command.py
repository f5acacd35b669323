"""``gossip plan`` as a user sees it: the table, the JSON, the picture, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import failure, said

from gossip.costs import KINDS, PAPER_KINDS
from launch import cli
from launch.commands import plan_command

Capture = pytest.CaptureFixture[str]
RESNET = f"{Path(__file__).parents[3] / 'examples' / 'fashion.py'}:resnet(16)"
SCRIPT = """
from torch import nn
import peers

def pair() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))

with peers.join() as peer:
    raise SystemExit("trained")
"""


@pytest.fixture
def pair(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return f"{path}:pair"


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "hosts"
    path.write_text("node1 slots=2\nnode2 slots=2\n")
    return str(path)


def test_an_example_from_end_to_end(capsys: Capture) -> None:
    told = said(capsys, "plan", "-n", "4", "--batch", "64", "--input", "1x28x28", "--layers", RESNET)
    assert told.startswith("77,818 weights in 21 layers; a batch of 64 samples\n1 host, 4 processes: ")
    rows = [line.split()[:2] for line in told.splitlines() if line[:1].isdigit() and "x" in line.split()[0]]
    kinds = KINDS[1:]
    assert rows[:9] == [["1x4", "data"], *(["2x2", kind] for kind in kinds), *(["4x1", kind] for kind in kinds)]
    assert "The layers of 1x4 data:" in told
    assert "5.second" in told
    assert told.splitlines()[-1].startswith("1x4 data has the shortest step, ")


def test_hosts_and_links_decide(capsys: Capture, hosts: str, pair: str) -> None:
    slow = ("plan", "--hostfile", hosts, "--between", "50Mbit", "--latency", "1ms", "--flops", "100T", pair)
    told = said(capsys, *slow, "--batch", "2048")
    assert told.splitlines()[-1].startswith("2x2 tensor has the shortest step, 337 ms: 1x4 data takes 506 ms, with ")
    assert told.count("4x1   any") == 1
    assert told.count("the crew would span hosts: host 0 has 2 slots, which 4 rows do not divide") == 1
    told = said(capsys, *slow, "--batch", "256", "--crews-across-hosts")
    assert told.splitlines()[-1].startswith("4x1 tensor has the shortest step")


def test_json_has_every_layer_of_every_split(capsys: Capture, hosts: str, pair: str) -> None:
    told = said(capsys, "plan", "--hostfile", hosts, "--batch", "256", "--json", "--memory", "10MB", pair)
    plan: dict[str, Any] = json.loads(told)
    assert set(plan) == {
        *("batch", "processes", "hosts", "links", "pace", "weights", "layers", "splits", "best", "why"),
    }
    assert (plan["batch"], plan["processes"], plan["hosts"], plan["weights"]) == (256, 4, [2, 2], 525_568)
    assert plan["links"]["between"] == {"bytes_per_second": 1.25e8, "latency_seconds": 1e-3}
    assert [set(layer) for layer in plan["layers"]] == [
        {"name", "kind", "weights", "inputs", "outputs", "multiply_adds"}
    ] * 3
    head = {"grid", "rows", "replicas", "kind", "fits", "reason"}
    for split in plan["splits"]:
        assert split["rows"] * split["replicas"] == 4
        assert split["fits"] is (split["reason"] == "")
        if "seconds" not in split:
            assert set(split) == head
            continue
        assert set(split) == head | {"bytes", "messages", "seconds", "memory", "layers"}
        assert set(split["seconds"]) == {"computing", "inside", "across", "communication", "step"}
        assert set(split["memory"]) == {
            *("parameters", "gradients", "optimizer", "exchange", "gathered", "activations", "total"),
        }
        memory = split["memory"]
        assert memory["total"] == pytest.approx(sum(memory.values()) - memory["total"])
        assert split["fits"] is (memory["total"] <= 10e6)
        for place in ("inside", "across"):
            assert split["bytes"][place] == pytest.approx(sum(layer["bytes"][place] for layer in split["layers"]))
    whole = plan["splits"][0]
    assert (whole["grid"], whole["kind"], whole["fits"]) == ("1x4", "data", False)
    assert whole["reason"].endswith("MiB per process; 10 MiB are allowed")
    fitting = [split for split in plan["splits"] if split["fits"]]
    assert (plan["best"]["grid"], plan["best"]["kind"]) == ("2x2", "tensor")
    shortest = min(split["seconds"]["step"] for split in fitting)
    assert [split["seconds"]["step"] for split in fitting if split["kind"] == "tensor"] == [shortest]


def test_nothing_that_fits_is_told_and_is_no_success(capsys: Capture, pair: str) -> None:
    assert cli.main(["plan", "-n", "2", "--batch", "8", "--memory", "1MB", pair]) == 1
    told = capsys.readouterr().out
    assert told.splitlines()[-1].startswith("No split fits: 1x2 data needs ")
    assert cli.main(["plan", "-n", "2", "--batch", "8", "--memory", "1MB", "--json", pair]) == 1
    assert json.loads(capsys.readouterr().out)["best"] is None


def test_the_picture_is_valid_and_names_what_it_shows(capsys: Capture, tmp_path: Path, pair: str) -> None:
    first, second = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (first, second):
        said(capsys, "plan", "-n", "8", "--batch", "256", "--memory", "9MB", "--plot", str(path), pair)
    assert first.read_bytes() == second.read_bytes()
    root = ElementTree.parse(first).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = {"".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"8 processes on 1 host, a batch of 256 samples", "fsdp", "tensor", "needs too much memory"} <= texts
    assert {"1x8", "2x4", "4x2", "8x1", "time of a step", "time of communication"} <= texts
    assert any(text.startswith("best: ") for text in texts)


def test_a_picture_of_one_process(capsys: Capture, tmp_path: Path, pair: str) -> None:
    path = tmp_path / "plan.svg"
    said(capsys, "plan", "-n", "1", "--batch", "8", "--plot", str(path), pair)
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_kinds_of_the_help_are_those_of_the_formulas() -> None:
    assert (*KINDS, *PAPER_KINDS) == plan_command._KINDS


def test_kinds_can_be_chosen(capsys: Capture, pair: str) -> None:
    told = said(capsys, "plan", "-n", "2", "--batch", "8", "--json", "--kinds", "1.5d,fsdp", pair)
    assert [split["kind"] for split in json.loads(told)["splits"]] == ["data", "1.5d", "fsdp"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "4", "train.py:Net"], "the following arguments are required: --batch"),
        (["--batch", "8", "train.py:Net"], "-n None and --hostfile None: give one of them"),
        (["-n", "4", "--hostfile", "x", "--batch", "8", "train.py:Net"], "-n 4 and --hostfile x: give one of them"),
        (
            ["-n", "4", "--batch", "8", "--inside", "fast", "x.py:Net"],
            "argument --inside: 'fast' is not a rate such as",
        ),
        (["-n", "4", "--batch", "8", "--memory", "8", "x.py:Net"], "argument --memory: '8' is not a size such as 8GiB"),
        (["-n", "4", "--batch", "8", "--kinds", "magic", "x.py:Net"], "argument --kinds: kinds are data, fsdp"),
        (["-n", "4", "--batch", "8", "--plot", "x.jpg", "x.py:Net"], "--plot x.jpg: the file name must end in .svg"),
        (["-n", "4", "--batch", "8", "missing.py:Net"], "'missing.py:Net': there is no file missing.py"),
        (
            ["-n", "4", "--batch", "8", "--measure", "--flops", "1G", "x.py:N"],
            "--flops and --measure cannot be combined",
        ),
        (["-n", "4", "--batch", "8", "--input", "a", "PAIR"], "'a' is not the shape of a sample, such as 3x224x224"),
        (["-n", "4", "--batch", "8", "--input", "7", "PAIR"], "shape 7 does not pass through Sequential"),
        (["-n", "4", "--batch", "8", "--compress", "auto", "PAIR"], "compress auto follows the link in a run"),
        (["-n", "4", "--batch", "8", "--algorithm", "magic", "PAIR"], "magic"),
    ],
)
def test_mistakes_are_one_line(capsys: Capture, pair: str, words: list[str], message: str) -> None:
    assert message in failure(capsys, "plan", *(pair if word == "PAIR" else word for word in words))
