"""Cards are exchanged in a store: torchrun's, that of the process group, or one that rank 0 serves for all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import torch.distributed
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from gossip.errors import SettingsError
from peers.session.bounded_call import Overdue, call_within
from peers.session.cards import Card, RendezvousError

__all__ = ["StoreTable", "group_place"]

Result = TypeVar("Result")

#: The stores that this process serves, by port.
_served: dict[int, Store] = {}

#: Seconds between two looks into the store: the first, and the longest.
_FIRST_LOOK, _LAST_LOOK = 0.005, 0.5
#: Seconds for the last looks, which find out who is missing, or what is wrong with the store.
_LAST_WORDS = 2.0


def group_place() -> tuple[int, int] | None:
    """Return the rank and the size of the default process group, if the script has made one."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


class StoreTable:
    """A store in which each rank lays its card down.

    Without torchrun and without a process group, rank 0 serves the store at MASTER_ADDR:MASTER_PORT, as long as its
    process runs: others may make a process group there, or join once more, as soon as they have joined. They must not
    meet a store that is about to vanish.
    """

    def __init__(self, rank: int, world_size: int, environment: Mapping[str, str], timeout: float) -> None:
        """Prepare; nothing is opened yet.

        Args:
            rank: of this peer.
            world_size: how many peers there are.
            environment: MASTER_ADDR and MASTER_PORT, unless there is a process group.
            timeout: seconds to wait for the others.
        """
        self._rank, self._world_size, self._timeout = rank, world_size, timeout
        self._environment = environment
        #: The public keys of the invitations to join and to watch. Rank 0's count, once cards have been exchanged.
        self.invited = ("", "")
        self._joins_group = group_place() == (rank, world_size)
        self._given_up = threading.Event()
        if self._joins_group:
            self._name = "the store of the process group"
            return
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
        if missing:
            raise SettingsError(
                f"{' and '.join(missing)} must be set for {world_size} peers to find each other: to a host and a free "
                "port of it. Or list all hosts, or start the peers with torchrun or gossip launch"
            )
        self._host, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise SettingsError(f"MASTER_PORT={port!r} in the environment must be a port from 1 to 65535")
        self._port = int(port)
        self._name = f"the store at {self._host}:{port}"
        # torchrun serves the store itself.
        self._serves = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"

    def exchange(self, card: Card) -> dict[int, Card]:
        """Lay the card into the store, and wait for those of the others."""
        deadline = time.monotonic() + self._timeout
        try:
            return call_within(self._timeout + _LAST_WORDS, lambda: self._meet(card, deadline))
        except BaseException as error:
            self._given_up.set()  # Ctrl-C, say: the thread takes the card back
            if not self._joins_group and self._serves:
                _served.pop(self._port, None)
            if isinstance(error, Overdue):
                raise self._silent() from None
            raise

    def _meet(self, card: Card, deadline: float) -> dict[int, Card]:
        store = self._connected()
        try:
            return self._exchanged(store, card, deadline)
        except RuntimeError as error:
            raise RendezvousError(
                f"rank {self._rank} lost {self._name}: {str(error).splitlines()[0]} Does rank 0 still run?"
            ) from error

    def _exchanged(self, store: Store, card: Card, deadline: float) -> dict[int, Card]:
        # A script may join several times, and a store may outlive that: the n-th joins of all ranks belong together.
        joined = store.add(f"joined/{self._rank}", 0)
        table = PrefixStore(str(joined), store)
        own = json.dumps([self._world_size, card.encode(), self.invited])
        table.set(f"card/{self._rank}", own)
        try:
            texts = self._wait(lambda: self._texts(table, own), deadline)
            if not texts:
                raise self._missing(table, joined)
            cards = [self._read(rank, text) for rank, text in enumerate(texts)]
            if store.add(f"joined/{self._rank}", 1) != joined + 1:
                raise self._twice()
        except BaseException:
            # Taken back, unless another process has replaced it. Not deleted: who asks for a missing key has to wait.
            with suppress(RuntimeError):
                table.compare_set(f"card/{self._rank}", own, "")
            raise
        table.set(f"read/{self._rank}", "")
        if not self._joins_group and self._serves:
            # This process may end soon, and the store with it. A peer that is gone by then reads nothing either.
            self._wait(lambda: table.check(self._keys("read")), deadline)
        return {one.rank: one for one in cards}

    def _connected(self) -> Store:
        restart = self._environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        if self._joins_group:
            store = torch.distributed.distributed_c10d._get_default_store()
        else:
            try:
                store = TCPStore(
                    self._host,
                    self._port,
                    self._world_size,
                    is_master=self._serves,
                    timeout=timedelta(seconds=self._timeout),
                    wait_for_workers=False,
                    multi_tenant=True,  # a process group of this process, before or after, shares it
                )
            except (RuntimeError, ValueError) as error:
                raise self._unconnected(error) from error
            if self._serves:
                _served[self._port] = store
        return PrefixStore(f"gossip/{restart}", store)

    def _wait(self, look: Callable[[], Result], deadline: float) -> Result:
        """Look until there is something to be seen, and return it, or what is seen last if that takes too long.

        The store is asked again and again, for a wait of its own would hold up a process group that uses it too.
        """
        pause = _FIRST_LOOK
        while True:
            seen, left = look(), deadline - time.monotonic()
            if seen or left <= 0 or self._given_up.wait(min(pause, left)):
                return seen
            pause = min(2 * pause, _LAST_LOOK)

    def _keys(self, what: str) -> list[str]:
        return [f"{what}/{rank}" for rank in range(self._world_size)]

    def _texts(self, table: Store, own: str) -> list[str]:
        """Return all cards, or nothing while some are missing."""
        if self._text(table, self._rank) != own:
            raise self._twice()
        if not table.check(self._keys("card")):
            return []
        texts = [self._text(table, rank) for rank in range(self._world_size)]
        return texts if all(texts) else []

    def _text(self, table: Store, rank: int) -> str:
        return bytes(table.get(f"card/{rank}")).decode()

    def _read(self, rank: int, text: str) -> Card:
        size, fields, (join_key, watch_key) = json.loads(text)
        if size != self._world_size:
            raise RendezvousError(
                f"rank {rank} was started for {size} peers, and rank {self._rank} for {self._world_size}: "
                "WORLD_SIZE must be the same for all"
            )
        if rank == 0:
            self.invited = str(join_key), str(watch_key)
        return Card.decode(fields)

    # What went wrong

    def _missing(self, table: Store, joined: int) -> RendezvousError:
        there = [table.check([key]) and bool(self._text(table, rank)) for rank, key in enumerate(self._keys("card"))]
        ranks = [rank for rank, found in enumerate(there) if not found]
        which = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks)) or self._rank}"
        before = f" Rank {self._rank} has joined there before; the others may have, too." if joined else ""
        return RendezvousError(
            f"{which} of {self._world_size} peers did not come to {self._name} within {self._timeout:g} s: does every "
            f"rank run, can it reach the store, and is WORLD_SIZE={self._world_size} right?{before}"
        )

    def _twice(self) -> RendezvousError:
        return RendezvousError(
            f"another process came to {self._name} as rank {self._rank}: give each process a RANK of its own, and "
            "each run a MASTER_PORT of its own"
        )

    def _unconnected(self, error: Exception) -> RendezvousError:
        if self._serves:
            return RendezvousError(
                f"rank {self._rank} cannot serve {self._name}: {str(error).splitlines()[0]} "
                "If another program has the port, set MASTER_PORT to a free one for all ranks"
            )
        return self._silent()

    def _silent(self) -> RendezvousError:
        """Say what is at the place of the store, if it does not answer as one."""
        found = "does rank 0 still run?"
        if not self._joins_group:
            try:
                with socket.create_connection((self._host, self._port), _LAST_WORDS):
                    found = (
                        "something accepts connections there that does not answer as a store: does another program "
                        "have the port? Then set MASTER_PORT to a free one for all ranks"
                    )
            except OSError as error:
                found = f"{error.strerror or error}; does rank 0 run there, and can this machine reach it?"
        return RendezvousError(f"{self._name} did not answer rank {self._rank} within {self._timeout:g} s: {found}")
