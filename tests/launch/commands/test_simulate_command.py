"""``gossip simulate``: its figures, its pictures, and what it says to a mistake."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import Capture, failure, said

from gossip.faults import parse_cut, parse_incident, parse_pause
from gossip.settings import ALGORITHM
from launch import cli, terminal
from launch.options.arguments import AVERAGING
from launch.options.options import LaunchOptions
from peers.setup import Setup

#: The command of the issue.
ISSUE = shlex.split(
    "simulate --peers 64 --topology one-peer-exponential --algorithm sgp --steps 300 --loss 10% --duplicate 5% "
    "--delay 5ms-50ms --straggler 2=4x --kill 3@100 --cut '0-31|32-63@100+50' --join 64@150 --seed 7 --json"
)
#: The same weather over fewer peers and steps: enough of them that one is cut off, declared dead, and comes back.
FEWER = shlex.split(
    "simulate --peers 16 --topology one-peer-exponential --algorithm sgp --steps 300 --loss 10% --duplicate 5% "
    "--delay 5ms-50ms --straggler 2=4x --kill 3@100 --cut '0-7|8-15@100+50' --join 16@150 --seed 7 --json"
)
SMALL = shlex.split(
    "simulate --peers 8 --topology one-peer-exponential --algorithm sgp --steps 60 --loss 10% --duplicate 5% "
    "--delay 5ms-50ms --straggler 2=4x --kill 3@20 --cut '0-3|4-7@20+10' --join 8@30 --seed 7"
)
KEYS = {
    "peers", "steps", "seed", "weight_total", "weight_written_off", "mass_error", "disagreement", "bias", "messages",
    "bytes", "virtual_seconds", "steps_per_peer", "events", "wall_seconds", "weight_min", "weight_max",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing depend on how fast this machine is: progress is told of what takes long only."""
    monkeypatch.setattr(terminal, "_FIRST_LINE", float("inf"))


def figures(capsys: Capture, *argv: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(said(capsys, *argv, "--json"))
    return result


@pytest.mark.parametrize(("command", "n"), [(FEWER, 16), pytest.param(ISSUE, 64, marks=pytest.mark.slow)])
def test_the_command_of_the_issue(capsys: Capture, command: list[str], n: int) -> None:
    result = json.loads(said(capsys, *command))
    assert set(result) >= KEYS
    assert (result["peers"], result["steps"], result["seed"]) == (n, 300, 7)
    assert (result["topology"], result["algorithm"]) == ("one-peer-exponential", "sgp")
    assert result["mass_error"] < 1e-12
    assert result["disagreement"] < 1e-4
    assert result["bias"] < 0.5
    # All but one of the founders live, and one joiner. What there is and what was written off make up whole peers: the
    # founders, a joiner, and one for each that was cut off, declared dead, and came back with a weight of 1.
    assert result["weight_total"] == pytest.approx(n, abs=5)
    assert result["weight_written_off"] > 0
    whole = result["weight_total"] + result["weight_written_off"]
    assert whole == pytest.approx(round(whole), abs=1e-9)
    assert n + 1 <= whole <= 2 * n + 2
    assert 0.3 - 1e-9 <= result["weight_min"] < 1 < result["weight_max"] <= 3
    steps = result["steps_per_peer"]
    assert set(steps) == {"min", "median", "max"}
    assert steps["min"] < 150, "the straggler"
    assert steps["median"] == steps["max"] == 300
    assert result["virtual_seconds"] > 30
    assert result["wall_seconds"] > 0
    assert result["messages"] > n * 300
    assert result["bytes"] > 50 * result["messages"]
    assert result["events"] > n * 300


def test_the_figures_of_a_quiet_run_are_those_that_must_be(capsys: Capture) -> None:
    result = figures(capsys, "simulate", "--peers", "4", "--steps", "60", "--topology", "base")
    assert set(result) >= KEYS
    assert result["steps_per_peer"] == {"min": 60, "median": 60, "max": 60}
    assert result["weight_total"] == pytest.approx(4)
    assert result["weight_written_off"] == result["rejected"] == 0
    assert result["disagreement"] < 1e-12
    assert result["bias"] < 1e-12
    # One parcel and one acknowledgement per peer and step, and nothing else where all goes well.
    assert result["messages"] == 2 * 4 * 60


def test_the_algorithm_is_that_of_launch_where_none_is_named(capsys: Capture) -> None:
    result = figures(capsys, "simulate", "--peers", "3", "--steps", "2")
    assert result["algorithm"] == Setup().algorithm == LaunchOptions.algorithm == ALGORITHM


_CHOCO = ["simulate", "--peers", "4", "--size", "40", "--topology", "complete", "--compress", "topk:share=5%"]


def test_a_run_whose_peers_drift_apart_says_so_and_fails(capsys: Capture) -> None:
    argv = [*_CHOCO, "--steps", "80", "--algorithm", "choco:gamma=1"]
    assert cli.main(argv) == 1
    captured = capsys.readouterr()
    assert "diverged" in captured.out
    assert "choco:gamma=1 is above" in captured.err
    assert cli.main([*argv, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["diverged"] is True


def test_a_run_that_agrees_has_not_diverged(capsys: Capture) -> None:
    assert cli.main([*_CHOCO, "--steps", "20", "--algorithm", "choco"]) == 0
    captured = capsys.readouterr()
    assert "diverged" not in captured.out
    assert "gamma" not in captured.err


def test_values_that_grow_without_end_are_no_error_of_the_books(capsys: Capture) -> None:
    assert cli.main([*_CHOCO, "--steps", "260", "--algorithm", "choco:gamma=1"]) == 1
    assert "diverged" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_run_and_another_seed_another(capsys: Capture) -> None:
    first, second = (figures(capsys, *SMALL) for _ in range(2))
    other = figures(capsys, *SMALL[:-1], "8")
    for result in (first, second, other):
        assert result.pop("wall_seconds") >= 0
    assert first == second
    assert first["trace"] != other["trace"]
    assert first["disagreement"] != other["disagreement"]


def test_the_text_has_the_figures(capsys: Capture) -> None:
    result = figures(capsys, *SMALL)
    text = said(capsys, *SMALL)
    assert text.startswith("8 peers, sgp on one-peer-exponential, seed 7\n")
    assert f"{result['messages']} messages" in text
    assert f"{result['disagreement']:.3g} of the first spread" in text
    assert (
        f"{result['weight_total']:.6g} in all, {result['weight_written_off']:.6g} written off with dead peers" in text
    )
    assert f"after {result['events']} events" in text
    assert f"{result['virtual_seconds']:.3g} s virtual" in text
    assert "\x1b" not in text


def test_nothing_is_said_of_the_dead_where_nobody_dies(capsys: Capture) -> None:
    assert "written off" not in said(capsys, "simulate", "--peers", "2", "--steps", "5")


@pytest.mark.parametrize("name", AVERAGING)
def test_every_algorithm_runs_in_bad_weather(capsys: Capture, name: str) -> None:
    """And with a straggler, whom nobody waits for until it is through."""
    options = {"osgp": ":tau=2", "local": ":h=3", "slowmo": ":h=3", "noloco": ":h=3", "ssd": ":k=3,warmup=8"}
    algorithm = name + options.get(name, "")
    topology = {"choco": "bidirectional-ring", "noloco": "random-matching"}.get(name, "base")
    result = figures(
        capsys,
        *shlex.split("simulate --peers 6 --steps 40 --shards 4 --share 50% --corrupt 5% --loss 10% --bandwidth 1"),
        *shlex.split("--pause 1@10+5 --kill 2@10 --restart 2@20 --straggler 4=4x"),
        *("--topology", topology, "--algorithm", algorithm),
    )
    assert result["mass_error"] < 1e-12
    assert result["rejected"] > 0
    assert result["algorithm"] == algorithm
    assert result["disagreement"] < 0.5
    steps = result["steps_per_peer"]
    assert steps["min"] < 30 < steps["median"] == 40


@pytest.mark.parametrize(("name", "magic"), [("run.svg", b"<?xml"), ("run.png", b"\x89PNG"), ("RUN.SVG", b"<?xml")])
def test_a_picture(capsys: Capture, tmp_path: Path, name: str, magic: bytes) -> None:
    path = tmp_path / name
    assert "8 peers" in said(capsys, *SMALL, "--plot", str(path))
    picture = path.read_bytes()
    assert picture.startswith(magic)
    assert len(picture) > 5000


def test_a_picture_marks_what_happened(capsys: Capture) -> None:
    from gossip.simulation import Scenario, simulate
    from launch.plots import simulation_plot as plot_simulation

    result = simulate(
        Scenario(
            peers=4, steps=40, kills=(parse_incident("3@10"),), restarts=(parse_incident("3@30"),),
            joins=(parse_incident("4@20"),), pauses=(parse_pause("1@15+5"),), cuts=(parse_cut("0|1@25+5"),),
            algorithm="sgp",
        )
    )  # fmt: skip
    (axes,) = plot_simulation.figure(result).axes
    assert {text.get_text().strip() for text in axes.texts} == {"kill 3", "restart 3", "join 4", "pause 1", "cut"}
    (curve,) = [line for line in axes.lines if len(line.get_xdata()) > 2]
    assert list(curve.get_xdata()) == [time for time, _ in result.curve]
    assert "4 peers, sgp on " in axes.get_title()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--topology", "rign"], "did you mean ring"),
        (["--topology", "hypercube", "--peers", "6"], "n = 4 and 8"),
        (["--algorithm", "sgd"], "no algorithm is called 'sgd'; did you mean easgd or dpsgd or ssd"),
        (["--algorithm", "osgp:tau=x"], "osgp: tau takes an integer, not 'x'"),
        (["--algorithm", "dpsgd", "--topology", "ring"], "use a symmetric topology such as base"),
        (["--kill", "3"], "argument --kill: '3' is not of the form RANK@MOMENT"),
        (["--kill", "x@1"], "a rank must be a number from 0 on, not 'x'"),
        (["--kill", "16@1"], "kill: rank 16 does not exist; ranks are 0 to 15 and those that join"),
        (["--pause", "16@1+1"], "pause: rank 16 does not exist"),
        (["--pause", "1@1"], "argument --pause: '1@1' is not of the form RANK@MOMENT+SPAN"),
        (["--straggler", "16=4x"], "straggler: rank 16 does not exist"),
        (["--straggler", "2=4"], "argument --straggler: '2=4': '4' is not a factor such as 4x"),
        (["--cut", "0|16@1+1"], "cut: rank 16 does not exist"),
        (["--cut", "0-3@1+1"], "argument --cut: '0-3@1+1' is not of the form RANKS|RANKS@MOMENT+SPAN"),
        (["--join", "3@10"], "rank 3 cannot join, because it is already in the swarm"),
        (["--join", "16@10", "--join", "16@20"], "rank 16 cannot join"),
        (["--restart", "3@10"], "rank 3 is never killed, so it cannot be restarted"),
        (["--loss", "100%"], "loss must be a share from 0% to less than 100%, not 100%"),
        (["--duplicate", "1"], "duplicate must be a share from 0% to less than 100%"),
        (["--corrupt", "100%"], "corrupt must be a share from 0% to less than 100%"),
        (["--loss", "110%"], "argument --loss: '110%' is not a share"),
        (["--share", "0"], "share must be a fraction above 0 and at most 1, not 0.0"),
        (["--weight-floor", "1"], "not 1.0 and 3.0"),
        (["--weight-cap", "nan"], "weight_floor must be from 0 to below 1 and weight_cap above 1"),
        (["--weight-cap", "x"], "argument --weight-cap: "),
        (["--peers", "0"], "argument --peers: must be a whole number of at least 1, not '0'"),
        (["--steps", "0"], "argument --steps: must be a whole number of at least 1, not '0'"),
        (["--steps", "many"], "a whole number, not 'many'"),
        (["--shards", "0"], "at least 1, not '0'"),
        (["--size", "0"], "at least 1, not '0'"),
        (["--seed", "x"], "argument --seed: must be a whole number, not 'x'"),
        (["--delay", "50ms-5ms"], "the least first"),
        (["--delay", "5"], "TIME or TIME-TIME with units"),
        (["--step-time", "0"], "step_seconds must be above 0 and jitter from 0 to below 1"),
        (["--step-time", "soon"], "a time such as 2.5s or 300ms, not 'soon'"),
        (["--step-time=-1s"], "a time such as 2.5s or 300ms, not '-1s'"),
        (["--step-time", "nan"], "a time such as 2.5s or 300ms, not 'nan'"),
        (["--detect", "inf"], "a time such as 2.5s or 300ms, not 'inf'"),
        (["--bandwidth", "0"], "megabits per second, such as 50, not '0'"),
        (["--bandwidth", "fast"], "megabits per second, such as 50, not 'fast'"),
        (["--plot", "run.jpg"], "the file name must end in .svg or .png"),
        (["--plot", "no/such/run.svg"], "the directory no/such does not exist"),
        (["--pears", "3"], "--pears"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_users_mistake_is_told_in_one_line(capsys: Capture, argv: list[str], message: str) -> None:
    assert message in failure(capsys, "simulate", *argv)


def test_the_help_explains_every_flag(capsys: Capture) -> None:
    text = said(capsys, "simulate", "--help")
    for flag in (
        "--peers", "--steps", "--topology", "--algorithm", "--seed", "--size", "--shards", "--share", "--step-time",
        "--loss", "--duplicate", "--corrupt", "--delay", "--bandwidth", "--detect", "--straggler", "--kill",
        "--restart", "--weight-floor", "--weight-cap", "--join", "--pause", "--cut", "--json", "--plot",
    ):  # fmt: skip
        assert f"  {flag} " in text or f"  {flag}\n" in text, flag
    assert "examples:" in text
    assert "default: 16" in text


def test_the_examples_of_the_help_run(capsys: Capture, tmp_path: Path) -> None:
    text = said(capsys, "simulate", "--help")
    lines = [line.strip() for line in text.splitlines() if line.startswith("  gossip simulate")]
    assert len(lines) >= 3
    for line in lines:
        argv = shlex.split(line.replace("run.svg", str(tmp_path / "run.svg")))[1:]
        argv[argv.index("--peers") + 1] = str(min(64, int(argv[argv.index("--peers") + 1])))
        said(capsys, *argv, "--steps", "60")


def test_when_all_are_dead_the_json_is_still_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--peers", "1", "--kill", "0@1", "--steps", "5", "--json"]) == 0

    def refuse(text: str) -> None:
        raise AssertionError(text)

    json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_progress_in_a_pipe_is_some_lines_on_stderr(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_FIRST_LINE", 0.0)
    assert cli.main([*SMALL, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["peers"] == 8, "nothing of it is in the way of the result"
    assert re.match(r"simulating: 0% after \d+ s\n", err)


def test_progress_lines_are_few_and_only_of_what_takes_long(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_FIRST_LINE", 3.0)
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with terminal.measured("counting") as tell:
        for second in range(1, 401):
            now = 100.0 + second
            tell(second / 400)
    assert capsys.readouterr().err.splitlines() == [
        f"counting: {second / 400:.0%} after {second} s, about {400 - second} s to go"
        for second in (3, 6, 12, 24, 48, 96, 156, 216, 276, 336, 396)
    ]
