"""`gossip launch` on this machine: what is started, shown, stopped, started again, and how it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import failure, said

from launch.cli import main
from launch.options.toml import read_toml

DUMMY = str(Path(__file__).parents[2] / "support" / "dummy_peer.py")
PATIENCE = 60.0
#: Time for peers to end as asked: less than the patience, and more than a busy machine stands still.
UNHURRIED = "50s"

Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Launch]:
    """Return what starts a launch in the background; all that it started is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, action: str = "finish") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "launch.cli", "launch", "--run-dir", str(tmp_path / "run"), *arguments]
        started.append(
            subprocess.Popen(
                [*command, DUMMY, str(tmp_path), action],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield launch
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for path in tmp_path.glob("started-*"):
        try:
            os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"never came: {[path.name for path in paths if not path.exists()]}"
        time.sleep(0.01)


def told(tmp_path: Path, rank: int, life: int = 0) -> dict[str, Any]:
    setup: dict[str, Any] = json.loads((tmp_path / f"started-{rank}-{life}").read_text())["setup"]
    return setup


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, out


def test_peers_are_told_who_they_are_and_meet(start: Launch, tmp_path: Path) -> None:
    code, out = finished(start("-n", "3", "--topology", "ring", "--algorithm", "osgp:tau=2", "--seed", "7"))
    assert code == 0, out
    for rank in range(3):
        setup = told(tmp_path, rank)
        assert (setup["rank"], setup["world_size"], setup["local_rank"]) == (rank, 3, rank)
        assert (setup["topology"], setup["algorithm"], setup["seed"]) == ("ring", "osgp:tau=2", 7)
        cards = json.loads((tmp_path / f"cards-{rank}-0").read_text())
        assert sorted(card[0] for card in cards) == [0, 1, 2]
        assert f"[{rank}] rank {rank} of 3 has 3 cards" in out
    assert "3 of 3 peers finished" in out


def test_each_peer_has_its_log_and_the_run_its_options(start: Launch, tmp_path: Path) -> None:
    finished(start("-n", "2", "--straggler", "1=4x", "--fault", "drop:5%"))
    for rank in range(2):
        assert "done" in (tmp_path / "run" / f"rank-{rank}" / "log.txt").read_text()
    assert told(tmp_path, 0)["stragglers"] == ["1=4x"]
    assert told(tmp_path, 0)["faults"] == ["drop:5%"]
    assert main(["launch", "--config", str(tmp_path / "run" / "config.toml"), "--dry-run"]) == 0


def test_what_the_script_overrides_is_recorded_as_it_really_was(start: Launch, tmp_path: Path) -> None:
    code, out = finished(start("-n", "2", "--seed", "3", "--topology", "ring", action="override"))
    assert code == 0, out
    assert out.count("the script overrides the command line: seed=11 instead of 3") == 1
    config = tmp_path / "run" / "config.toml"
    assert "# the script overrides seed, which the command line has as 3" in config.read_text()
    assert "overrides topology" not in config.read_text(), "it is that of the command line"
    found = read_toml(config)
    assert (found["seed"], found["algorithm"], found["topology"]) == (11, "adpsgd", "ring")
    assert found["run_dir"] == "", "a run directory belongs to one run"


def test_a_failed_peer_is_named_and_the_exit_code_tells(start: Launch, tmp_path: Path) -> None:
    code, out = finished(start("-n", "3", action="fail"))
    assert code == 1
    assert "rank 1 failed with exit code 4" in out
    assert (tmp_path / "done-0").exists()
    assert "2 of 3 peers finished" in out


def test_when_none_finishes_the_exit_code_tells(start: Launch) -> None:
    assert finished(start("-n", "2", action="fail all"))[0] == 3


def test_a_peer_that_cannot_start_ends_the_launch_instead_of_hanging_it(start: Launch) -> None:
    code, out = finished(start("-n", "3", action="die early"))
    assert code == 3
    assert "[1] something is missing here" in out
    assert "rank 1 failed with exit code 7 before the swarm could start, so all peers are stopped" in out
    assert "KeyboardInterrupt" not in out, "those who wait for its card have nothing to end"


def test_a_dead_peer_is_started_again_as_a_newcomer(start: Launch, tmp_path: Path) -> None:
    code, out = finished(start("-n", "3", "--restart", "1", action="die once"))
    assert code == 0, out
    assert "rank 1 was ended by SIGKILL" in out
    second = told(tmp_path, 1, life=1)
    assert second["incarnation"] == 1000
    assert second["bind"] == "127.0.0.1:5001", "where the others look for it"
    assert second["elapsed"] > 0
    assert "3 of 3 peers finished" in out


def test_an_injected_kill_is_no_failure(start: Launch) -> None:
    code, out = finished(start("-n", "2", "--fault", "kill:1@5", "--fault", "restart:1@10", action="die once"))
    assert code == 0, out
    assert "rank 1 is restarted" in out


def test_ctrl_c_stops_all_cleanly(start: Launch, tmp_path: Path) -> None:
    process = start("-n", "2", "--stop-timeout", UNHURRIED, action="wait")
    wait_for(tmp_path / "waiting-0", tmp_path / "waiting-1")
    process.send_signal(signal.SIGINT)
    code, out = finished(process)
    assert code == 130
    assert "stopping within 50 s; press Ctrl-C again to stop at once" in out
    assert "gossip: stopped; see " in out
    assert "gossip: rank 0 " not in out, "who ends as asked is not worth a line"
    assert (tmp_path / "interrupted-0").exists()
    assert (tmp_path / "interrupted-1").exists()


@pytest.mark.parametrize("ignored", [False, True], ids=["as usual", "in the background of a script"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_asks_to_stop_is_obeyed(start: Launch, tmp_path: Path, number: int, ignored: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    try:
        process = start("-n", "2", "--stop-timeout", UNHURRIED, action="wait")
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    wait_for(tmp_path / "waiting-0", tmp_path / "waiting-1")
    process.send_signal(number)
    assert finished(process)[0] == 128 + number, "as a shell has it"
    assert (tmp_path / "interrupted-0").exists()


def test_a_second_ctrl_c_does_not_ask(start: Launch, tmp_path: Path) -> None:
    process = start("-n", "2", action="ignore")
    wait_for(tmp_path / "deaf-0", tmp_path / "deaf-1")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "stopping" not in process.stdout.readline():
        continue
    process.send_signal(signal.SIGINT)
    assert finished(process)[0] == 130
    assert not (tmp_path / "done-0").exists()


def test_who_does_not_stop_in_time_is_killed(start: Launch, tmp_path: Path) -> None:
    process = start("-n", "2", "--stop-timeout", "200ms", action="ignore")
    wait_for(tmp_path / "deaf-0", tmp_path / "deaf-1")
    assert told(tmp_path, 0)["stop_within"] == 0.2, "a peer knows how much time it has"
    process.send_signal(signal.SIGINT)
    code, out = finished(process)
    assert code == 130
    assert "rank 0 was ended by SIGKILL" in out


def test_the_launcher_is_no_coordinator(start: Launch, tmp_path: Path) -> None:
    process = start("-n", "2", action="wait")
    wait_for(tmp_path / "waiting-0", tmp_path / "waiting-1")
    process.kill()
    process.wait()
    (tmp_path / "go on").touch()
    wait_for(tmp_path / "done-0", tmp_path / "done-1")
    assert "done" in (tmp_path / "run" / "rank-0" / "log.txt").read_text()


def test_a_dry_run_prints_the_plan_and_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    out = said(capsys, "launch", "-n", "2", "--run-dir", str(run_dir), "--dry-run", DUMMY, "--flag", "x")
    assert "2 peers run:" in out
    assert "dummy_peer.py --flag x" in out
    assert "topology: one-peer-exponential" in out
    assert "stop_within: 10.0" in out, "seconds that peers have for ending"
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "6", "--topology", "hypercube"], "needs a power of two"),
        (["-n", "4", "--topology", "rign"], "did you mean ring"),
        (["-n", "4", "--algorithm", "sgd"], "no algorithm is called 'sgd'"),
        (["-n", "4", "--algorithm", "dpsgd", "--topology", "ring"], "edges that go both ways"),
        (["-n", "4", "--algorithm", "noloco", "--topology", "ring"], "needs pairs that swap halves"),
        (
            ["-n", "4", "--algorithm", "sgp:momentum=all"],
            "momentum must be auto, inferred, own, mixed or quasi-global, not all",
        ),
        (["-n", "4", "--share", "0"], "share must be a fraction above 0"),
        (["-n", "4", "--preset", "lna"], "did you mean lan"),
        (["-n", "4", "--fault", "kill:4@3"], "ranks are 0 to 3"),
        (["-n", "4", "--fault", "drpo:4%"], "drop"),
        (["-n", "4", "--straggler", "9=4x"], "9=4x"),
        (["-n", "4", "--hostfile", "hosts"], "not both"),
        (["--include", "a"], "--hostfile"),
        (["--resume"], "--run-dir"),
        (["--resume", "--run-dir", "nowhere"], "nowhere contains no run"),
        (["-n", "0"], "at least 1"),
        (["--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in failure(capsys, "launch", *arguments, DUMMY)


def test_random_stragglers_that_are_nobody_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    launch = ["launch", "-n", "2", "--dry-run", "--straggler", "random=1%:2x-5x", "--straggler", "1=2x"]
    assert main([*launch, DUMMY]) == 0
    assert capsys.readouterr().err == (
        "gossip: warning: --straggler random=1%:2x-5x: none of the 2 ranks is drawn with --seed 0, so nobody is slow\n"
    )


def test_two_runs_do_not_share_a_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "rank-0").mkdir(parents=True)
    launch = ["launch", "-n", "2", "--run-dir", str(run), "--restart", "1", "--dry-run"]
    assert f"{run} already contains a run: continue it with --resume" in failure(capsys, *launch, DUMMY)
    assert "resume: True" in said(capsys, *launch, "--resume", DUMMY)
    (run / "rank-0").rmdir()
    (run / "notes.txt").touch()
    assert str(run) in said(capsys, *launch, DUMMY), "what is not of a run is in nobody's way"


def test_two_launches_of_the_same_second_have_two_directories(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "runs/now")
    (tmp_path / "runs" / "now" / "rank-0").mkdir(parents=True)
    assert f"run directory: {tmp_path}/runs/now-2\n" in said(capsys, "launch", "--dry-run", DUMMY)


def test_a_missing_script_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no script given" in failure(capsys, "launch", "-n", "2")
    assert "the script nowhere.py does not exist" in failure(capsys, "launch", "-n", "2", "nowhere.py")


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_missing_program_is_told(capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    message = failure(capsys, "launch", "-n", "2", *more, "no-such-program", "x")
    assert message == "cannot find the program no-such-program: it is not a script (.py), and not on the PATH\n"
    forgotten = failure(capsys, "launch", "-n", "2", *more, "sgp", "--compress", "int8", "train.py")
    assert forgotten.endswith("not on the PATH; did you mean --algorithm sgp?\n")


@pytest.mark.parametrize(
    ("algorithm", "topology"),
    [
        ("osgp", "one-peer-exponential"),
        ("adpsgd", "random-matching"),
        ("noloco", "random-matching"),
        ("dpsgd", "base"),
        ("choco", "bidirectional-ring"),
        ("slowmo:differences=true", "bidirectional-ring"),
    ],
)
def test_whoever_says_no_topology_gets_one_that_suits(
    capsys: pytest.CaptureFixture[str], algorithm: str, topology: str
) -> None:
    out = said(capsys, "launch", "-n", "5", "--algorithm", algorithm, "--dry-run", DUMMY)
    assert f"topology: {topology}\n" in out
    assert "topology: ring\n" in said(capsys, "launch", "-n", "5", "--topology", "ring", "--dry-run", DUMMY)
    assert main(["simulate", "--algorithm", algorithm, "--peers", "4", "--steps", "5"]) == 0
    assert f"{algorithm} on {topology}, seed 0" in capsys.readouterr().out  # how far it is may be said beside it


def test_a_toml_file_holds_options_and_flags_win(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "launch.options.toml"
    config.write_text('peers = 3\ntopology = "ring"\nalgorithm = "sgp"\nfault = ["drop:5%"]\n')
    out = said(capsys, "launch", "--config", str(config), "--algorithm", "osgp", "--dry-run", DUMMY)
    assert "3 peers" in out
    assert "topology: ring" in out
    assert "algorithm: osgp" in out
    assert "drop:5%" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peers = 'x'", "peers must be a number"),
        ("topolgy = 'ring'", "unknown option 'topolgy'"),
        ("resume = 1", "resume must be true or false"),
        ("fault = [1]", "fault must be a list of strings"),
        ("peers = = 3", "line 1"),
        ("share = nan", "share must be a fraction above 0"),
        ("share = 7", "share must be a fraction above 0"),
        ("restart = -3", "restart must be 0 or more, not -3"),
        ("checkpoint-every = -1", "checkpoint-every must be 0 or more"),
        ("stop-timeout = nan", "stop-timeout must be 0 or more"),
        ("start-timeout = -1.0", "start-timeout must be above 0 seconds"),
    ],
)
def test_a_bad_toml_file_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "launch.options.toml"
    config.write_text(text)
    assert message in failure(capsys, "launch", "--config", str(config), DUMMY)
