"""The processes of one replica, as the launcher has them: what one death means for the others."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from test_controller import TRAINING, Played, played

from gossip.errors import SettingsError
from launch.options.options import LaunchOptions
from launch.swarm.host import PeerProcess
from launch.swarm.hostfile import LOCAL
from launch.swarm.launch_plan import PeerSeat
from launch.swarm.launched_peer import LaunchedPeer
from launch.swarm.launching import planned
from launch.swarm.replicas import LaunchedReplica
from launch.user_errors import CommandError


def replica(rows: int = 2, first: int = 2) -> LaunchedReplica:
    host = Played(lambda *_: None, {})
    peers = [LaunchedPeer(PeerSeat(first + row, row, LOCAL), host, lives=1, running=True) for row in range(rows)]
    return LaunchedReplica(peers, leaving=10.0)


def test_rows_that_do_not_end_by_themselves_are_asked_and_then_ended() -> None:
    one = replica()
    assert not list(one.due(100.0)), "nobody died"
    one.rows[0].running = False
    one.died(100.0)
    one.died(100.9)  # the first death counts
    assert not list(one.due(100.9)), "they end by themselves"
    assert list(one.due(101.1)) == [(one.rows[1], signal.SIGTERM)]
    assert not list(one.due(101.2)), "it is asked once"
    assert list(one.due(104.1)) == [(one.rows[1], signal.SIGKILL)]


def test_a_row_that_hands_over_what_it_holds_is_left_alone_for_as_long_as_a_stop_may_take() -> None:
    one = replica()
    one.rows[0].running = False
    one.died(100.0)
    one.leaves(3)
    assert not list(one.due(110.9))
    assert list(one.due(111.1)) == [(one.rows[1], signal.SIGKILL)]


def test_a_replica_that_starts_again_has_lost_nobody() -> None:
    one = replica()
    one.died(100.0)
    one.starts()
    assert not list(one.due(200.0))


def test_a_replica_is_named_by_its_number_and_a_process_of_its_own_by_its_rank() -> None:
    assert replica().name == "replica 1"
    assert replica(rows=1).name == "rank 2"


def card(rank: int, life: int = 0) -> dict[str, Any]:
    lead = [f"127.0.0.1:{7000 + rank + life}"] if rank % 2 == 0 else []
    return {"card": [rank, f"127.0.0.1:{9000 + rank}", None, *lead]}


def test_all_rows_return_together_and_are_introduced_when_the_cards_of_all_are_new(tmp_path: Path) -> None:
    well = [TRAINING, {"ended": "finished"}, {"exit": 0}]
    says: dict[int, list[dict[str, Any]]] = {rank: [card(rank)] for rank in range(4)}
    controller, host = played(tmp_path, says, grid="2x2", restart=1)
    begun: list[dict[str, Any]] = []
    lives = {0: 0, 1: 0}

    def start(peer: PeerProcess) -> None:
        host.started.append(peer.rank)
        host._running.add(peer.rank)
        lives[peer.rank] = lives.get(peer.rank, 0) + 1
        if lives[peer.rank] == 2:
            begun.append(dict(peer.setup))
        host.emit(peer.rank, card(peer.rank, 100 * (lives[peer.rank] - 1)))

    def tell(rank: int, message: Any) -> None:
        host.told.append((rank, dict(message)))
        if "cards" in message:
            host.emit(rank, TRAINING)
            if rank == 3 and lives[0] == 1:
                host._emit(1, {"exit": -signal.SIGKILL})
                host._emit(0, {"exit": 75})
            if rank == 1 and lives[1] == 2:
                for other in range(4):
                    for message in well:
                        host._emit(other, message)

    host.start, host.tell = start, tell  # type: ignore[method-assign]
    assert controller.run() == 0
    assert host.started == [0, 1, 2, 3, 0, 1]
    assert [one["incarnation"] for one in begun] == [1000, 1000]
    assert [one["bind"] for one in begun] == ["127.0.0.1:9000", "127.0.0.1:9001"], "where the others look for them"
    introduced = [(rank, message["cards"]) for rank, message in host.told if "cards" in message]
    assert [rank for rank, _ in introduced] == [0, 1, 2, 3, 0, 1], "nobody got half of the new cards"
    for _, cards in introduced[4:]:
        assert cards[0] == card(0, 100)["card"], "where the crew meets in this life"


def test_what_happens_to_a_row_on_purpose_happens_to_its_replica_on_purpose(tmp_path: Path) -> None:
    well = [TRAINING, {"ended": "finished"}, {"exit": 0}]
    says = {
        0: [TRAINING, {"ended": "failed: CrewError: x"}, {"exit": 75}],
        1: [TRAINING, {"exit": -signal.SIGKILL}],
        2: well,
        3: well,
    }
    controller, _ = played(tmp_path, says, grid="2x2", fault=("kill:0.1@5",))
    controller._introduced = True
    assert controller.run() == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"grid": "2x2", "peers": 6}, "--grid 2x2 has 4 processes, and 6 are to be started"),
        ({"grid": "2by2"}, "'2by2' is not a grid: write the rows of a crew, x and the number of replicas"),
        ({"grid": "2x2", "fault": ("kill:2.0@5",)}, "the grid 2x2 has no replica 2 with row 0"),
        ({"peers": 4, "fault": ("kill:1.0@5",)}, "the run has no grid: give a rank, or --grid"),
        ({"grid": "2x2", "straggler": ("0.5=4x",)}, "the grid 2x2 has no replica 0 with row 5"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    script = tmp_path / "train.py"
    script.touch()
    with pytest.raises((CommandError, SettingsError)) as refused:
        planned(LaunchOptions(str(script), run_dir=str(tmp_path / "run"), **options))
    assert complaint in str(refused.value)


def test_crews_stay_on_one_host_unless_it_is_permitted_by_name(tmp_path: Path) -> None:
    script, hosts = tmp_path / "train.py", tmp_path / "hosts"
    script.touch()
    hosts.write_text("a slots=3\nb slots=1\n")
    options = {"hostfile": str(hosts), "grid": "2x2", "run_dir": str(tmp_path / "run")}
    with pytest.raises(CommandError, match="host a has 3 slots, which is no multiple of 2"):
        planned(LaunchOptions(str(script), **options))
    plan, _ = planned(LaunchOptions(str(script), **options, crews_across_hosts=True))
    assert "rank 3: b, local rank 0, replica 1, row 1" in plan.lines()
    hosts.write_text("a slots=2\nb slots=2\n")
    plan, _ = planned(LaunchOptions(str(script), **options))
    assert [plan.crew(rank) for rank in range(4)] == [range(2), range(2), range(2, 4), range(2, 4)]
