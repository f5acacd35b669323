"""What membership costs as the swarm grows, and how long a death goes unnoticed.

    python -m benchmarks.membership [--most 4096] [--seconds 20]

Virtual time, the real protocol and its bytes, records with keys. Bars: no false death, detection within the bound, and
messages and bytes per second and peer that grow no faster than log n.
"""

from __future__ import annotations

import math
import time

from benchmarks.bars import parser_of
from gossip.membership import MembershipSettings, State, membership_preset
from gossip.membership.member_events import StateChanged
from gossip.simulation.memberships import Conditions, MembershipSwarm

__all__ = ["main"]

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
DELAYS = {"loopback": (0.00005, 0.001), "lan": (0.0002, 0.005), "wan": (0.02, 0.4)}
#: Peers, and how many of them are killed for the table of detection times.
DEATHS = {16: 60, 256: 20, 4096: 3}
#: The most of a swarm that is killed before another one is started.
_KILLED = 1 / 4


def main(most: int = 4096, seconds: float = 20.0) -> bool:
    """Print the tables and return whether the bars hold."""
    # At 4,096 peers one kind of weather is enough, for the patience of the reader.
    weather = [(n, loss) for n in DEATHS if n <= most for loss in ((0.0, 0.1) if n <= 1024 else (0.0,))]
    good = [detection(name, n, loss) for name in DELAYS for n, loss in weather]
    print(
        f"\nlan, per peer: {'messages/s':>12} {'bytes/s':>9} {'10% loss:':>10} {'messages/s':>11} {'bytes/s':>9}",
        end="",
    )
    print(f" {'a death:':>9} {'messages':>9} {'bytes':>7} {'virtual s':>10} {'real s':>7}")
    quiet = {n: cost(n, seconds) for n in (16, 64, 256, 1024, 4096) if n <= most}
    first = min(quiet)
    for n, (messages, size) in quiet.items():
        bar = math.log2(n) / math.log2(first)
        good.append(messages <= bar * quiet[first][0] and size <= bar * quiet[first][1])
    print(f"growth at most log n: {'ok' if all(good) else 'FAILED'}")
    return all(good)


def detection(name: str, n: int, loss: float) -> bool:
    """Print how long deaths went unnoticed, until the first peer declared them and until all knew; and false ones."""
    settings = membership_preset(name)
    first: list[float] = []
    every: list[float] = []
    false, hours = 0, 0.0
    swarm = MembershipSwarm(settings, n, Conditions(loss=loss, delay=DELAYS[name]))
    for number in range(DEATHS[n]):
        victim = number % int(_KILLED * n)
        if victim == 0:
            hours += n * swarm.now / 3600
            swarm = MembershipSwarm(settings, number + n, Conditions(loss=loss, delay=DELAYS[name]))
            swarm.start(range(n))
        swarm.run(5.0 + number / 7)
        swarm.changes.clear()
        swarm.kill(victim)
        killed = swarm.now
        swarm.run(600.0, swarm.agreed)
        dead = [change.at - killed for change in swarm.changes if _is_death(change.effect, victim)]
        false += sum(_is_death(change.effect) and not _is_death(change.effect, victim) for change in swarm.changes)
        first.append(min(dead))
        every.append(max(dead))
    hours += n * swarm.now / 3600
    bound = _bound(settings, n)
    good = max(every) <= bound and not false
    print(
        f"{name:>8}, {n:4} peers, {loss:3.0%} lost, {DEATHS[n]} deaths, {false} false in {hours:.1f} peer-hours: "
        f"declared after {_quantiles(first)} s, known to all after {_quantiles(every)} s (median, p99); "
        f"bound {bound:.0f} s: {'ok' if good else 'FAILED'}",
        flush=True,
    )
    return good


def cost(n: int, seconds: float) -> tuple[float, float]:
    """Print a row and return the messages and bytes per second and peer without faults."""
    began = time.process_time()
    figures: list[float] = []
    for loss in (0.0, 0.1):
        swarm = MembershipSwarm(membership_preset("lan"), 1, Conditions(loss=loss, delay=DELAYS["lan"]))
        swarm.start(range(n), KEY)
        swarm.run(seconds)
        figures += [_messages(swarm) / n / seconds, _bytes(swarm) / n / seconds]
        assert not any(_is_death(change.effect) for change in swarm.changes), "a false death"
        if n > 1024:
            figures += [math.nan] * 2  # one kind of weather is enough, for the patience of the reader
            break
    death = [math.nan] * 2
    if n <= 1024:
        swarm = MembershipSwarm(membership_preset("lan"), 1, Conditions(delay=DELAYS["lan"]))
        swarm.start(range(n), KEY)
        swarm.run(1.0)
        before = _messages(swarm), _bytes(swarm)
        swarm.kill(0)
        swarm.run(60.0)
        death = [
            (_messages(swarm) - before[0]) / n - 60 * figures[0],
            (_bytes(swarm) - before[1]) / n - 60 * figures[1],
        ]
    taken = time.process_time() - began
    print(f"{n:8} peers {figures[0]:13.2f} {figures[1]:9.1f} {figures[2]:22.2f} {figures[3]:9.1f}", end="")
    print(f" {death[0]:19.1f} {death[1]:7.0f} {seconds:10.0f} {taken:7.1f}", flush=True)
    return figures[0], figures[1]


def _bound(settings: MembershipSettings, n: int) -> float:
    """The time until somebody probes it, that probe, the longest suspicion, the news; see the tests."""
    return 8 * settings.interval + settings.suspicion_spread * settings.suspicion_least(n) + 3.0


def _is_death(effect: object, rank: int | None = None) -> bool:
    dead = isinstance(effect, StateChanged) and effect.record.state is State.DEAD
    return dead and (rank is None or (isinstance(effect, StateChanged) and effect.record.rank == rank))


def _messages(swarm: MembershipSwarm) -> int:
    return sum(peer.messages for peer in swarm.peers.values())


def _bytes(swarm: MembershipSwarm) -> int:
    return sum(peer.bytes for peer in swarm.peers.values())


def _quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.1f}, {ordered[int(0.99 * len(ordered))]:.1f}"


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--most", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    raise SystemExit(not main(args.most, args.seconds))
