"""Swarms of real engines in threads: exactness, agreement, the swarm's epochs, records, and every way to end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peer_script import written
from swarms import LONGEST, Meeting, flat, more_than, nothing_left, patient, reserved_ports, swarm, together
from torch import nn

import peers
from gossip import presets
from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.net.memory_transport import MemoryTransport
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Parcel
from peers import Peer, PeerError
from peers.methods.moves import LONGEST as MOST
from peers.methods.moves import Moves
from topologies import parse

SIZE, STEPS, RATE = 5, 24, 0.05


class Point(nn.Module):
    """A vector, in double precision."""

    def __init__(self, values: Any, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.as_tensor(values, dtype=dtype).clone())


def attached(peer: Peer, values: Any, rate: float = RATE) -> tuple[Point, torch.optim.Optimizer]:
    model = Point(values)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    peer.attach(model, optimizer)
    return model, optimizer


def quadratic(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return A and b of a peer's own loss, |A z - b|^2 / 2."""
    generator = np.random.default_rng([7, rank])
    return generator.normal(size=(SIZE, SIZE)), generator.normal(size=SIZE)


def mixing(topology: str, n: int, step: int) -> np.ndarray:
    """Return the matrix of one turn: what each receives of what each held."""
    schedule = parse(topology, n)
    matrix = np.zeros((n, n))
    for sender in range(n):
        for receiver, fraction in schedule.out_edges(sender, step):
            matrix[receiver, sender] = fraction
        matrix[sender, sender] = 1 - matrix[:, sender].sum()
    return matrix


def reference(topology: str, n: int, start: np.ndarray) -> np.ndarray:
    """Return where plain SGD and the mixing matrices lead, in dense double precision."""
    z = np.tile(start, (n, 1))
    for step in range(STEPS):
        for rank in range(n):
            a, b = quadratic(rank)
            z[rank] -= RATE * a.T @ (a @ z[rank] - b)
        matrix = mixing(topology, n, step)
        assert np.allclose(matrix.sum(axis=1), 1), "or the weights do not stay 1, and this is no reference"
        z = matrix @ z
    return z


def descend(peer: Peer, end: threading.Barrier) -> tuple[np.ndarray, float, int]:
    start = np.random.default_rng(peer.rank).normal(size=SIZE)
    model, optimizer = attached(peer, start)
    a, b = (torch.from_numpy(one) for one in quadratic(peer.rank))
    for _ in range(STEPS):
        optimizer.zero_grad()
        # As in any step that takes longer than a round trip, all answers are there before the next push.
        assert peer._attached().session.driver.flush(LONGEST)
        (0.5 * (a @ model.at - b).square().sum()).backward()
        optimizer.step()
    end.wait(LONGEST)  # who leaves changes the schedule of those who have a step to go
    return model.at.detach().numpy().copy(), peer.weight, peer.step


@pytest.mark.parametrize(
    ("n", "topology", "algorithm"),
    [(4, "one-peer-exponential", "sgp"), (2, "one-peer-exponential", "sgp"), (4, "ring", "sgp"), (3, "base", "dpsgd")],
)
def test_synchronous_peers_equal_the_product_of_the_mixing_matrices(
    n: int, topology: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    begin = Moves.begin

    def watched(moves: Moves) -> None:
        begin(moves)
        kept.append(len(moves._before))

    monkeypatch.setattr(Moves, "begin", watched)
    end = threading.Barrier(n)
    exact = patient(shard_bytes=16, weight_floor=0.0)
    results = swarm(n, lambda peer: descend(peer, end), exact, topology=topology, algorithm=algorithm)
    expected = reference(topology, n, np.random.default_rng(0).normal(size=SIZE))
    for rank, (found, weight, steps) in enumerate(results):
        np.testing.assert_allclose(found, expected[rank], rtol=1e-11, atol=1e-12)
        assert weight == pytest.approx(1.0, abs=1e-12)
        assert steps == STEPS
    assert kept == [0] * (n * STEPS), "with all the mass at home nothing is copied"


def test_an_attached_optimizer_merges_before_it_moves_and_trains_what_is_on_its_way() -> None:
    """The rule of `peers.methods.moves` through a whole peer, whose neighbour died and is then played by hand."""
    meeting = Meeting(2, algorithm="gossip-push")
    here, there = Address(0, 0), Address(1, 0)
    move = np.array([1.0, -2.0])

    def dies() -> None:
        with meeting.peer(1) as peer:
            attached(peer, np.zeros(2))
            peer._attached().session.driver.close()

    def stays(peer: Peer) -> None:
        model, optimizer = attached(peer, np.zeros(2), rate=1.0)
        session, layout = peer._attached().session, peer._attached().replica.layout
        gone.wait(LONGEST)
        z = np.zeros(2)

        def step() -> None:
            model.at.grad = torch.from_numpy(-move)
            optimizer.step()
            np.testing.assert_allclose(model.at.detach().numpy(), z, rtol=1e-13)

        z = z + move
        step()
        assert (peer.weight, session.status().unanswered_weights[0]) == (0.5, 0.5), "half of it is on its way, for ever"
        z = z + MOST * move  # twice as long, were there no bound
        step()
        other = MemoryTransport(meeting.hub, meeting.cards[1].endpoint)
        other.connect(0, meeting.cards[0].endpoint)
        values = np.zeros(layout.size)
        values[:2] = 30.0, 60.0
        codec = WireCodec("run", layout)
        assert other.send(0, codec.encode(Parcel(there, here, 0, 0, 0, 0.25, values)))
        while not session.status().arrivals:
            other.wait(0.01)
        other.close()
        z = (0.5 * z + 0.25 * values[:2]) / 0.75 + MOST * move
        step()
        assert peer.weight == 0.75

    gone = threading.Event()

    def neighbour() -> None:
        try:
            dies()
        finally:
            gone.set()

    for result in together([meeting.task(0, stays), neighbour]):
        assert result is None, result


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd", "local:h=2,tau=1"])
def test_consensus_brings_all_to_the_same_point_within_the_tolerance(algorithm: str) -> None:
    def body(peer: Peer) -> tuple[float, np.ndarray]:
        model, optimizer = attached(peer, np.ones(SIZE))
        for _ in range(3):
            model.at.grad = torch.full((SIZE,), float(peer.rank), dtype=torch.float64)
            optimizer.step()
        return peer.consensus(1e-4, LONGEST), model.at.detach().numpy().copy()

    results = swarm(4, body, presets.preset("loopback"), algorithm=algorithm)
    for disagreement, _ in results:
        assert 0 <= disagreement <= 1e-4
    points = np.stack([point for _, point in results])
    assert np.abs(points - points.mean(axis=0)).max() <= 1e-3
    assert not np.allclose(points.mean(), 1.0), "they trained"


def test_consensus_waits_for_who_comes_late_and_goes_on_without_who_left() -> None:
    trains = threading.Event()

    def late(peer: Peer) -> float:
        model, optimizer = attached(peer, np.zeros(SIZE))
        assert trains.wait(LONGEST)
        model.at.grad = torch.ones(SIZE, dtype=torch.float64)
        optimizer.step()
        return peer.consensus(1e-3, LONGEST)

    def prompt(peer: Peer) -> float:
        attached(peer, np.zeros(SIZE))
        trains.set()
        return peer.consensus(1e-3, LONGEST)

    def leaves(peer: Peer) -> float:
        attached(peer, np.zeros(SIZE))
        return 0.0

    assert max(swarm(3, [prompt, late, leaves], presets.preset("loopback"))) <= 1e-3


@pytest.mark.parametrize("algorithm", ["sgp", "osgp"])
def test_evaluate_shows_the_average_and_gives_each_its_own_back(algorithm: str) -> None:
    """Three times, with steps right after it that would show in the average of who is still evaluating."""

    def body(peer: Peer) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        model, optimizer = attached(peer, np.ones(SIZE), rate=1.0)
        found = []
        for _ in range(3):
            model.at.grad = torch.full((SIZE,), -10.0 * (peer.rank + 1), dtype=torch.float64)
            optimizer.step()
            own, average = peer.evaluate(lambda: model.at.detach().numpy().copy(), 1e-6, LONGEST)
            found.append((own, average, model.at.detach().numpy().copy()))
        return found

    results = swarm(3, body, presets.preset("loopback"), algorithm=algorithm)
    for turn in range(3):
        averages = np.stack([found[turn][1] for found in results])
        np.testing.assert_allclose(averages, averages.mean(axis=0, keepdims=True).repeat(3, axis=0), rtol=1e-4)
        for found in results:
            np.testing.assert_array_equal(found[turn][0], found[turn][2])


def test_evaluate_gives_the_own_values_back_when_the_function_fails() -> None:
    def body(peer: Peer) -> bool:
        model, optimizer = attached(peer, np.ones(SIZE))
        model.at.grad = torch.full((SIZE,), float(peer.rank), dtype=torch.float64)
        optimizer.step()
        before, calls = flat(model), 0

        def fails() -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            peer.evaluate(fails, 1e-3, LONGEST)
        return torch.equal(flat(model), before)

    assert swarm(2, body) == [True, True]


def samples(peer: Peer, n: int, epochs: int, seen: Counter[int], optimizer: torch.optim.Optimizer, **how: Any) -> int:
    """Go through a loop over the numbers below n; return the steps."""
    steps = 0
    for batch in peer.batches(range(n), 4, epochs, **how):
        seen.update(batch.tolist())
        optimizer.zero_grad()
        optimizer.step()
        steps += 1
    return steps


def test_the_swarm_sees_every_sample_in_each_of_several_loops() -> None:
    seen: list[list[Counter[int]]] = [[Counter(), Counter(), Counter()] for _ in range(4)]

    def body(peer: Peer) -> tuple[int, list[int]]:
        _, optimizer = attached(peer, np.zeros(2))
        mine = seen[peer.rank]
        steps = [samples(peer, 200, epochs, mine[loop], optimizer) for loop, epochs in enumerate((2, 1, 1))]
        assert peer.samples == sum(sum(one.values()) for one in mine)
        return peer.samples, steps

    results = swarm(4, body, presets.preset("loopback"))
    for loop, epochs in enumerate((2, 1, 1)):
        together_seen = sum((one[loop] for one in seen), Counter())
        assert set(together_seen) == set(range(200))
        assert min(together_seen.values()) >= epochs
        assert sum(together_seen.values()) <= 200 * epochs * 1.5
    assert sum(total for total, _ in results) == sum(sum(one.values()) for mine in seen for one in mine)


def test_a_slow_peer_does_less() -> None:
    done = [0, 0, 0]
    turn = threading.Event()

    def body(peer: Peer) -> None:
        _, optimizer = attached(peer, np.zeros(2))
        for _ in peer.batches(range(240), 4, 1):
            optimizer.zero_grad()
            optimizer.step()
            done[peer.rank] += 1
            if peer.rank == 2 and done[2] == 3:
                assert turn.wait(LONGEST), "the others never came to an end"
            elif done[0] + done[1] >= 55:
                turn.set()

    swarm(3, body, presets.preset("loopback"))
    assert done[2] <= 10
    assert sum(done) >= 60


def test_a_restarted_peer_skips_what_is_over_and_gets_the_state() -> None:
    """Six loops are over, more than are still told of one by one, when rank 1 comes back as a newcomer."""
    meeting = Meeting(2, algorithm="osgp")
    back, ended, died = threading.Event(), threading.Event(), threading.Event()
    loops = 7

    def stays(peer: Peer) -> float:
        model, optimizer = attached(peer, np.zeros(2), rate=1.0)
        assert died.wait(LONGEST)
        highest = 0.0
        for loop in range(loops):
            if loop == loops - 1:
                back.set()
            for _ in peer.batches(range(64), 1, 1):
                model.at.grad = torch.full((2,), -1.0, dtype=torch.float64)
                optimizer.step()
                highest = max(highest, float(model.at.detach()[0]))
                if loop == loops - 1 and ended.is_set():
                    break
            if loop == loops - 1:
                # It must find somebody who is in the last loop, for as long as that takes.
                while not ended.is_set():
                    optimizer.step()
                    highest = max(highest, float(model.at.detach()[0]))
        return highest

    def newcomer() -> tuple[float, list[int], tuple[int, ...]]:
        with meeting.peer(1, presets.preset("loopback")) as peer:
            attached(peer, np.full(2, 7.0))
            peer._attached().session.driver.close()  # as if killed: no goodbye
        died.set()
        assert back.wait(LONGEST)
        with meeting.peer(1, presets.preset("loopback"), incarnation=1000) as peer:
            model, optimizer = attached(peer, np.full(2, -1e6), rate=0.0)
            adopted = float(model.at.detach()[0])
            bulletin = peer._attached().session.bulletin
            steps = [0] * (loops - 1)
            try:
                for loop in range(loops - 1):
                    for _ in peer.batches(range(64), 4, 1):
                        optimizer.zero_grad()
                        optimizer.step()
                        steps[loop] += 1
                        # The news may come during the first loop that it begins.
                        assert bulletin.wait_for(lambda: f"data-{loops - 1}" in bulletin.early(), LONGEST)
            finally:
                ended.set()
            return adopted, steps, peer.view

    highest, (adopted, steps, view) = together([meeting.task(0, stays, presets.preset("loopback")), newcomer])
    # Half of rank 0's mass may have been in flight to the dead peer all the while, and come back untrained.
    assert 0.5 * 64 * (loops - 1) <= adopted <= highest + 1
    assert sum(steps) <= 1, "a loop may have been begun before the news came, none was gone through"
    assert view == (0, 1)


@pytest.mark.parametrize("algorithm", ["local:h=100000", "easgd:tau=1000", "easgd:alpha=0.001", "noloco:h=500"])
def test_peers_that_seldom_exchange_agree_as_soon_as_others(algorithm: str) -> None:
    moved = threading.Barrier(2)

    def body(peer: Peer) -> tuple[float, float]:
        model, optimizer = attached(peer, np.zeros(2), rate=1.0)
        model.at.grad = torch.full((2,), -float(1 + peer.rank), dtype=torch.float64)
        optimizer.step()
        moved.wait(LONGEST)  # a move of mass that came from the mixing of the other would be another one
        return peer.consensus(1e-3, LONGEST), float(model.at.detach()[0])

    for reached, value in swarm(2, body, presets.preset("loopback"), algorithm=algorithm):
        assert reached <= 1e-3
        assert value == pytest.approx(1.5, abs=1e-2)


def test_metrics_and_summary_say_what_happened(tmp_path: Path) -> None:
    def body(peer: Peer) -> None:
        model, optimizer = attached(peer, np.ones(2))
        for batch in peer.batches(range(24), 4, 1):
            loss = model.at.square().sum()
            optimizer.zero_grad()
            loss.backward()
            peer.log(loss=loss, size=len(batch))
            optimizer.step()
        peer.consensus(1e-3, LONGEST)

    swarm(2, body, run_dir=str(tmp_path), algorithm="sgp")
    total = 0
    for rank in range(2):
        directory = tmp_path / f"rank-{rank}"
        lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((directory / "summary.json").read_text())
        noted = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
        for line in lines:
            assert line["size"] == 4
            assert 0 < line["loss"] <= 2
            assert line["seconds"] >= line["wait_seconds"] >= 0
            assert line["bytes_sent"] > 0
            assert 0.3 <= line["weight"] <= 3
        assert summary["exit"] == "finished"
        assert summary["rank"] == rank
        assert summary["steps"] == len(lines)
        assert summary["samples"] == 4 * len(lines)
        assert summary["incarnation"] == 0
        assert summary["rejected"] == {}
        assert summary["bytes_sent"] >= sum(line["bytes_sent"] for line in lines)
        assert summary["seconds"] >= summary["wait_seconds"] > 0
        (agreed,) = [one for one in noted if one["event"] == "consensus"]
        assert agreed["disagreement"] <= 1e-3
        total += summary["samples"]
    assert total >= 24


@pytest.mark.parametrize("fails", [False, True], ids=["finished", "failed"])
def test_final_weights_add_up_with_what_was_under_way(tmp_path: Path, fails: bool) -> None:
    def body(peer: Peer) -> None:
        _, optimizer = attached(peer, np.ones(2))
        samples(peer, 240, 1, Counter(), optimizer)
        if fails:
            raise ArithmeticError

    n = 4
    Meeting(n, run_dir=str(tmp_path), algorithm="osgp").run(body, presets.preset("loopback"))
    summaries = [json.loads((tmp_path / f"rank-{rank}" / "summary.json").read_text()) for rank in range(n)]
    held = sum(one["weight_left"] for one in summaries)
    unanswered = sum(one["weight_unanswered"] for one in summaries)
    assert held - 1e-6 <= n <= held + unanswered + 1e-6, "what is unanswered has arrived, or it has not"


def test_a_value_is_logged_once_and_the_peers_own_names_are_taken(tmp_path: Path) -> None:
    def body(peer: Peer) -> None:
        _, optimizer = attached(peer, np.ones(2))
        peer.log(note="first", loss=torch.tensor(0.5, requires_grad=True))
        optimizer.step()
        optimizer.step()
        with pytest.raises(PeerError, match="step, weight: the peer itself"):
            peer.log(step=3, weight=1.0, loss=0.0)
        optimizer.step()

    swarm(1, body, run_dir=str(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "rank-0" / "metrics.jsonl").read_text().splitlines()]
    assert [(line.get("note"), line.get("loss")) for line in lines] == [("first", 0.5), (None, None), (None, None)]


def test_a_swarm_that_was_interrupted_goes_on_from_both_checkpoints(tmp_path: Path) -> None:
    """Both wait for each other again, each keeps what it had, and the data that was seen is not seen again."""
    seen: list[Counter[int]] = [Counter(), Counter()]

    def body(peer: Peer) -> tuple[int, np.ndarray, int]:
        model, optimizer = attached(peer, np.full(2, float(peer.rank)), rate=1.0)
        began, first = peer.step, model.at.detach().numpy().copy()
        resumes = began > 0
        for batch in peer.batches(range(60), 2, 1):
            written(peer)
            model.at.grad = torch.full((2,), -1.0 - peer.rank, dtype=torch.float64)
            optimizer.step()
            seen[peer.rank].update(batch.tolist())
            if not resumes and peer.step == 6:
                written(peer)
                raise ArithmeticError(json.dumps(model.at.tolist()))
        return began, first, len(peer.view)

    setup = {"run_dir": str(tmp_path), "checkpoint_every": 2, "algorithm": "sgp", "resume": True}
    interrupted = Meeting(2, **setup).run(body)
    assert [type(error) for error in interrupted] == [ArithmeticError, ArithmeticError]
    before = sum((one for one in seen), Counter())
    for rank, (began, first, _) in enumerate(swarm(2, body, **setup)):
        assert began == 4, "the one of step 6 comes when the loop asks for its next batch"
        assert 2.0 < first[0] < 1.0 + rank + 2 * 6
    after = sum((one for one in seen), Counter())
    assert set(after) == set(range(60))
    assert sum(after.values()) <= 60 + 2 * 2 * 2 + 8, "no more than the steps after the checkpoint, and the last chunks"
    assert sum(before.values()) == 24


def test_a_checkpoint_counts_for_those_who_have_none(tmp_path: Path) -> None:
    """Rank 1 has one and rank 0, whose weights count otherwise, has lost its own: again and again, whoever is first."""

    def save(peer: Peer) -> None:
        model, optimizer = attached(peer, np.zeros(2), rate=1.0)
        model.at.grad = torch.full((2,), -5.0, dtype=torch.float64)
        optimizer.step()

    swarm(1, save, run_dir=str(tmp_path), checkpoint_every=1)
    (tmp_path / "rank-0").rename(tmp_path / "rank-1")

    def resume(peer: Peer) -> tuple[int, list[float]]:
        model, _ = attached(peer, np.full(2, 100.0 + peer.rank))
        return peer.step, model.at.tolist()

    for _ in range(5):
        results = swarm(3, resume, run_dir=str(tmp_path), resume=True)
        assert results == [(0, [5.0, 5.0]), (1, [5.0, 5.0]), (0, [5.0, 5.0])]


def test_who_resumes_waits_for_the_others_like_everybody(tmp_path: Path) -> None:
    def save(peer: Peer) -> None:
        attached(peer, np.zeros(2))[1].step()

    swarm(2, save, run_dir=str(tmp_path), checkpoint_every=1)
    through = threading.Event()

    def first(peer: Peer) -> int:
        attached(peer, np.ones(2))
        through.set()
        return peer.step

    def second(peer: Peer) -> int:
        assert not through.wait(0.5), "it went on alone"
        attached(peer, np.ones(2))
        return peer.step

    assert swarm(2, [first, second], run_dir=str(tmp_path), resume=True) == [1, 1]


def test_leaving_early_does_not_hang_the_others() -> None:
    def leaves(peer: Peer) -> int:
        attached(peer, np.zeros(2))
        return 0

    def stays(peer: Peer) -> int:
        _, optimizer = attached(peer, np.zeros(2))
        seen: Counter[int] = Counter()
        steps = samples(peer, 80, 1, seen, optimizer)
        assert peer.consensus(1e-3, LONGEST) <= 1e-3
        assert 0 not in peer.view
        return steps

    results = swarm(3, [leaves, stays, stays], presets.preset("loopback"), algorithm="sgp")
    assert sum(results) >= 20


def test_an_exception_propagates_ends_the_peer_and_not_the_others(tmp_path: Path) -> None:
    def fails(peer: Peer) -> None:
        _, optimizer = attached(peer, np.zeros(2))
        for _ in peer.batches(range(80), 4, 1):
            optimizer.step()
            raise ArithmeticError("the loss is a teapot")

    def stays(peer: Peer) -> int:
        _, optimizer = attached(peer, np.zeros(2))
        return samples(peer, 80, 1, Counter(), optimizer)

    error, steps = Meeting(2, run_dir=str(tmp_path)).run([fails, stays], presets.preset("loopback"))
    assert isinstance(error, ArithmeticError)
    assert steps == 20, "what the other one began and did not end is done again"
    summary = json.loads((tmp_path / "rank-0" / "summary.json").read_text())
    assert summary["exit"] == "failed: ArithmeticError: the loss is a teapot"
    assert json.loads((tmp_path / "rank-1" / "summary.json").read_text())["exit"] == "finished"


@pytest.mark.parametrize("state", ["joined", "attached", "stepped", "in a loop", "mixed", "failed", "closed twice"])
def test_the_end_leaves_no_thread_no_socket_and_no_file(state: str, tmp_path: Path) -> None:
    before = nothing_left()
    optimizer = None
    with reserved_ports(1) as ports:
        try:
            with peers.join(
                {}, rank=0, hosts=[f"127.0.0.1:{ports[0]}"], run_dir=str(tmp_path), checkpoint_every=1
            ) as peer:
                if state != "joined":
                    _, optimizer = attached(peer, np.zeros(2))
                if state in ("stepped", "closed twice", "failed") and optimizer is not None:
                    optimizer.step()
                if state == "in a loop" and optimizer is not None:
                    for _ in peer.batches(range(9), 1, 1):
                        optimizer.step()
                        break
                if state == "mixed":
                    assert peer.consensus() == 0.0
                if state == "closed twice":
                    peer.close()
                    peer.close()
                if state == "failed":
                    raise ArithmeticError
        except ArithmeticError:
            assert state == "failed"
    assert more_than(before) == (set(), {})


def test_a_join_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = nothing_left()
    for wrong in ({"stragglers": "nonsense"}, {"faults": "nonsense"}, {"preset": "nonsense"}):
        with pytest.raises(SettingsError, match="nonsense"):
            peers.join({}, run_dir=str(tmp_path), **wrong)
    assert more_than(before) == (set(), {})


def test_a_swarm_over_real_sockets_ends_without_a_trace(tmp_path: Path) -> None:
    before = nothing_left()

    def act(rank: int) -> float:
        with peers.join({}, rank=rank, hosts=hosts, run_dir=str(tmp_path), start_timeout=LONGEST) as peer:
            _, optimizer = attached(peer, np.full(2, float(rank)))
            samples(peer, 40, 1, Counter(), optimizer)
            return peer.consensus(1e-3, LONGEST)

    with reserved_ports(3) as ports:
        hosts = [f"127.0.0.1:{port}" for port in ports]
        results = together([lambda rank=rank: act(rank) for rank in range(3)])
    assert max(results) <= 1e-3
    assert more_than(before) == (set(), {})


def test_a_swarm_without_a_launcher_says_that_it_formed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, by the lowest rank; and each peer that resumes says from where."""

    def body(peer: Peer) -> None:
        _, optimizer = attached(peer, np.ones(2))
        for _ in range(2):
            optimizer.step()
        written(peer)

    formed = "rank 0: 3 peers train together: osgp on base:k=2"
    swarm(3, body, topology="base:k=2", run_dir=str(tmp_path), checkpoint_every=2)
    assert [text for text in caplog.messages if "train together" in text] == [formed]
    assert "resumes" not in caplog.text
    caplog.clear()
    swarm(3, body, topology="base:k=2", run_dir=str(tmp_path), checkpoint_every=2, resume=True)
    resumed = sorted(text for text in caplog.messages if "resumes" in text)
    assert resumed == [f"rank {rank}: resumes from the checkpoint of step 2" for rank in range(3)]
    swarm(1, body, run_dir=str(tmp_path / "alone"))
    assert "1 peers" not in caplog.text


def test_a_peer_whose_others_left_before_training_says_that_it_trains_alone(caplog: pytest.LogCaptureFixture) -> None:
    swarm(1, lambda peer: peer._reporter.formed(Endpoint("10.0.0.1", 5000), 1))
    assert "rank 0: this peer trains alone, because the others did not come or have left: osgp on " in caplog.text
