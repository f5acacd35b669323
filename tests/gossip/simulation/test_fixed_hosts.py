"""A restart by the very same command, where peers know each other by a fixed list of hosts and nobody counts lives.

The life that a process draws when it starts tells it from the process before it, however soon it comes, and even if the
clock was set back in between.
"""

from __future__ import annotations

import pytest
from repeats import some
from watched import FAST, STEP, until_calm

from gossip.errors import InvariantError, SettingsError
from gossip.faults import parse_incident
from gossip.simulation import Scenario
from gossip.simulation.swarm import Swarm
from topologies.draws import below

#: Virtual seconds from the kill to the restart: at once, before the death is noticed, while it is suspected, after it.
GAPS = (0.001, 0.05, 0.4, 1.0, 3.0, 10.0)
ALGORITHMS = ("sgp", "osgp", "adpsgd", "gossip-push", "dpsgd")


def restarted(seed: int) -> tuple[Swarm, int, float]:
    """Return a swarm, the rank that is killed and restarted in it, and when."""
    peers = 3 + below(4, 0, seed)
    victim = below(peers, 1, seed)
    algorithm = ALGORITHMS[below(len(ALGORITHMS), 2, seed)]
    kill = 0.5 + below(100, 3, seed) / 100
    again = kill + GAPS[seed % len(GAPS)]
    loss = 0.1 * below(2, 4, seed)
    scenario = Scenario(
        peers=peers,
        steps=2000,
        seed=seed,
        algorithm=algorithm,
        topology="base" if algorithm == "dpsgd" else "one-peer-exponential",
        size=2,
        shards=1 + seed % 2,
        step_seconds=STEP,
        loss=loss,
        duplicate=loss,
        watch=FAST,
        # Half of the clocks are right; of the others some go back between two starts.
        fixed_hosts=20.0 * below(2, 5, seed),
        kills=(parse_incident(f"{victim}@{kill:.4f}s"),),
        restarts=(parse_incident(f"{victim}@{again:.4f}s"),),
    )
    print(f"seed {seed}: {scenario}")
    return Swarm(scenario), victim, again


def check(seed: int) -> None:
    swarm, victim, again = restarted(seed)
    first = swarm.processes[victim].core.me
    until_calm(swarm, again)  # the mass of the swarm is checked after every event
    core = swarm.processes[victim].core
    assert core.me.incarnation > first.incarnation, "it is a life of its own"
    assert core.step > 0, "it trains"
    assert all(weight > 0 for weight in core.mass.weights)


@pytest.mark.parametrize("block", some(range(6), 3))
def test_a_restart_by_the_same_command_is_a_new_life(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(94))
def test_a_thousand_restarts_by_the_same_command(block: int) -> None:
    for seed in range(60 + 10 * block, 70 + 10 * block):
        check(seed)


def test_without_a_drawn_number_the_books_do_not_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the drawn life is for: two processes that share one life break the first promise."""
    monkeypatch.setattr(Swarm, "drawn_life", lambda *_: 0)
    broken = 0
    for seed in range(12):
        swarm, _, again = restarted(seed)
        try:
            until_calm(swarm, again)
        except (AssertionError, InvariantError):
            broken += 1
    assert broken >= 4


def test_nobody_would_find_a_restarted_peer_without_membership() -> None:
    with pytest.raises(SettingsError, match="fixed_hosts needs watch"):
        Scenario(peers=3, steps=10, fixed_hosts=0.0)
