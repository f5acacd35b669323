"""A program that keeps the launcher's contract without training anything, so that a launch takes milliseconds.

    dummy_peer.py DIRECTORY [ACTION]

It lays a file ``started-R-LIFE`` with what it was told into the directory, and then does what the action says.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

directory, action = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "finish"
reading, writing = map(int, os.environ["GOSSIP_CHANNEL"].split(","))
lines = os.fdopen(reading)


def tell(**message: object) -> None:
    with contextlib.suppress(OSError):  # nobody has to listen
        os.write(writing, json.dumps(message).encode() + b"\n")


def until(path: Path) -> None:
    """Wait for a file to appear; the test's time is bounded, and so is this."""
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit(99)
        time.sleep(0.01)


told = json.loads(lines.readline())["setup"]
rank, life = told["rank"], told.get("incarnation", 0) // 1000
(directory / f"started-{rank}-{life}").write_text(json.dumps({"setup": told, "argv": sys.argv, "pid": os.getpid()}))
if action == "die early" and rank == 1:
    print("something is missing here", flush=True)
    sys.exit(7)
if action == "override":
    for setting in ({"seed": 11}, {"algorithm": "adpsgd"}, {"run_dir": "elsewhere"}):
        tell(override=setting)
card = [rank, told.get("bind", "127.0.0.1:0").replace(":0", f":{5000 + rank}"), None]
tell(card=card)
cards = json.loads(lines.readline())["cards"]
(directory / f"cards-{rank}-{life}").write_text(json.dumps(cards))
print(f"rank {rank} of {told['world_size']} has {len(cards)} cards", flush=True)
tell(status={"step": 10, "samples": 320, "state": "training", "loss": 0.5, "neighbours": len(cards) - 1})
# The launcher reads in order what a peer tells it, and answers a card: so it has read the status by then. Before that
# it would end this peer instead of asking it to stop, or when the others have ended.
tell(card=card)
lines.readline()
if action == "die once" and rank == 1 and life == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if action == "die once" and rank != 1:
    until(directory / "done-1")
if action == "fail" and rank == 1:
    sys.exit(4)
if action == "fail all":
    sys.exit(4)
if action == "wait":
    try:
        (directory / f"waiting-{rank}").touch()
        until(directory / "go on")
    except KeyboardInterrupt:
        (directory / f"interrupted-{rank}").touch()
        raise
if action == "ignore":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (directory / f"deaf-{rank}").touch()
    until(directory / "go on")
print("done", flush=True)
tell(ended="finished")  # as a peer does that leaves its with statement
(directory / f"done-{rank}").touch()
