"""What algorithms keep beside the model, through checkpoints, deaths and launches."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lockstep import RATE, SIZE, N, Vectors, heavy, loss_of, run
from peer_script import written
from swarms import LONGEST, LONGEST_PROCESS, Meeting, clean_environment, patient, reserved_ports, swarm, together

from gossip import presets
from peers import Peer

ALGORITHMS = {
    "slowmo:h=4": "one-peer-exponential",
    "noloco:h=4": "random-matching",
    "ssd:k=4,warmup=5": "one-peer-exponential",
    "local:h=4,tau=0": "one-peer-exponential",
    "sgp:momentum=mixed": "one-peer-exponential",
    "sgp:momentum=quasi-global": "one-peer-exponential",
    "local:h=4,tau=0,momentum=quasi-global": "one-peer-exponential",
}
NEW = [("slowmo:h=4", "base"), ("noloco:h=4", "random-matching"), ("ssd:k=4,warmup=6", "base")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_swarm_that_is_resumed_goes_on_to_the_last_bit(algorithm: str, tmp_path: Path) -> None:
    """From step 10, which is in the middle of a period."""
    topology = ALGORITHMS[algorithm]
    whole = run(algorithm, topology, steps=22, make=heavy)
    place = {"run_dir": str(tmp_path), "checkpoint_every": 10}
    first = run(algorithm, topology, steps=10, make=heavy, **place)
    rest = run(algorithm, topology, steps=22, make=heavy, resume=True, **place)
    np.testing.assert_array_equal(np.concatenate([first, rest]), whole)


@pytest.mark.parametrize("algorithm", ["sgp", "sgp:momentum=mixed"])
def test_adaptive_optimizers_that_are_resumed_go_on_to_the_last_bit(algorithm: str, tmp_path: Path) -> None:
    how = {"topology": "one-peer-exponential", "make": lambda ones: torch.optim.AdamW(ones, lr=RATE, betas=(0.8, 0.9))}
    whole = run(algorithm, steps=22, **how)
    place = {"run_dir": str(tmp_path), "checkpoint_every": 10}
    first = run(algorithm, steps=10, **how, **place)
    rest = run(algorithm, steps=22, **how, resume=True, **place)
    np.testing.assert_array_equal(np.concatenate([first, rest]), whole)


def test_a_checkpoint_of_another_algorithm_gives_its_model_and_no_more(tmp_path: Path) -> None:
    def body(peer: Peer) -> tuple[int, torch.Tensor, torch.Tensor]:
        model = Vectors(np.ones(SIZE))
        optimizer = heavy(model.parameters())
        peer.attach(model, optimizer)
        began, first = peer.step, model.at().detach().clone()
        for _ in peer.batches(range(4), 1, 1):
            written(peer)
            optimizer.zero_grad()
            loss_of(0, model.at()).backward()
            optimizer.step()
        return began, first, model.at().detach().clone()

    place = {"run_dir": str(tmp_path), "checkpoint_every": 1}
    ((_, _, left),) = swarm(1, body, algorithm="sgp", **place)
    ((began, found, _),) = swarm(1, body, algorithm="slowmo:h=2", resume=True, **place)
    assert began == 4
    assert torch.equal(found, left)
    said = (tmp_path / "rank-0" / "events.jsonl").read_text()
    assert "the checkpoint has a different algorithm or shard layout; the algorithm's state was reset" in said


def test_mixed_buffers_of_a_checkpoint_count_for_those_who_have_none(tmp_path: Path) -> None:
    """Rank 1 has a checkpoint, and rank 0 gets all that is mixed from it."""

    def attached(peer: Peer) -> tuple[Vectors, torch.optim.Optimizer]:
        model = Vectors(np.zeros(SIZE))
        optimizer = heavy(model.parameters())
        peer.attach(model, optimizer)
        return model, optimizer

    def save(peer: Peer) -> None:
        model, optimizer = attached(peer)
        model.one.grad, model.two.grad = torch.full_like(model.one, 5.0), torch.full_like(model.two, 5.0)
        optimizer.step()

    def resume(peer: Peer) -> tuple[float, float]:
        model, optimizer = attached(peer)
        buffer = optimizer.state[model.two]["momentum_buffer"]
        return float(buffer.min()), float(buffer.max())

    place = {"run_dir": str(tmp_path), "algorithm": "sgp:momentum=mixed"}
    swarm(1, save, checkpoint_every=1, **place)
    (tmp_path / "rank-0").rename(tmp_path / "rank-1")
    assert swarm(2, resume, resume=True, **place) == [(5.0, 5.0), (5.0, 5.0)]


@pytest.mark.parametrize(("algorithm", "topology"), NEW)
def test_the_others_go_on_when_one_dies(algorithm: str, topology: str) -> None:
    """It goes without a word in the middle of a period, and nobody finds out: the rest still train together."""
    meeting = Meeting(N, algorithm=algorithm, topology=topology)
    loopback = presets.preset("loopback")
    # Mass that comes back from the dead is old, and draws the others back to where it was sent.
    quick = replace(loopback, membership=replace(loopback.membership, interval=10 * LONGEST))
    survivors = threading.Barrier(N - 1)

    def trains(peer: Peer, steps: int, each: Callable[[], object] = lambda: None) -> np.ndarray:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        peer.attach(model, optimizer)
        for _ in range(steps):
            each()
            optimizer.zero_grad()
            loss_of(peer.rank, model.at()).backward()
            optimizer.step()
        return model.at().detach().numpy()

    def stays(peer: Peer) -> np.ndarray:
        # All at the same step, or on a busy machine one has none to train with for the last of its steps.
        values = trains(peer, 400, lambda: survivors.wait(LONGEST))
        survivors.wait(LONGEST)
        peer._attached().session.driver.close()  # no goodbyes, which the dead would not answer
        return values

    def dies() -> None:
        with meeting.peer(N - 1, quick) as peer:
            trains(peer, 10)
            peer._attached().session.driver.close()

    *results, gone = together([*(meeting.task(rank, stays, quick) for rank in range(N - 1)), dies])
    assert gone is None, gone

    def loss(z: np.ndarray) -> float:
        return float(sum(loss_of(rank, torch.from_numpy(z)) for rank in range(N - 1)))

    # The best that there is is 0.736 of the first loss; the mean of three that train alone ends at 0.959.
    assert loss(np.mean(results, axis=0)) < 0.8 * loss(np.zeros(SIZE))


def test_a_newcomer_exchanges_when_the_others_do_and_does_not_warm_up_again() -> None:
    meeting = Meeting(2, algorithm="ssd:k=4,warmup=6")
    died, over = threading.Event(), threading.Event()
    quick = presets.preset("loopback")

    def stays(peer: Peer) -> int:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        peer.attach(model, optimizer)
        assert died.wait(LONGEST)
        for _ in range(22):  # 6 turns, and 4 more
            optimizer.step()
        died.clear()
        while not over.is_set():
            optimizer.step()
        return peer.step

    def comes_back() -> tuple[int, list[bool]]:
        try:
            with meeting.peer(1, quick) as peer:
                model = Vectors(np.zeros(SIZE))
                peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.0))
                peer._attached().session.driver.close()
            died.set()
            while died.is_set():
                over.wait(0.01)
            with meeting.peer(1, quick, incarnation=1000) as peer:
                model = Vectors(np.zeros(SIZE))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
                peer.attach(model, optimizer)
                session = peer._attached().session
                began, exchanged = session.status().step, []
                for _ in range(8):
                    optimizer.step()
                    exchanged.append(bool(session.exchanged))
                return began, exchanged
        finally:
            over.set()

    steps, (began, exchanged) = together([meeting.task(0, stays, quick), comes_back])
    assert 22 <= began <= steps
    assert (began - 22) % 4 == 0, "by turns, one knows to the exchange"
    assert exchanged == [False, False, False, True] * 2


def test_mixing_without_training_does_not_change_when_to_exchange() -> None:
    """Peers mix for as many rounds as it takes, which is not the same for all."""

    def body(peer: Peer) -> list[bool]:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        peer.attach(model, optimizer)
        exchanged = []
        for step in range(8):
            optimizer.step()
            exchanged.append(bool(peer._attached().session.exchanged))
            if step == 2:
                assert peer.consensus(1e-3, LONGEST) <= 1e-3
        return exchanged

    results = Meeting(3, algorithm="slowmo:h=4").run(body, presets.preset("loopback"))
    assert results == [[False, False, False, True] * 2] * 3


def test_a_replica_alone_has_its_outer_step_too() -> None:
    """A swarm of one mixes with nobody; what is left of slowmo is momentum over its own periods."""

    def body(peer: Peer) -> list[float]:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        peer.attach(model, optimizer)
        found = []
        for _ in range(6):
            for parameter in model.parameters():
                parameter.grad = -torch.ones_like(parameter)
            optimizer.step()
            found.append(float(model.one.detach()[0]))
        return found

    assert Meeting(1, algorithm="slowmo:h=2,beta=0.5").run(body, patient()) == [[1.0, 2.0, 3.0, 5.0, 6.0, 8.5]]


TRAIN = """
import sys, peers, torch

def train(peer, algorithm):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    peer.attach(model, optimizer)
    x = torch.randn(64, 4)
    for index in peer.batches(range(64), 4, 2):
        optimizer.zero_grad()
        (model(x[index]) - x[index].roll(1, 1)).square().mean().backward()
        optimizer.step()
    print(f"{peer.rank} by {algorithm} after {peer.step}: {peer.consensus():.0e}")

with peers.join() as peer:
    rank = peer.rank
    train(peer, "noloco:h=4")
for algorithm, *ports in (one.split() for one in sys.argv[1:]):
    hosts = [f"127.0.0.1:{port}" for port in ports]
    with peers.join({}, rank=rank, hosts=hosts, algorithm=algorithm, topology="complete") as peer:
        train(peer, algorithm)
"""
#: All that the same processes do after that.
OTHERS = (
    "slowmo:h=4",
    "ssd:k=4,warmup=4",
    "local:h=4",
    "dpsgd",
    "choco",
    "easgd",
    "gossip-pull",
    "parameter-server",
)


@pytest.mark.timeout(2 * LONGEST_PROCESS)
def test_real_processes(tmp_path: Path) -> None:
    """One swarm by the launcher, and more of the same processes, since it is starting them that takes long."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    command = ["launch", "-n", "2", "--run-dir", str(tmp_path / "run"), "--algorithm", "noloco:h=4", str(script)]
    with reserved_ports(2 * len(OTHERS)) as ports:
        others = [f"{one} {ports[2 * index]} {ports[2 * index + 1]}" for index, one in enumerate(OTHERS)]
        done = subprocess.run(
            [sys.executable, "-m", "launch.cli", *command, *others],
            capture_output=True,
            text=True,
            timeout=LONGEST_PROCESS,
            env=clean_environment(),
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        for algorithm in ("noloco:h=4", *OTHERS):
            (said,) = [line for line in done.stdout.splitlines() if f"{rank} by {algorithm} after" in line]
            assert 0 <= float(said.rsplit(" ", 1)[1]) <= 1e-3, said
