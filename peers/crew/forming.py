"""How the rows of a replica find each other: the lead row serves a store, and its card says where.

The store and the messages between rows are neither encrypted nor authenticated, as torch has them. They stay on the
loopback interface, unless the user asks for crews across hosts by name.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.grids import Grid
from peers.crew.crew import Crew, CrewError, backend_for, first_line

__all__ = ["CrewStore", "form", "torchruns_store"]

#: Where a crew meets that is on one host.
_LOOPBACK = "127.0.0.1"


#: Counts the crews of this process: torchrun's store outlives each of them, and every row joins as often.
_formed = count()


class CrewStore:
    """The store in which the rows of one crew meet; the lead row serves it."""

    def __init__(self, host: str, timeout: float) -> None:
        """Open it at a free port.

        Args:
            host: the address to listen at; empty: this machine alone can reach it.
            timeout: seconds that rows wait for each other.
        """
        host = host or _LOOPBACK
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with closing(socket.socket(family, socket.SOCK_STREAM)) as place:
            place.bind((host, 0))
            place.listen(1024)
            #: Where it is.
            self.endpoint = Endpoint(host, place.getsockname()[1])
            self.store = _store(self.endpoint, timeout, listener=place.detach())


def form(
    grid: Grid,
    rank: int,
    device: torch.device,
    timeout: float,
    *,
    own: CrewStore | None,
    meeting: Endpoint | None,
    life: int,
    environment: Mapping[str, str],
) -> Crew:
    """Return the crew of a process, once all its rows have come.

    Args:
        grid: of the run.
        rank: of the process.
        device: of its model.
        timeout: seconds after which a row that does not answer is given up.
        own: the store that this process serves, as a lead row.
        meeting: where the lead row's store is; None: at torchrun's, see `torchruns_store`.
        life: of the replica, as the launcher counts it; the rows of one life meet.
        environment: torchrun's, which counts the lives of a replica that it starts.

    Raises:
        CrewError: the rows did not come together.
    """
    crew = Crew(grid, rank, device, timeout)
    if crew.alone:
        return crew
    if dist.is_initialized():
        raise SettingsError(
            f"--grid {grid}: the script has made a process group before peers.join(), and the crew makes it itself: "
            "leave init_process_group out"
        )
    if meeting is None or meeting.is_loopback:
        crew.keep_inside()
    restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = own.store if own is not None else _store(meeting or torchruns_store(environment, grid), timeout)
        dist.init_process_group(
            backend_for(device),
            store=PrefixStore(f"crew/{crew.replica}/{life}/{restarts}/{next(_formed)}", store),
            rank=crew.row,
            world_size=crew.rows,
            timeout=timedelta(seconds=timeout),
        )
        crew.any(False)  # all are there, and can be reached
    except (RuntimeError, ValueError) as error:
        crew.close()
        raise CrewError(
            f"row {crew.row} of replica {crew.replica} did not find the other {crew.rows - 1} of its crew within "
            f"{timeout:g} s: {first_line(error)}. Does every row run? Its log says why it did not start"
        ) from error
    return crew


def _store(endpoint: Endpoint, timeout: float, listener: int | None = None) -> Store:
    return TCPStore(
        endpoint.host,
        endpoint.port,
        None,
        is_master=listener is not None,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener,
    )


def torchruns_store(environment: Mapping[str, str], grid: Grid) -> Endpoint:
    """Return where torchrun's store is, which was started for the rows of this replica alone.

    Raises:
        SettingsError: torchrun was not started so.
    """
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if not (serves and host and port.isdigit() and environment.get("WORLD_SIZE") == str(grid.rows)):
        raise SettingsError(
            f"grid={grid} with a list of hosts: nothing says where the {grid.rows} rows of a replica meet. Start each "
            f"replica with torchrun --standalone --nproc-per-node {grid.rows}, or all of the run with gossip launch"
        )
    return Endpoint(host, int(port))
