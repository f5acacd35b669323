"""Swarms of real processes whose members come and go: by `gossip join`, by crashes and restarts, by a cut network."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ssh_server import ROOT, Network, inside, run

from launch.options.options import JoinOptions
from launch.swarm.newcomer import _place_of
from launch.user_errors import CommandError
from launch.watch.invitation import JOIN, WATCH, Invitation, found, read_invitation
from launch.watch.lookout import Lookout

SCRIPT = Path(__file__).parents[2] / "support" / "life_script.py"
PATIENCE = 60.0

# Longer than what a test waits for in all, so that what it started is ended by the test itself.
pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


@pytest.fixture(autouse=True)
def _peers_end(tmp_path: Path) -> Iterator[None]:
    """Let the peers of a test end, also if it failed: they outlive their launcher, and train until they are stopped."""
    yield
    (tmp_path / "stop").touch()


def gossip(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "launch.cli", *map(str, arguments)]


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until(condition: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


def lines(run: Path, rank: int, name: str) -> list[str]:
    """Return the lines of a record; the last one may be just being written, and is left out then."""
    path = run / f"rank-{rank}" / name
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def events(run: Path, rank: int, what: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, lines(run, rank, "events.jsonl")) if one["event"] == what]


def told(run: Path, rank: int) -> list[tuple[int, str]]:
    """Return whom a rank noted in which state."""
    return [(one["rank"], one["state"]) for one in events(run, rank, "member") if one["state"] != "slow"]


def returned(run: Path, rank: int) -> list[dict[str, Any]]:
    """Return whose return a rank noted."""
    return [one for one in events(run, rank, "member") if one["what"] == "returned"]


def summary(run: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / f"rank-{rank}" / "summary.json").read_text())
    return found


def steps(run: Path, rank: int) -> int:
    return len(lines(run, rank, "metrics.jsonl"))


def test_a_peer_joins_a_running_swarm_trains_leaves_and_hands_its_mass_over(tmp_path: Path) -> None:
    swarm, stop = tmp_path / "run", tmp_path / "stop"
    with running(*gossip("launch", "-n", "2", "--run-dir", swarm, SCRIPT, stop)) as launched:
        until(lambda: steps(swarm, 0) > 3, launched)
        for name in (JOIN, WATCH):
            assert (swarm / name).stat().st_mode & 0o077 == 0
            assert len(read_invitation(swarm / name).members) == 2
        joined = subprocess.run(
            gossip("join", swarm, SCRIPT, stop, "--steps", "40"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert joined.returncode == 0, joined.stdout + joined.stderr
        assert "joining run as rank 2" in joined.stdout
        until(lambda: all((2, "left") in told(swarm, rank) for rank in (0, 1)), launched)
        with Lookout(found(str(swarm), WATCH)) as lookout:
            until(lambda: _states(lookout) == {0: "alive", 1: "alive", 2: "left"}, launched)
        stop.touch()
        out, _ = launched.communicate(timeout=PATIENCE)
        assert launched.returncode == 0, out
    newcomer = summary(swarm, 2)
    assert newcomer["steps"] == 40
    assert newcomer["exit"] == "finished"
    assert newcomer["weight_left"] == 0, "all that it held is with the others"
    for rank in (0, 1):
        noted = told(swarm, rank)
        assert (2, "alive") in noted
        assert (2, "left") in noted
        assert (2, "dead") not in noted
    # Two founders and one that was minted for: nothing got lost, nothing is there twice.
    assert sum(summary(swarm, rank)["weight_left"] for rank in (0, 1)) == pytest.approx(3, abs=1e-6)


def _states(lookout: Lookout) -> dict[int, str]:
    return {one["rank"]: one["membership"] for one in lookout.look()["members"]}


def test_the_first_peer_is_killed_and_comes_back_as_a_newcomer(tmp_path: Path) -> None:
    swarm, stop = tmp_path / "run", tmp_path / "stop"
    faults = ("--fault", "kill:0@20", "--fault", "restart:0@60")
    with running(*gossip("launch", "-n", "3", "--run-dir", swarm, *faults, SCRIPT, stop)) as launched:
        until(lambda: len(events(swarm, 0, "start")) == 2, launched)
        before = [steps(swarm, rank) for rank in (1, 2)]
        until(lambda: len(events(swarm, 0, "welcomed")) == 1 and steps(swarm, 0) > 40, launched)
        until(lambda: all(steps(swarm, rank) > done for rank, done in zip((1, 2), before, strict=True)), launched)
        until(lambda: all(returned(swarm, rank) for rank in (1, 2)), launched)
        stop.touch()
        out, _ = launched.communicate(timeout=PATIENCE)
        assert launched.returncode == 0, out
    for rank in (1, 2):
        (back,) = returned(swarm, rank)
        assert back["rank"] == 0
        assert summary(swarm, rank)["incarnation"] == 0, "nobody else was taken for dead"
    assert summary(swarm, 0)["incarnation"] == back["incarnation"] > 0


def test_a_second_process_with_a_members_rank_is_refused_by_name(tmp_path: Path) -> None:
    swarm, stop = tmp_path / "run", tmp_path / "stop"
    with running(*gossip("launch", "-n", "2", "--run-dir", swarm, SCRIPT, stop)) as launched:
        until(lambda: steps(swarm, 0) > 3, launched)
        asked = gossip("join", swarm, "--rank", "1", "--run-dir", tmp_path / "other", SCRIPT, stop)
        refused = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert refused.returncode == 2
        assert "rank 1 is in use by" in refused.stderr
        stop.touch()
        out, _ = launched.communicate(timeout=PATIENCE)
        assert launched.returncode == 0, out


def test_two_that_join_at_the_same_time_both_get_in(tmp_path: Path) -> None:
    """They write to different places, and cannot know of each other: both ask for rank 2, and one tries again."""
    swarm, stop = tmp_path / "run", tmp_path / "stop"
    places = [tmp_path / "one", tmp_path / "two"]
    with running(*gossip("launch", "-n", "2", "--run-dir", swarm, SCRIPT, stop)) as launched:
        until(lambda: steps(swarm, 0) > 3, launched)
        joins = [gossip("join", swarm, "--run-dir", place, SCRIPT, stop) for place in places]
        with running(*joins[0]) as one, running(*joins[1]) as two:
            for rank in (2, 3):  # one after the other, each within the patience
                until(lambda rank=rank: any(steps(place, rank) > 3 for place in places), launched, one, two)
            stop.touch()
            outs = [process.communicate(timeout=PATIENCE)[0] for process in (one, two, launched)]
            assert [process.returncode for process in (one, two, launched)] == [0] * 3, "\n".join(outs)
    assert all({(2, "alive"), (3, "alive")} <= set(told(swarm, rank)) for rank in (0, 1))


def test_newcomers_that_share_a_directory_have_ranks_of_their_own(tmp_path: Path) -> None:
    """The swarm knows of neither yet."""
    members = [{"rank": rank, "membership": "alive"} for rank in (0, 1, 4)]
    options = JoinOptions("train.py", where=str(tmp_path))
    assert [_place_of(options, members)[0] for _ in range(3)] == [5, 6, 7]
    members[1]["membership"] = "left"
    assert _place_of(options, members) == (1, tmp_path)
    with pytest.raises(CommandError, match="rank-7 belongs to a peer of another run; choose another --run-dir"):
        _place_of(replace(options, rank=7), members)


def test_half_of_the_machines_are_cut_off_and_heal(tmp_path: Path) -> None:
    network = Network(4)
    try:
        _cut_and_heal(network, tmp_path)
    finally:
        network.close()


def _cut_and_heal(network: Network, tmp_path: Path) -> None:
    stop, swarm = tmp_path / "stop", tmp_path / "run"
    hosts = [f"{network.address(number)}:{4000 + number}" for number in range(4)]
    command = [sys.executable, str(SCRIPT), str(stop), "--quick", "--hosts", ",".join(hosts), "--run-dir", str(swarm)]

    def peer(rank: int) -> list[str]:
        return [*inside(network.machines[rank]), *command, "--rank", str(rank)]

    def members(rank: int) -> set[int]:
        changes = {one["rank"]: one["state"] for one in events(swarm, rank, "member")}
        return {other for other in range(4) if changes.get(other, "alive") in ("alive", "slow", "suspect")}

    with running(*peer(0)) as zero, running(*peer(1)) as one, running(*peer(2)) as two, running(*peer(3)) as three:
        all_of_them = (zero, one, two, three)
        until(lambda: all(steps(swarm, rank) > 3 for rank in range(4)), *all_of_them)
        _drop(network, "add")
        until(lambda: all(members(rank) == {rank, rank ^ 1} for rank in range(4)), *all_of_them)
        trained = [steps(swarm, rank) for rank in range(4)]
        until(lambda: all(steps(swarm, rank) > trained[rank] + 20 for rank in range(4)), *all_of_them)
        _drop(network, "delete")
        until(lambda: all(members(rank) == set(range(4)) for rank in range(4)), *all_of_them)
        stop.touch()
        for process in all_of_them:
            out, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, out
    assert all(summary(swarm, rank)["exit"] == "finished" for rank in range(4))


def _drop(network: Network, verb: str) -> None:
    """Let nothing pass between machines 0, 1 and 2, 3, or let it pass again."""
    assert ROOT
    for number, machine in enumerate(network.machines):
        for other in range(4):
            if number // 2 != other // 2:
                run("ip", "-n", machine, "route", verb, "blackhole", f"{network.address(other)}/32")


def test_an_invitation_names_whom_it_does_not_know(tmp_path: Path) -> None:
    from launch.watch.invitation import write_invitation

    write_invitation(tmp_path / JOIN, Invitation({"127.0.0.1:4000": ""}))
    with pytest.raises(Exception, match=r"does not list 127\.0\.0\.1:5000; it lists 127\.0\.0\.1:4000"):
        found("127.0.0.1:5000", JOIN, tmp_path / JOIN)
