"""`gossip launch` with real training: stopped by Ctrl-C, refused a second time, resumed, reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from commands import Capture, failure

SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"
PATIENCE = 60.0


def lines(run: Path, rank: int, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    path = run / f"rank-{rank}" / name
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def until_trained(process: subprocess.Popen[str], run: Path, steps: int) -> None:
    """Wait until both peers have made this number of steps, and the launcher has heard that they train."""
    deadline = time.monotonic() + PATIENCE
    while not all(len(lines(run, rank)) >= steps and (run / f"heard-{rank}").exists() for rank in range(2)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_saves_where_the_peers_are_and_resume_goes_on_from_there(tmp_path: Path, capsys: Capture) -> None:
    run, stop = tmp_path / "run", tmp_path / "stop"
    heard = str(run / "heard-{rank}")
    options = {"samples": 20_000, "epochs": 1000, "consensus": False, "stop_file": str(stop), "heard": heard}
    arguments = ["launch", "-n", "2", "--run-dir", str(run), "--checkpoint-every", "100000", "--stop-timeout", "50s"]
    script = [str(SCRIPT), json.dumps(options)]
    process = subprocess.Popen(
        [sys.executable, "-m", "launch.cli", *arguments, *script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until_trained(process, run, 5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, out
    assert "Traceback" not in out
    assert "failed" not in out
    assert f"gossip: stopped; continue from its checkpoints with --resume --run-dir {run}" in out
    stopped = []
    for rank in range(2):
        summary = json.loads((run / f"rank-{rank}" / "summary.json").read_text())
        stopped.append(summary["steps"])
        assert summary["exit"] == "interrupted"
        assert [one.name for one in (run / f"rank-{rank}" / "checkpoints").glob("step-*")] == [
            f"step-{stopped[rank]:08d}"
        ]
        said_ = f"[{rank}] rank {rank}: stopped after step {stopped[rank]} as asked, and saved that as a checkpoint"
        assert out.splitlines().count(said_) == 1
    before = (run / "rank-0" / "metrics.jsonl").read_bytes()

    error = failure(capsys, *arguments, *script)
    assert error == f"{run} already contains a run: continue it with --resume, or choose another --run-dir\n"
    assert (run / "rank-0" / "metrics.jsonl").read_bytes() == before, "nothing was started"

    stop.touch()
    again = subprocess.run(
        [sys.executable, "-m", "launch.cli", *arguments, "--resume", *script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    for rank in range(2):
        made = [line["step"] for line in lines(run, rank)]
        assert made == list(range(1, len(made) + 1)), "it goes on where it stopped"
        assert len(made) == stopped[rank] + 1
