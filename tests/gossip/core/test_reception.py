"""Every kind of message has a receiver, and one that a peer has no use for is counted, not swallowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from wire_cases import CASES, IN_PAIRS, LAYOUT

from gossip import events, policies
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.errors import Reason
from gossip.membership import Membership, MembershipSettings, Record
from gossip.settings import Settings
from gossip.view.view import Roster
from gossip.wire.kinds import BY_CLASS
from gossip.wire.messages import Address, Chunk, Enter, Lack, Shown
from topologies import parse

ME, OTHER = Address(0, 0), Address(1, 0)
#: One case of each kind.
KINDS = {type(case.message): case for case in reversed(CASES.values())}


def refused(kind: type, algorithm: str) -> list[str]:
    """Return why a core with this algorithm does not take a message of a kind."""
    records = {rank: Record(rank, endpoint=f"peer-{rank}:5555") for rank in (0, 1)}
    core = Core(
        ME,
        Mass(LAYOUT, [np.ones(5, np.float32), np.ones(2)]),
        Roster({0: 0, 1: 0}, lambda n: parse("complete", n)),
        policies.parse(algorithm),
        Settings(compress="topk-pair" if algorithm == "adpsgd" else "none"),
        membership=Membership(records[0], MembershipSettings(), 0, 0.0, records),
    )
    case = KINDS[kind]
    message = replace(case.message, origin=OTHER, destination=ME)
    effects = core.handle(events.Received(case.codec.encode(message)), 0.0)
    return [one.detail for one in effects if isinstance(one, events.RejectedFrame) and one.reason is Reason.STRANGER]


def test_there_is_a_message_of_every_kind_to_try() -> None:
    assert KINDS.keys() == BY_CLASS.keys()
    assert IN_PAIRS.encode(KINDS[Enter].message)


@pytest.mark.parametrize("kind", [kind for kind in BY_CLASS if kind is not Shown], ids=lambda kind: kind.__name__)
def test_every_kind_has_a_receiver(kind: type) -> None:
    algorithm = "allreduce" if kind in (Enter, Lack, Chunk) else "adpsgd"
    assert refused(kind, algorithm) == []


@pytest.mark.parametrize("kind", [Enter, Lack, Chunk])
def test_a_message_for_an_algorithm_that_does_not_run_here_is_counted(kind: type) -> None:
    (said,) = refused(kind, "osgp")
    assert "nothing at this peer takes such messages" in said


def test_a_picture_of_the_swarm_that_nobody_asked_for_is_counted() -> None:
    (said,) = refused(Shown, "osgp")
    assert "did not ask" in said
