"""Systems other than Linux lack some of its calls: everything is there all the same, without shared memory."""

from __future__ import annotations

import subprocess
import sys

from swarms import LONGEST_PROCESS, clean_environment

#: What macOS does not have, and a peer that trains without it over real sockets.
_SCRIPT = """
import fcntl, os
for name in [name for name in vars(fcntl) if "SEAL" in name]:
    delattr(fcntl, name)
for name in ("memfd_create", "MFD_CLOEXEC", "MFD_ALLOW_SEALING"):
    delattr(os, name)
import torch, peers
from gossip.net.shared_memory.owner import SMALLEST, SharedMemory, find
memory = SharedMemory().allocate(SMALLEST)
assert find(memory.ctypes.data, SMALLEST) is None
with peers.join() as peer:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    optimizer.step()
    print("steps:", peer.step)
"""


def test_peers_is_imported_and_trains_where_files_in_memory_cannot_be_sealed() -> None:
    environment = clean_environment()
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, env=environment, timeout=LONGEST_PROCESS
    )
    assert ran.stdout == "steps: 1\n", ran.stderr
