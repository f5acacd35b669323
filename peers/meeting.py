"""Where the peers of the start meet: which table their cards are on, and at which address each listens."""

from __future__ import annotations

from dataclasses import replace

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.net.routes import route_to
from gossip.net.zmq_transport import new_keys
from peers.session.bounded_call import Overdue, call_within
from peers.session.cards import CardTable, Channel, FixedTable, RendezvousError
from peers.session.store_table import StoreTable
from peers.setup import Setup
from peers.slurm import Step
from peers.table.lives import drawn_life

__all__ = ["card_table"]

#: Seconds beyond the time limit of the start in which the launcher says who is missing.
_LAUNCHER_GRACE = 3.0


def card_table(setup: Setup, channel: Channel | None) -> tuple[CardTable, Setup]:
    """Return where the cards are exchanged, and the setup with the settings that follow from it."""
    if setup.contacts:
        return FixedTable((), ()), setup
    if channel is not None:
        # The launcher itself ends the wait in time, and knows who is missing; it may be gone or stalled, though.
        channel.start_timeout = setup.start_timeout + _LAUNCHER_GRACE
        return channel, setup
    if setup.hosts:
        if setup.public_keys and setup.keys is None:
            raise SettingsError(
                f"keys={setup.keys} with {len(setup.public_keys)} public_keys: rank {setup.rank} needs its key pair; "
                "read it with gossip.net.key_files.read_keys"
            )
        return FixedTable(setup.hosts, setup.public_keys), replace(setup, bind=_own_bind(setup), birth=drawn_life())
    if setup.world_size == 1:
        return FixedTable((), ()), setup
    master = setup.environment.get("MASTER_ADDR", "")
    if not Endpoint(master or "127.0.0.1", 0).is_loopback and Endpoint.parse(setup.bind).is_loopback:
        # The others are on other machines: listen where they reach this one. Keys for this run go through the store.
        keys = None if setup.insecure else setup.keys or new_keys()
        setup = replace(setup, bind=str(Endpoint(_reached_at(master, setup), 0)), keys=keys)
    return StoreTable(setup.rank, setup.world_size, setup.environment, setup.start_timeout), setup


def _reached_at(master: str, setup: Setup) -> str:
    """Return the address of this machine at which the peers of other machines reach it."""
    address = _route_to(master, setup.start_timeout)
    step = Step.found(setup.environment)
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
    default = setup.bind == Setup().bind
    return setup.hosts[setup.rank] if default else setup.bind
