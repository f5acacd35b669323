"""Where the peers of the start meet: which table their cards are on, where each listens, and whose keys are right."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.keys import KeyPair
from gossip.net.routes import look_up, route_to
from gossip.net.shared_secret import keys_of, read_secret
from gossip.net.zmq_transport import new_keys
from peers.invitations import JOIN, WATCH
from peers.session.bounded_call import Overdue, call_within
from peers.session.cards import Card, CardTable, Channel, FixedTable, RendezvousError
from peers.session.store_table import StoreTable
from peers.setup import Setup
from peers.slurm_step import SlurmStep
from peers.table.lives import drawn_life

__all__ = ["card_table", "secret_keys", "with_known_keys"]

#: Seconds beyond the time limit of the start in which the launcher says who is missing.
_LAUNCHER_GRACE = 3.0
#: Seconds between two looks for the own name.
_NAME_PAUSE = 0.25


def card_table(setup: Setup, channel: Channel | None) -> tuple[CardTable, Setup]:
    """Return where the cards are exchanged, and the setup with the settings that follow from it."""
    if setup.contacts or channel is not None:
        setup = replace(setup, secret_file="")  # who lets this peer in, or starts it, has given it keys
    if setup.contacts:
        return FixedTable((), ()), setup
    if channel is not None:
        # The launcher itself ends the wait in time, and knows who is missing; it may be gone or stalled, though.
        channel.start_timeout = setup.start_timeout + _LAUNCHER_GRACE
        return channel, setup
    setup = _with_secret(setup)
    if setup.hosts:
        if setup.public_keys and setup.keys is None:
            raise SettingsError(
                f"keys={setup.keys} with {len(setup.public_keys)} public_keys: rank {setup.rank} needs its key pair; "
                "read it with gossip.net.key_files.read_keys"
            )
        bind = _own_bind(setup)
        # Whoever listens at all addresses of its machine is known to the others by its place in the list.
        everywhere = Endpoint.parse(bind).host in ("0.0.0.0", "::")  # noqa: S104
        place = Endpoint.parse(setup.hosts[setup.rank]).host if everywhere else ""
        setup = replace(setup, bind=bind, advertise=setup.advertise or place, birth=drawn_life())
        return FixedTable(setup.hosts, setup.public_keys), setup
    if setup.world_size == 1:
        return FixedTable((), ()), setup
    master = setup.environment.get("MASTER_ADDR", "")
    if not Endpoint(master or "127.0.0.1", 0).is_loopback and Endpoint.parse(setup.bind).is_loopback:
        # The others are on other machines: listen where they reach this one. Keys for this run go through the store.
        keys = None if setup.insecure else setup.keys or new_keys()
        setup = replace(setup, bind=str(Endpoint(_reached_at(master, setup), 0)), keys=keys)
    return StoreTable(setup.rank, setup.world_size, setup.environment, setup.start_timeout), setup


def _with_secret(setup: Setup) -> Setup:
    """Return the setup with the keys that follow from the secret, if there is one."""
    if not setup.secret_file:
        return setup
    if setup.keys is not None or setup.public_keys or setup.insecure:
        raise SettingsError(
            f"secret_file={setup.secret_file} gives each peer its keys: leave out keys, public_keys and insecure"
        )
    setup = replace(setup, keys=secret_keys(setup, setup.rank))
    if setup.join_key or setup.watch_key:
        return setup
    join, watch = (secret_keys(setup, who).public.decode() for who in (JOIN, WATCH))
    return replace(setup, join_key=join, watch_key=watch)


def secret_keys(setup: Setup, who: int | str) -> KeyPair:
    """Return the keys of a rank, or of an invitation, that follow from the secret."""
    return keys_of(read_secret(Path(setup.secret_file)), setup.run, who)


def with_known_keys(setup: Setup, cards: Mapping[int, Card]) -> dict[int, Card]:
    """Return the cards with the keys that follow from the secret, if there is one; refuse a card with another key."""
    if not setup.secret_file:
        return dict(cards)
    known = {rank: replace(card, key=secret_keys(setup, rank).public) for rank, card in cards.items()}
    for rank, card in cards.items():
        if card.key not in (None, known[rank].key):
            raise RendezvousError(
                f"rank {rank} at {card.endpoint} shows a key that does not follow from "
                f"secret_file={setup.secret_file}: give all ranks the same file, and the same run ({setup.run!r}). If "
                "they have these, somebody else is there"
            )
    return known


def _reached_at(master: str, setup: Setup) -> str:
    """Return the address of this machine at which the peers of other machines reach it."""
    address = _route_to(master, setup.start_timeout)
    step = SlurmStep.found(setup.environment)
    if step is not None and step.others and Endpoint(address, 0).is_loopback:
        # Many systems give their own name an address of loopback, and this is the host of rank 0.
        return _route_to(step.others[0], setup.start_timeout)
    return address


def _route_to(master: str, seconds: float) -> str:
    """Return the address of this machine from which the host MASTER_ADDR is reached."""
    try:
        return call_within(seconds, lambda: route_to(master))
    except Overdue:
        reason = f"looking it up took longer than {seconds:g} s"
    except OSError as error:
        reason = error.strerror or str(error)
    raise RendezvousError(f"MASTER_ADDR={master!r} cannot be reached: {reason}; set it to the host of rank 0")


def _own_bind(setup: Setup) -> str:
    """Return where to listen: at this rank's place in the list of hosts, unless the user asked for another one."""
    if setup.bind != Setup().bind:
        return setup.bind
    _await_name(Endpoint.parse(setup.hosts[setup.rank]).host, setup)
    return setup.hosts[setup.rank]


def _await_name(host: str, setup: Setup) -> None:
    """Wait until the own name has an address: that of a pod is known some seconds after the pod has started."""
    deadline = time.monotonic() + setup.start_timeout
    while True:
        try:
            call_within(max(deadline - time.monotonic(), _NAME_PAUSE), lambda: look_up(host))
        except (OSError, Overdue) as error:
            if time.monotonic() + _NAME_PAUSE > deadline:
                raise RendezvousError(
                    f"{host}, which is rank {setup.rank} in hosts, has no address after {setup.start_timeout:g} s: "
                    f"{getattr(error, 'strerror', None) or error}. Correct the name, or set bind to where to listen. "
                    "In Kubernetes the name is that of a headless service, with publishNotReadyAddresses"
                ) from None
            time.sleep(_NAME_PAUSE)
        else:
            return
