"""How a process becomes a peer: its settings, its socket, the cards of the others."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

from gossip import presets
from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.faults import parse_faults, parse_stragglers
from gossip.keys import KeyPair
from gossip.net.zmq_transport import ZmqTransport, new_keys
from peers.crew.crew import Crew
from peers.crew.forming import CrewStore, form, torchruns_store
from peers.device import device_of
from peers.environment_settings import PLACE, settings_from, variable_of
from peers.hidden_environment import HiddenEnvironment
from peers.invitations import JOIN, WATCH, write_invitations
from peers.meeting import card_table, secret_keys, with_known_keys
from peers.own_place import rank_here
from peers.peer import Peer, PeerError
from peers.reporting.metrics import Metrics
from peers.reporting.records import Records
from peers.reporting.tensorboard import check_tensorboard
from peers.session.cards import Card, CardTable, Channel
from peers.session.injection import Boundary, disturbed
from peers.session.store_table import StoreTable, group_place
from peers.setup import Setup, check_environment, from_environment
from peers.slurm_step import restarts

__all__ = ["join", "open_peers"]

_log = logging.getLogger("gossip")
#: What only the launcher knows: who this peer is, and who the others are.
_LAUNCHERS = ("rank", "world_size", "incarnation", "run", "hosts", "contacts", "keys", "invitation")


def join(environment: Mapping[str, str] = os.environ, *, alone: bool = False, **arguments: Any) -> Peer:
    """Enter a swarm, and return the peer that this process is.

    Settings without an argument come from the program that started the process: `gossip launch`, `torchrun` or `srun`.
    What these do not say may come from the environment, as GOSSIP_TOPOLOGY and so on; `gossip launch` has read that
    itself. Without any of them the swarm has one peer. See `peers.setup.Setup` for the arguments.

    Args:
        environment: where `torchrun`, `srun` and the user have set variables.
        alone: let frameworks in this process believe that it was started alone: until the peer ends, the variables of
            `torchrun`, Slurm and MPI are not in ``os.environ``.
        arguments: settings, by their names.

    Example:
        ```python
        with peers.join() as peer:
            model = Net().to(peer.device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            peer.attach(model, optimizer)
            for x, y in peer.batches(dataset, batch_size=32, epochs=3):
                ...
            peer.consensus()
        ```
    """
    if not isinstance(environment, Mapping):
        raise SettingsError(
            f"{environment!r:.80} is given to peers.join without a name: name each setting, as in algorithm='osgp'"
        )
    _refuse_a_second_run()
    if "GOSSIP_CHANNEL" in environment and (taken := open_peers()):
        raise _second_peer(taken[0].rank)  # the launcher introduces a process once
    channel = Channel(environment["GOSSIP_CHANNEL"]) if "GOSSIP_CHANNEL" in environment else None
    setup = _setup_from(channel) if channel is not None else _found(environment)
    # The launcher has read its own environment, which is the same for all peers.
    named = {} if channel is not None else _named(environment, setup)
    told, wanted = setup.settled(), _placed(_changed(setup, named, arguments), setup, named, arguments)
    if channel is None and not ({"resume"} & named.keys() or arguments.get("resume") is not None):
        # A job that Slurm has put back into its queue goes on where it was.
        wanted = replace(wanted, resume=bool(wanted.run_dir and restarts(environment)))
    recommended, setup = wanted.recommended(), wanted.settled()
    if any(peer.rank == setup.rank for peer in open_peers()) and setup.world_size > 1:
        raise _second_peer(setup.rank)
    if channel is not None:
        _tell_overrides(channel, told, setup)
    elif not (setup.hosts or setup.contacts or {"world_size"} & {*arguments, *named} or group_place()) and (
        trains_alone := check_environment(environment)
    ):
        _log.warning("%s", trains_alone)
    if setup.tensorboard:
        check_tensorboard()
    grid = setup.shape if setup.grid else None
    stragglers = parse_stragglers(setup.stragglers, setup.world_size, grid)
    faults = parse_faults(setup.faults, setup.world_size, setup.seed, grid)
    if setup.hosts and setup.shape.rows > 1:
        torchruns_store(setup.environment, setup.shape)  # nothing else says where its rows meet
    device_of(setup)  # an error in the settings shows before anything is opened
    table, setup = card_table(setup, channel)
    pairs = _invitation_pairs(setup, table)
    transport = _transport(setup)
    metrics = None
    try:
        metrics = Metrics(setup) if setup.metrics_port >= 0 else None
        public = None if setup.keys is None else setup.keys.public
        # The lead row of a crew says in its card where the others find it.
        leads = setup.shape.rows > 1 and setup.rank % setup.shape.rows == 0 and not setup.hosts
        reached_at = transport.endpoint.host if setup.crews_across_hosts else ""
        store = CrewStore(reached_at, setup.inner_timeout) if leads else None
        card = Card(setup.rank, transport.endpoint, public, None if store is None else store.endpoint)
        cards = with_known_keys(setup, table.exchange(card))
        if isinstance(table, StoreTable):
            setup = replace(
                setup, join_key=setup.join_key or table.invited[0], watch_key=setup.watch_key or table.invited[1]
            )
        if channel is not None and setup.contacts:
            channel.send(card=card.encode())  # for the launcher, should it start this peer again
        for other in cards.values():
            if other.key is not None:
                transport.admit(other.key)
        for contact in setup.contact_keys:
            transport.admit(contact.encode())
        for key, looks_only in ((setup.join_key, False), (setup.watch_key, True)):
            if key:
                transport.admit(key.encode(), looks_only=looks_only)
        crew = _crew(setup, cards, store)
        swarm = setup.of_row()
        cards = _of_row(cards, crew)
        places = [other.endpoint for other in cards.values()] + [Endpoint.parse(contact) for contact in setup.contacts]
        preset = presets.preset(setup.preset or _suitable(places), swarm.run)
    except BaseException:
        transport.close()
        if metrics is not None:
            metrics.close()
        raise
    # Inside of the swarm of a row, a process is known by the number of its replica.
    known_as = None if crew.alone else crew.replica
    faults = faults.in_row(setup.shape, crew.row)
    disturbance, network = disturbed(transport, setup.rank, faults, known_as)
    records = Records(
        setup.run_dir,
        setup.rank,
        _log.warning,
        append=setup.resume or setup.life > 0,
        tensorboard=setup.tensorboard,
    )
    records.event(
        event="start",
        incarnation=setup.life,
        host=socket.gethostname(),
        pid=os.getpid(),
        peers=setup.world_size,
        **({} if crew.alone else {"rows": crew.rows}),
    )
    if recommended is not None:
        records.event(event="chosen", text=str(recommended))
        if setup.rank == 0:
            _log.warning("algorithm=auto: %s", recommended)
    if metrics is not None:
        records.event(event="metrics", text=f"served at http://{metrics.endpoint}/metrics")
        if not setup.metrics_port:  # otherwise the user knows the port
            _log.warning("rank %d: metrics are at http://%s/metrics", setup.rank, metrics.endpoint)

    if pairs and channel is None and not setup.contacts:
        _invite(setup, pairs, transport.endpoint, cards)

    def announce(sentence: str) -> None:
        _log.warning("rank %d: %s", setup.rank, sentence)
        records.event(event="injected", text=sentence)

    boundary = Boundary(
        setup.rank,
        setup.seed,
        stragglers,
        faults,
        network,
        announce=announce,
        elapsed=setup.elapsed,
        killed=setup.killed,
        replica=known_as,
    )
    peer = Peer(
        setup,
        preset,
        disturbance,
        cards,
        boundary=boundary,
        records=records,
        channel=channel,
        metrics=metrics,
        crew=crew,
    )
    _peers.add(peer)
    if alone:
        peer.at_end(HiddenEnvironment().restore)
    return peer


def _invitation_pairs(setup: Setup, table: CardTable) -> dict[str, KeyPair | None]:
    """Return the key pairs of the invitations that this peer writes, by the names of their files."""
    if setup.rank or not setup.run_dir:
        return {}
    if setup.keys is None:
        return {JOIN: None, WATCH: None}
    if setup.secret_file:
        pairs = {name: secret_keys(setup, name) for name in (JOIN, WATCH)}
        own = [pair.public.decode() for pair in pairs.values()]
        return dict(pairs) if own == [setup.join_key, setup.watch_key] else {}
    if not isinstance(table, StoreTable) or setup.join_key or setup.watch_key:
        return {}  # nobody could tell the others which keys to admit, or the user has the secret halves
    pairs = {JOIN: new_keys(), WATCH: new_keys()}
    table.invited = pairs[JOIN].public.decode(), pairs[WATCH].public.decode()
    return dict(pairs)


def _invite(setup: Setup, pairs: Mapping[str, KeyPair | None], endpoint: Endpoint, cards: Mapping[int, Card]) -> None:
    """Leave in the run directory what it takes to join, and to look, as gossip launch does."""
    keys = {str(card.endpoint): (card.key or b"").decode() for card in cards.values()}
    own = {str(endpoint): "" if setup.keys is None else setup.keys.public.decode()}
    write_invitations(Path(setup.run_dir), {**own, **keys}, pairs, _log.warning)


def _crew(setup: Setup, cards: Mapping[int, Card], store: CrewStore | None) -> Crew:
    """Return the crew of this process, once all its rows have come."""
    rows = setup.shape.rows
    lead = cards.get(setup.rank - setup.rank % rows)
    hosts = sorted({card.endpoint.host for rank, card in cards.items() if rank // rows == setup.rank // rows})
    if len(hosts) > 1 and not setup.crews_across_hosts:
        raise SettingsError(
            f"grid={setup.grid}: the rows of replica {setup.rank // rows} are on several hosts, {', '.join(hosts)}, "
            f"and torch does not encrypt what they send each other. Give each host a multiple of {rows} slots, or "
            "permit it by name: crews_across_hosts (--crews-across-hosts)"
        )
    return form(
        setup.shape,
        setup.rank,
        device_of(setup),
        setup.inner_timeout,
        own=store,
        meeting=None if lead is None else lead.crew,
        life=setup.incarnation,
        environment=setup.environment,
    )


def _of_row(cards: Mapping[int, Card], crew: Crew) -> dict[int, Card]:
    """Return the cards of the swarm of this row, by replica."""
    if crew.alone:
        return dict(cards)
    rows = crew.rows
    return {rank // rows: replace(card, rank=rank // rows) for rank, card in cards.items() if rank % rows == crew.row}


#: The peers of this process, and of those that it was forked from.
_peers: weakref.WeakSet[Peer] = weakref.WeakSet()


def open_peers() -> list[Peer]:
    """Return the peers of this process that have not ended."""
    return [peer for peer in _peers if peer.is_open]


def _second_peer(rank: int) -> PeerError:
    return PeerError(
        f"peers.join() was called again while rank {rank} of this process is still open, and in one swarm a rank joins "
        "once: the others would be waited for in vain. Use the peer of the first call, or end it first; processes that "
        "are forked from a peer cannot join"
    )


def _refuse_a_second_run() -> None:
    """Raise an error if a worker process is importing the script, which then runs a second time from its first line.

    `multiprocessing` does so under this name, if it starts its processes afresh (spawn, forkserver). A function of the
    script that such a process was started for may join: then the script itself has been imported before.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__":
            raise PeerError(
                f"{frame.f_code.co_filename} is run a second time, by a worker process that imports it, and would join "
                'the swarm again. Put all that the script does under: if __name__ == "__main__". Workers of a '
                "DataLoader import the script if they are started by spawn or forkserver"
            )
        frame = frame.f_back


def _found(environment: Mapping[str, str]) -> Setup:
    """Return the settings of the program that started this process; a process group knows the rank too."""
    setup, place = from_environment(environment), group_place()
    if setup.world_size == 1 and place is not None:
        return replace(setup, rank=place[0], world_size=place[1])
    return setup


def _named(environment: Mapping[str, str], setup: Setup) -> dict[str, Any]:
    """Return the settings that the user has set by environment; who a process is, torchrun and srun know better."""
    named = settings_from(environment)
    return {name: value for name, value in named.items() if name not in PLACE or setup.world_size == 1}


def _changed(setup: Setup, named: Mapping[str, Any], arguments: Mapping[str, Any]) -> Setup:
    """Return the setup with the settings of the environment, and the user's arguments over these."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return setup.changed(**{**arguments, **named, **given})
    except SettingsError as error:
        origins = [variable_of(one) for one in named if one not in given and re.search(rf"\b{one}\b", str(error))]
        if not origins:
            raise
        raise SettingsError(f"{error} (set in the environment: {', '.join(origins)})") from error


def _placed(wanted: Setup, told: Setup, named: Mapping[str, Any], arguments: Mapping[str, Any]) -> Setup:
    """Return the setup with the rank of this process, if nobody has said it but there are several."""
    if told.world_size > 1 or wanted.world_size == 1 or "rank" in named or arguments.get("rank") is not None:
        return wanted
    rank = rank_here(told.environment, wanted.hosts)
    if rank is not None:
        return replace(wanted, rank=rank)
    if not wanted.hosts:
        return wanted
    raise SettingsError(
        f"rank={arguments.get('rank')} with {len(wanted.hosts)} hosts: nothing says which of them this process is. "
        f"None of them has the name of this host, {socket.gethostname()}, or several have. Give rank=0 to the first, "
        "rank=1 to the second, and so on, or set GOSSIP_RANK"
    )


def _setup_from(channel: Channel) -> Setup:
    """Return the settings that the launcher sends."""
    settings = channel.read()["setup"]
    for name in ("keys", "invitation"):
        if settings.get(name):
            settings[name] = KeyPair(*(half.encode() for half in settings[name]))
    return Setup().changed(**settings)


def _tell_overrides(channel: Channel, told: Setup, setup: Setup) -> None:
    """Tell the launcher which of its settings the script overrides, for the records; refuse those that are its own."""
    for name in (one.name for one in fields(Setup)):
        launched, own = getattr(told, name), getattr(setup, name)
        if own == launched:
            continue
        if name in _LAUNCHERS:
            raise SettingsError(
                f"{name}={own!r} is given to peers.join, and what has started this process says "
                f"{name}={launched!r}: leave {name} out, or start the script without a launcher"
            )
        with suppress(ValueError):  # too long for a line to the launcher
            channel.send(override={name: list(own) if isinstance(own, tuple) else own})


def _transport(setup: Setup) -> ZmqTransport:
    network = presets.preset(setup.preset or "lan", setup.run)
    return ZmqTransport(
        Endpoint.parse(setup.bind),
        advertise=setup.advertise or None,
        keys=setup.keys,
        speaks_as=setup.invitation,
        insecure=setup.insecure,
        link=network.link,
    )


def _suitable(places: Iterable[Endpoint]) -> str:
    return "loopback" if all(place.is_loopback for place in places) else "lan"
