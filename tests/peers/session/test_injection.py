"""What is injected into a real peer: by a clock in the hand, and with processes that are really killed and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gossip.errors import SettingsError
from gossip.faults import Faults, Incident, Moment, parse_faults, parse_straggler, parse_stragglers
from gossip.faults.weather import Network, Weather
from gossip.net.disturbed_transport import DisturbedTransport
from gossip.net.memory_transport import Hub, MemoryTransport
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm
from peers.session import injection
from peers.session.injection import Boundary, disturbed

ROOT = Path(__file__).parents[3]
WORLD = 8


class Hand:
    """A clock that only this hand moves, and everything that a boundary does, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        self.done: list[tuple[str, float]] = []
        self.sleeps: list[float] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(injection.os, "kill", lambda pid, number: self._do(f"kill {pid == os.getpid()} {number}"))
        monkeypatch.setattr(injection, "_stand_still", lambda seconds: self._do(f"pause {seconds:g}"))

    def _do(self, what: str) -> None:
        assert self.told, "it is told before it happens"
        self.done.append((what, self.now - 1000.0))

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    def after(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        timer = (self.now + seconds, action)
        self.timers.append(timer)
        return lambda: self.timers.remove(timer) if timer in self.timers else None

    def until(self, seconds: float) -> None:
        """Let the time pass up to a number of seconds after the start."""
        while due := sorted((one for one in self.timers if one[0] <= 1000.0 + seconds), key=lambda one: one[0]):
            self.timers.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][1]()
        self.now = 1000.0 + seconds

    def boundary(
        self, rank: int, *faults: str, stragglers: tuple[str, ...] = (), seed: int = 1, **more: Any
    ) -> Boundary:
        network = more.pop("network", None)
        return Boundary(
            rank,
            seed,
            [parse_straggler(text) for text in stragglers],
            parse_faults(faults, WORLD),
            network,
            announce=self.told.append,
            sleep=self.sleep,
            clock=lambda: self.now,
            after=self.after,
            **more,
        )


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    return Hand(monkeypatch)


KILL = f"kill True {signal.SIGKILL}"


# Stragglers


def test_a_straggler_sleeps_for_what_it_is_slower(hand: Hand) -> None:
    boundary = hand.boundary(2, stragglers=("2=4x",))
    for step, seconds in enumerate([0.5, 0.25, 0.0], 1):
        boundary.passed(step, seconds)
    assert hand.sleeps == [1.5, 0.75, 0.0]
    assert hand.told == ["from step 1 on each step is made to take 4x as long"]


def test_a_straggler_sleeps_for_what_is_added(hand: Hand) -> None:
    hand.boundary(2, stragglers=("2=+50ms",)).passed(1, 0.5)
    assert hand.sleeps == [pytest.approx(0.05)]


def test_several_stragglers_are_multiplied_and_added_as_in_the_simulator(hand: Hand) -> None:
    texts = ("2=4x", "2=1.5x", "0-3=+50ms", "2=+0.5s")
    hand.boundary(2, stragglers=texts).passed(1, 0.1)
    scenario = Scenario(
        WORLD, 10, jitter=0, step_seconds=0.1, stragglers=parse_stragglers(texts, WORLD), algorithm="sgp"
    )
    assert hand.sleeps == [pytest.approx(Swarm(scenario).step_time(2, 0) - 0.1)]
    assert hand.sleeps == [pytest.approx(0.1 * 5 + 0.55)]


def slowed(hand: Hand, boundary: Boundary, steps: int, seconds: float = 1.0) -> list[int]:
    """Take steps that last these seconds each; return the slow ones, counted from 1."""
    slow = []
    for step in range(1, steps + 1):
        before = len(hand.sleeps)
        hand.now += seconds
        boundary.passed(step, seconds)
        slow += [step] if len(hand.sleeps) > before else []
    return slow


def test_a_window_in_steps(hand: Hand) -> None:
    boundary = hand.boundary(2, stragglers=("2=4x@3-6",))
    assert slowed(hand, boundary, 9) == [4, 5, 6], "those that begin after 3 steps and before 6"
    assert len(hand.told) == 2
    assert hand.told[1] == "from step 7 on each step is made to take no longer than by itself"


def test_a_window_in_steps_is_the_same_as_in_the_simulator(hand: Hand) -> None:
    swarm = Swarm(
        Scenario(WORLD, 20, jitter=0, step_seconds=1.0, stragglers=(parse_straggler("2=4x@3-6"),), algorithm="sgp")
    )
    simulated = [step + 1 for step in range(9) if swarm.step_time(2, step) > 1]
    assert slowed(hand, hand.boundary(2, stragglers=("2=4x@3-6",)), 9) == simulated


def test_a_window_in_seconds_since_the_start(hand: Hand) -> None:
    # Steps of 1 s; the slow ones take 4 s, so they begin at 0, 1, 2, 6 and 10 s.
    assert slowed(hand, hand.boundary(2, stragglers=("2=4x@2s-10s",)), 6) == [3, 4]


def test_a_window_from_the_first_second_has_the_first_step_in_it(hand: Hand) -> None:
    boundary = hand.boundary(2, stragglers=("2=4x@0s-1s",))
    hand.now += 0.5
    boundary.passed(1, 0.6)  # it began to compute before there was a boundary
    assert hand.sleeps == [pytest.approx(1.8)]


def test_a_window_in_seconds_goes_on_in_another_life(hand: Hand) -> None:
    assert slowed(hand, hand.boundary(2, stragglers=("2=2x@0s-10s",), elapsed=8.0), 3) == [1]


def test_random_stragglers_are_those_of_the_simulator(hand: Hand) -> None:
    text, ranks = "random=40%:2x-5x", 40
    swarm = Swarm(
        Scenario(ranks, 10, jitter=0, step_seconds=1.0, seed=7, stragglers=(parse_straggler(text),), algorithm="sgp")
    )
    expected = [swarm.step_time(rank, 0) - 1.0 for rank in range(ranks)]
    for _ in range(2):
        hand.sleeps.clear()
        boundaries = [hand.boundary(rank, stragglers=(text,), seed=7) for rank in range(ranks)]
        assert [bool(one) for one in boundaries] == [more > 0 for more in expected]
        for boundary in boundaries:
            boundary.passed(1, 1.0)
        assert hand.sleeps == [pytest.approx(more) for more in expected if more > 0]
    assert 5 < len(hand.sleeps) < 30
    assert [bool(hand.boundary(rank, stragglers=(text,), seed=8)) for rank in range(ranks)] != [
        more > 0 for more in expected
    ]


def test_nobody_is_made_faster(hand: Hand) -> None:
    with pytest.raises(SettingsError, match=r"stragglers: a real peer can be slowed down, not sped up by 0\.5x"):
        hand.boundary(3, stragglers=("2=0.5x",))
    with pytest.raises(SettingsError, match=r"'random=10%:0\.5x-2x': a real peer can be slowed down, not sped up"):
        parse_stragglers(["2=4x", "random=10%:0.5x-2x"], WORLD)


# Kills and pauses


def test_a_kill_comes_at_the_end_of_its_step_and_is_told_before(hand: Hand) -> None:
    boundary = hand.boundary(1, "kill:1@3")
    for step in (1, 2):
        boundary.passed(step, 0.1)
    assert (hand.done, hand.told) == ([], [])
    boundary.passed(3, 0.1)
    assert hand.done == [(KILL, 0.0)]
    assert hand.told == ["a kill is injected at step 3"]


def test_a_kill_at_a_time_comes_while_nobody_steps(hand: Hand) -> None:
    hand.boundary(1, "kill:1@2.5s")
    hand.until(2.4)
    assert hand.done == []
    hand.until(9)
    assert hand.done == [(KILL, 2.5)]


def test_a_kill_at_step_0_comes_at_the_first(hand: Hand) -> None:
    hand.boundary(1, "kill:1@0").passed(1, 0.1)
    assert hand.done == [(KILL, 0.0)]


def test_pauses(hand: Hand) -> None:
    boundary = hand.boundary(1, "pause:1@2+10s", "pause:1@4s+300ms")
    for step in (1, 2, 3):
        boundary.passed(step, 0.1)
    hand.until(10)
    assert hand.done == [("pause 10", 0.0), ("pause 0.3", 4.0)]
    assert hand.told == ["a pause of 10 s is injected at step 2", "a pause of 0.3 s is injected at 4 s"]


def test_who_is_slow_and_killed_is_killed_after_the_slow_step(hand: Hand) -> None:
    hand.boundary(1, "kill:1@1", stragglers=("1=3x",)).passed(1, 1.0)
    assert hand.done == [(KILL, 2.0)]


def test_a_kill_does_not_come_again_in_the_next_life(hand: Hand) -> None:
    boundary = hand.boundary(1, "kill:1@3", "restart:1@4", "kill:1@6", killed=1)
    for step in range(1, 6):
        boundary.passed(step, 0.1)
    assert hand.done == []
    assert hand.told == ["the kill at step 3 is not injected: it was before this life"]
    boundary.passed(6, 0.1)
    assert hand.done == [(KILL, 0.0)]


def test_what_was_before_the_first_step_of_a_life_is_not_made_up_for(hand: Hand) -> None:
    boundary = hand.boundary(1, "pause:1@100+1s", "pause:1@250+2s", "pause:1@251+3s")
    boundary.passed(250, 0.1)
    boundary.passed(252, 0.1)
    assert [what for what, _ in hand.done] == ["pause 2", "pause 3"]
    assert hand.told[0] == "the pause at step 100 is not injected: it was before this life"


def test_what_was_before_the_time_of_a_life_is_not_made_up_for(hand: Hand) -> None:
    hand.boundary(1, "pause:1@5s+1s", "pause:1@15s+2s", elapsed=10.0)
    hand.until(20)
    assert hand.done == [("pause 2", 5.0)]


def test_nothing_happens_after_the_close(hand: Hand) -> None:
    boundary = hand.boundary(1, "kill:1@5s", "pause:1@2+1s")
    boundary.close()
    assert hand.timers == [], "no thread is left behind"
    boundary.close()
    boundary.passed(2, 0.1)
    hand.until(10)
    assert (hand.done, hand.told) == ([], [])


def test_what_never_came_is_told_when_training_has_finished(hand: Hand) -> None:
    """Not after a failure or a stop: nobody expects it then."""
    faults = ("kill:1@300", "pause:1@2s+1s", "pause:1@90s+1s", "cut:0-3|4-7@200+30s", "kill:0@300")
    boundary = hand.boundary(1, *faults, network=Network(Weather()))
    hand.until(5)
    boundary.passed(116, 0.1)
    hand.told.clear()
    boundary.close(finished=True)
    boundary.close(finished=True)
    assert hand.told == [
        f"the {name} never came: training ended here after step 116"
        for name in ("cut at step 200", "kill at step 300", "pause at 90 s")
    ]


def test_a_straggler_that_never_came_is_told_when_training_has_finished(hand: Hand) -> None:
    slow = ("1=4x@10-20", "1=2x@300-400", "1=2x@90s-95s", "1=2x", "0=2x@300-400", "1=2x@116-400", "1=2x@5-7")
    boundary = hand.boundary(1, stragglers=slow)
    for step in (12, 116):  # a life that begins at step 12
        boundary.passed(step, 0.1)
    hand.told.clear()
    boundary.close(finished=True)
    boundary.close(finished=True)
    assert hand.told == [
        f"the straggler from {start} on never came: training ended here after step 116"
        for start in ("step 300", "90 s", "step 116")
    ]


def test_a_timer_that_cannot_be_cancelled_any_more_does_nothing_after_the_close(hand: Hand) -> None:
    late: list[Callable[[], None]] = []
    faults = parse_faults(["kill:1@5s"], WORLD)
    boundary = Boundary(
        1, 0, [], faults, None, announce=hand.told.append, after=lambda _, act: (late.append(act), lambda: None)[1]
    )
    boundary.close()
    late[0]()
    assert hand.done == []


# Cuts


def test_a_cut_in_steps_with_an_end_in_seconds_ends_while_nobody_steps(hand: Hand) -> None:
    network = Network(Weather())
    boundary = hand.boundary(1, "cut:0-3|4-7@2+30s", network=network)
    boundary.passed(1, 0.1)
    assert network.reachable(1, 5)
    hand.until(10)
    boundary.passed(2, 0.1)
    assert not network.reachable(1, 5)
    assert network.reachable(1, 2)
    hand.until(39.9)
    assert not network.reachable(1, 5)
    hand.until(40)
    assert network.reachable(1, 5)
    assert hand.told == [
        "a cut from the ranks [4, 5, 6, 7] is injected at step 2 for 30 s",
        "a cut that was injected ends",
    ]


def test_a_cut_in_steps_ends_with_a_step(hand: Hand) -> None:
    network = Network(Weather())
    boundary = hand.boundary(5, "cut:0-3|4-7@2+3", network=network)
    whole = []
    for step in range(1, 8):
        boundary.passed(step, 0.1)
        whole.append(network.reachable(5, 1))
    assert whole == [True, False, False, False, True, True, True]
    assert "[0, 1, 2, 3] is injected at step 2 for 3 steps" in hand.told[0]


def test_a_cut_in_seconds_needs_no_steps(hand: Hand) -> None:
    network = Network(Weather())
    hand.boundary(1, "cut:1|4@2s+3s", network=network)
    for now, whole in ((1.9, True), (2.0, False), (4.9, False), (5.0, True)):
        hand.until(now)
        assert network.reachable(1, 4) == whole, now


def test_a_cut_in_seconds_with_an_end_in_steps(hand: Hand) -> None:
    network = Network(Weather())
    boundary = hand.boundary(1, "cut:1|4@2s+2", network=network)
    boundary.passed(1, 0.1)
    hand.until(3)
    whole = []
    for step in (2, 3, 4):
        boundary.passed(step, 0.1)
        whole.append(network.reachable(1, 4))
    assert whole == [False, True, True]


def test_who_comes_back_during_a_cut_is_cut_off_for_the_rest_of_it(hand: Hand) -> None:
    network = Network(Weather())
    hand.boundary(1, "cut:1|4@2s+10s", network=network, elapsed=8.0)
    hand.until(0)
    assert not network.reachable(1, 4)
    hand.until(3.9)
    assert not network.reachable(1, 4)
    hand.until(4)
    assert network.reachable(1, 4)


def test_who_comes_back_after_a_cut_is_not_cut_off(hand: Hand) -> None:
    network = Network(Weather())
    hand.boundary(1, "cut:1|4@2s+3s", network=network, elapsed=8.0)
    hand.until(60)
    assert hand.told == ["the cut at 2 s is not injected: it was before this life"]


def test_cuts_overlap(hand: Hand) -> None:
    network = Network(Weather())
    hand.boundary(1, "cut:1|4@1s+4s", "cut:0-3|4@2s+1s", network=network)
    for now, whole in ((1, False), (2, False), (3, False), (4.9, False), (5, True)):
        hand.until(now)
        assert network.reachable(1, 4) == whole, now


def test_a_cut_ends_with_the_boundary(hand: Hand) -> None:
    network = Network(Weather())
    boundary = hand.boundary(1, "cut:1|4@1+3s", "cut:1|5@9s+1s", network=network)
    boundary.passed(1, 0.1)
    boundary.close()
    assert network.reachable(1, 4)
    hand.until(60)
    assert network.reachable(1, 5)
    assert hand.told[1:] == ["a cut that was injected ends"], "once"


def test_a_cut_without_a_network_is_refused(hand: Hand) -> None:
    with pytest.raises(SettingsError, match="rank 1 is to be cut off"):
        hand.boundary(1, "cut:1|4@1+3s")
    assert not hand.boundary(2, "cut:1|4@1+3s")


def test_real_timers(hand: Hand) -> None:
    network, ended = Network(Weather()), threading.Event()

    def announce(sentence: str) -> None:
        hand.told.append(sentence)
        if "ends" in sentence:
            ended.set()

    boundary = Boundary(
        1, 0, [], parse_faults(["cut:1|4@0s+1ms", "kill:1@9999999s"], WORLD), network, announce=announce
    )
    assert ended.wait(60)
    boundary.close()
    assert len(hand.told) == 2
    assert hand.done == []


# What is not injected


@pytest.mark.parametrize("rank", [0, 2, 7])
def test_what_befalls_others_is_nothing_here(hand: Hand, rank: int) -> None:
    boundary = hand.boundary(
        rank, "kill:1@1", "restart:1@9", "pause:1@1+1s", "cut:1|4@0s+1s", "drop:5%", stragglers=("1=4x", f"{rank}=1x")
    )
    assert not boundary
    for step in range(1, 4):
        boundary.passed(step, 1.0)
    hand.until(60)
    boundary.close()
    assert (hand.told, hand.done, hand.sleeps) == ([], [], [])


@pytest.mark.parametrize("fault", ["kill:1@1", "kill:1@1s", "pause:1@1+1s", "cut:1|2@1+1"])
def test_what_befalls_this_rank_is_something(hand: Hand, fault: str) -> None:
    assert hand.boundary(1, fault, network=Network(Weather()))


def test_a_plain_transport_stays_plain() -> None:
    plain = MemoryTransport(Hub())
    assert disturbed(plain, 0, Faults()) == (plain, None)
    others = parse_faults(["cut:1|4@1+1", "kill:0@1", "pause:0@1+1s", "drop:0%"], WORLD)
    assert disturbed(plain, 0, others) == (plain, None)


def test_a_transport_that_is_cut_has_clear_weather() -> None:
    plain = MemoryTransport(Hub())
    transport, network = disturbed(plain, 4, parse_faults(["cut:1|4@1+1"], WORLD))
    assert isinstance(transport, DisturbedTransport)
    assert network is transport.network
    assert transport.endpoint == plain.endpoint
    assert [len(network.carry(0.0, 4, 1, [b"x"])) for _ in range(200)] == [1] * 200


def fates(rank: int, seed: int) -> list[int]:
    faults = parse_faults(["drop:30%", "duplicate:10%"], WORLD, seed)
    _, network = disturbed(MemoryTransport(Hub()), rank, faults)
    assert network is not None
    return [len(network.carry(0.0, rank, 1, [b"x"])) for _ in range(200)]


def test_weather_is_drawn_by_the_seed_and_is_another_for_each_rank() -> None:
    assert fates(0, 7) == fates(0, 7)
    assert fates(0, 7) != fates(2, 7)
    assert fates(0, 7) != fates(0, 8)
    assert set(fates(0, 7)) == {0, 1, 2}


def test_faults_by_hand_work_too(hand: Hand) -> None:
    faults = Faults(kills=(Incident(1, Moment(2.0, in_steps=True)),))
    boundary = Boundary(1, 0, [], faults, None, announce=hand.told.append)
    boundary.passed(2, 0.1)
    assert hand.done == [(KILL, 0.0)]


# Real processes

CHILD = """
import sys, threading
from gossip.faults import parse_faults
from peers.session.injection import Boundary

def announce(sentence):
    print("told", sentence, flush=True)

threading.Thread(target=threading.Event().wait, daemon=True).start()  # stands still too
boundary = Boundary(1, 0, [], parse_faults(sys.argv[1:], 4), None, announce=announce)
for step in range(1, 6):
    boundary.passed(step, 0.0)
    print("step", step, flush=True)
print("waits", flush=True)
sys.stdin.readline()
boundary.close()
"""


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that takes five steps, and ends when it is told to."""
    command = [sys.executable, "-c", CHILD, *request.param]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("child", [["kill:1@3"]], indirect=True)
def test_a_process_is_killed_at_its_step(child: subprocess.Popen[str]) -> None:
    output, _ = child.communicate(timeout=60)
    assert output.splitlines() == ["step 1", "step 2", "told a kill is injected at step 3"]
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("child", [["kill:1@50ms"]], indirect=True)
def test_a_process_is_killed_while_it_does_not_step(child: subprocess.Popen[str]) -> None:
    assert child.wait(60) == -signal.SIGKILL
    assert child.stdout is not None
    assert "told a kill is injected at 0.05 s" in child.stdout.read().splitlines()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("child", [["pause:1@3+6s"]], indirect=True)
def test_a_process_stands_still_with_all_its_threads_and_goes_on(child: subprocess.Popen[str]) -> None:
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "it ended instead"
    tasks = list(Path(f"/proc/{child.pid}/task").iterdir())
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
    assert len(states) >= 2
    assert set(states) == {"T"}
    _, status = os.waitpid(child.pid, os.WCONTINUED)
    assert os.WIFCONTINUED(status)
    output, _ = child.communicate("\n", timeout=60)
    told = ["told a pause of 6 s is injected at step 3"]
    assert output.splitlines() == ["step 1", "step 2", *told, "step 3", "step 4", "step 5", "waits"]
    assert child.returncode == 0


SHORT = [*(f"pause:1@{step}+1ms" for step in range(1, 6)), "pause:1@0s+1ms"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("child", [SHORT], indirect=True)
def test_the_shortest_of_pauses_end_too(child: subprocess.Popen[str]) -> None:
    output, _ = child.communicate("\n", timeout=60)
    # Two threads tell, so one may begin before the other has ended its line.
    assert output.count("a pause of") == 6
    assert "waits" in output
    assert child.returncode == 0
