"""The protocol core of a peer that is about to start, and the places at which it looks for others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gossip.books.mass import Mass
from gossip.core.annex import Annex
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.membership import Membership, Record
from gossip.net.shared_memory.owner import SharedMemory
from gossip.net.shared_memory.sharing import is_near
from gossip.policies import Policy
from gossip.presets import Preset
from gossip.view.planning import planner
from gossip.view.view import Roster
from gossip.wire.messages import ANYBODY, Address
from peers.model.replica import Replica
from peers.session.cards import Card
from peers.setup import Setup

__all__ = ["contacts_of", "new_core"]


def new_core(
    setup: Setup,
    preset: Preset,
    policy: Policy,
    replica: Replica,
    endpoint: Endpoint,
    contacts: Sequence[Record],
    *,
    turns: Sequence[int] | None,
    step: int,
    warn: Callable[[str], None],
) -> Core:
    """Return the core of a peer that has exchanged nothing yet.

    Args:
        setup: who this peer is, and how it gossips.
        preset: the settings for the network.
        policy: the algorithm.
        replica: the values.
        endpoint: where this peer is reached.
        contacts: where others are.
        turns: where in the schedule each shard was at the checkpoint; None without one.
        step: the number of steps before the checkpoint.
        warn: is called with a sentence when another topology stands in for the one that was asked for.
    """
    schedules = planner(setup.topology, policy, setup.world_size, setup.seed, warn)
    schedules(setup.world_size)  # an error in the topology shows here, before anything is opened
    # Parcels are copied into memory that peers on this host, if there are any, can read.
    near = any(is_near(endpoint, Endpoint.parse(record.endpoint)) for record in contacts)
    known = {} if setup.incarnation else {record.rank: record for record in contacts}
    key = "" if setup.keys is None else setup.keys.public.decode()
    now = time.monotonic()
    me = Record(setup.rank, setup.life, endpoint=str(endpoint), key=key)
    return Core(
        Address(setup.rank, setup.life),
        Mass(replica.layout, replica.arrays, owner=SharedMemory() if near else None),
        Roster({**dict.fromkeys(known, 0), setup.rank: setup.life}, schedules),
        policy,
        replace(preset.settings, share=setup.share, compress=setup.compress),
        turns=turns if turns is not None and len(turns) == replica.layout.shards else None,
        now=now,
        membership=Membership(me, preset.membership, setup.seed, now, known),
        step=step,
        annex=Annex(replica.rest, step),
    )


def contacts_of(setup: Setup, cards: Mapping[int, Card]) -> list[Record]:
    """Return where others are: all of them if they are known beforehand, else the members to ask for admission."""
    if setup.contacts:
        keys = setup.contact_keys or ("",) * len(setup.contacts)
        return [Record(ANYBODY, endpoint=endpoint, key=key) for endpoint, key in zip(setup.contacts, keys, strict=True)]
    return [
        Record(card.rank, endpoint=str(card.endpoint), key="" if card.key is None else card.key.decode())
        for card in cards.values()
        if card.rank != setup.rank
    ]
