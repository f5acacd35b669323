"""Recorded traffic, damaged in every way, against a live core: nothing of it reaches the parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hand_swarm import sealed_bytes

from gossip import events
from gossip.core.core import Core
from gossip.errors import Reason, Rejected
from gossip.settings import Settings
from gossip.simulation.scenario import Scenario
from gossip.simulation.swarm import Swarm
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Parcel

RUN = "traffic"
TARGET = 0
Frames = list[bytes]


def record(algorithm: str = "sgp", limit: int = 2000, compress: str = "none") -> tuple[list[Frames], Core, float]:
    """Run a small swarm with losses; return what was sent, one of its cores as it is then, and the time."""
    scenario = Scenario(
        peers=4,
        steps=60,
        algorithm=algorithm,
        size=9,
        shards=3,
        loss=0.1,
        delay=(0.005, 0.05),
        settings=Settings(run=RUN, resend_floor=0.01, compress=compress),
    )
    swarm = Swarm(scenario)
    traffic: list[Frames] = []
    carry = swarm.network.carry

    def tapped(now: float, sender: int, receiver: int, frames: Sequence[bytes]) -> list[tuple[float, Sequence[bytes]]]:
        traffic.append([bytes(frame) for frame in frames])
        return carry(now, sender, receiver, frames)

    swarm.network.carry = tapped  # type: ignore[method-assign, assignment]
    swarm.run()
    assert len(traffic) > 500
    return traffic[:limit], swarm.processes[TARGET].core, swarm.now


def mutations(traffic: list[Frames], count: int, seed: int) -> Iterator[Frames]:
    """Yield damaged messages: a bit flipped, bytes overwritten, cut off, doubled, or spliced with another message."""
    rng = np.random.default_rng(seed)
    block = 10_000
    for start in range(0, count, block):
        size = min(block, count - start)
        numbers = rng.integers(0, 2**31, (size, 6)).tolist()
        for which, other, kind, frame, at, what in numbers:
            frames = traffic[which % len(traffic)].copy()
            index = frame % len(frames)
            old = frames[index]
            place = at % len(old)
            match kind % 7:
                case 0:
                    new = old[:place] + bytes((old[place] ^ (1 << what % 8),)) + old[place + 1 :]
                case 1:
                    new = old[:place] + bytes((what & 255, what >> 8 & 255)) + old[place + 2 :]
                case 2:
                    new = old[:place]
                case 3:
                    new = old[:place] + old[place : place + 1 + what % 16] + old[place:]
                case 4:
                    strange = traffic[other % len(traffic)][0]
                    new = old[:place] + strange[place:]
                case 5:  # the frames of two messages
                    yield frames[: 1 + what % 2] + traffic[other % len(traffic)][: 1 + frame % 2]
                    continue
                case _:  # one byte gone, so that all that follows is shifted
                    new = old[:place] + old[place + 1 :]
            frames[index] = new
            yield frames


def bits(core: Core) -> tuple[bytes, list[float]]:
    return core.mass.values.tobytes(), core.mass.weights.copy()


def attack(core: Core, messages: Iterator[Frames], now: float) -> Counter[Reason]:
    """Feed the messages to the core; whatever is rejected must have changed nothing. Return the counts."""
    counted = Counter(core.rejections.by_reason)
    before = bits(core)
    for frames in messages:
        effects = core.handle(events.Received(frames), now)
        core.validate_state()
        rejected = [effect for effect in effects if isinstance(effect, events.RejectedFrame)]
        if not rejected:  # what a splice put together again, or an old message once more
            before = bits(core)
            continue
        assert len(rejected) == 1
        reason = rejected[0].reason
        counted[reason] += 1
        assert rejected[0].count == counted[reason]
        assert bits(core) == before
    assert core.rejections.by_reason == counted
    return counted


def check_still_works(core: Core, now: float) -> None:
    """A good parcel of a peer that is new to the core is booked, and a step goes through."""
    joiner = Address(77, 0)
    core.handle(events.PeerAlive(joiner), now)
    values = np.ones(3)
    good = WireCodec(RUN, core.mass.layout).encode(Parcel(joiner, core.me, 0, core.turns[0], 0, 0.01, values))
    assert [type(effect) for effect in core.handle(events.Received(good), now)] == [events.Booked, events.Send]
    step = core.step
    core.handle(events.StepFinished(), now)
    if core.deadline is not None:
        core.handle(events.Tick(), now + 100)
    core.validate_state()
    assert core.step == step + 1


@pytest.mark.parametrize(
    ("algorithm", "compress"), [("sgp", "none"), ("adpsgd", "none"), ("adpsgd", "topk-pair:share=40%")]
)
def test_damaged_traffic_changes_nothing(algorithm: str, compress: str) -> None:
    traffic, core, now = record(algorithm, compress=compress)
    counted = attack(core, mutations(traffic, 20_000, seed=1), now)
    assert counted.total() > 15_000
    assert {Reason.MALFORMED, Reason.CHECKSUM, Reason.TRUNCATED, Reason.VERSION} <= set(counted)
    check_still_works(core, now)


def test_replayed_traffic_changes_nothing() -> None:
    traffic, core, now = record()
    before = bits(core), len(list(core.inbox)), len(core.outbox)
    for frames in traffic * 3:
        effects = core.handle(events.Received(frames), now)
        assert not any(isinstance(effect, events.Booked | events.Released | events.TakenBack) for effect in effects)
    assert (bits(core), len(list(core.inbox)), len(core.outbox)) == before
    check_still_works(core, now)


def test_damaged_headers_with_a_correct_seal_decode_or_are_rejected() -> None:
    traffic, core, _ = record()
    codec = WireCodec(RUN, core.mass.layout)
    outcomes: Counter[str] = Counter()
    for frames in mutations(traffic, 20_000, seed=2):
        header, body = frames[0][: -8 * len(frames)], frames[1] if len(frames) > 1 else None
        try:
            outcomes[type(codec.decode(sealed_bytes(header, body))).__name__] += 1
        except Rejected as error:
            outcomes[error.reason.value] += 1
    assert outcomes["Parcel"] > 100
    assert {"malformed", "truncated", "oversized", "run", "shape", "dtype", "weight"} <= set(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_damaged_messages_change_nothing() -> None:
    traffic, core, now = record()
    counted = attack(core, mutations(traffic, 1_000_000, seed=3), now)
    assert counted.total() > 750_000
    check_still_works(core, now)
