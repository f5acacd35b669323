"""Systems other than Linux lack some of its calls: everything is there all the same, without shared memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from swarms import LONGEST_PROCESS, clean_environment

#: What macOS does not have, and a swarm of two that trains without it over real sockets.
_SCRIPT = """
import fcntl, os
for name in [name for name in vars(fcntl) if "SEAL" in name]:
    delattr(fcntl, name)
for name in ("memfd_create", "MFD_CLOEXEC", "MFD_ALLOW_SEALING"):
    delattr(os, name)
import torch, peers
from gossip.net.shared_memory.owner import SMALLEST, SharedMemory, find
from swarms import reserved_ports, together
memory = SharedMemory().allocate(SMALLEST)
assert find(memory.ctypes.data, SMALLEST) is None

def train(rank, ports):
    with peers.join({}, hosts=[f"127.0.0.1:{port}" for port in ports], rank=rank, start_timeout=60) as peer:
        model = torch.nn.Linear(512, 512)  # large enough for shared memory, where there is any
        assert 4 * 512 * 512 > SMALLEST
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        for _ in range(5):
            model.weight.grad = torch.full_like(model.weight, rank)
            optimizer.step()
        return peer.consensus() < 1e-3, peer._transport.bytes_mapped

with reserved_ports(2) as ports:
    print(together([lambda rank=rank: train(rank, ports) for rank in range(2)]))
"""


def test_peers_is_imported_and_a_swarm_trains_where_files_in_memory_cannot_be_sealed() -> None:
    path = str(Path(__file__).parents[1] / "support")
    environment = clean_environment()
    environment["PYTHONPATH"] += f":{path}"
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, env=environment, timeout=LONGEST_PROCESS
    )
    assert ran.stdout == "[(True, 0), (True, 0)]\n", ran.stdout + ran.stderr
