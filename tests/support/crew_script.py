"""Crews as processes: torch is imported once and forked, and the processes go through many cases one after the other.

python crew_script.py DIRECTORY PORTS PROCESSES CASES: one port for each size of a grid, in the order in which they
come, as in 5000,5001; the cases are JSON, a list of the arguments of `Case`. Each process writes what it found of each
case into the directory, as CASE-RANK.pt.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import peers
from gossip import presets
from gossip.grids import Grid
from peers.rows import row_range

#: Seconds after which something hangs.
LONGEST = 100.0
WIDTH, HIDDEN, CLASSES = 5, 8, 3
#: As many samples for each row of two, three or four: FSDP takes the mean of the rows' means.
BATCH = 12


@dataclass(frozen=True)
class Case:
    """One run: how the model is spread, and how it is trained."""

    name: str
    #: whole, fsdp, tp, both or rows; "both" is FSDP x tensor parallel, and "rows" are those of images.
    kind: str
    grid: str = "2x2"
    optimizer: str = "sgd"
    steps: int = 4
    algorithm: str = "sgp"
    dtype: str = "float64"
    #: Of the gradient's norm; 0: none.
    clip: float = 0.0
    #: Freeze the first bias.
    frozen: bool = False
    #: A width, and the height of images; 7 is one that two rows do not share evenly.
    hidden: int = HIDDEN
    #: Wait for every parcel, so that the result is that of a product of matrices.
    lockstep: bool = True
    join: dict[str, Any] = field(default_factory=dict)
    #: What the processes do: train here, or a function of `crew_jobs`, with its options.
    job: str = "train"
    options: dict[str, Any] = field(default_factory=dict)


class Net(nn.Module):
    """Two layers with a norm between them, a head that is tied to the input layer, and a buffer that all mix."""

    seen: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, hidden)
        self.narrow = nn.Linear(hidden, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.again = nn.Linear(WIDTH, WIDTH)
        self.tied = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied.weight = self.again.weight
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.narrow(torch.tanh(self.wide(x))))
        return self.head(self.tied(torch.tanh(self.again(x))))


class ImageNet(nn.Module):
    """Convolutions with halos, one of them with a stride, batch norm over all rows, and a head that sees them all."""

    seen: Tensor

    def __init__(self, height: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.narrow = nn.Conv2d(3, 2, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * ((height + 1) // 2) * ((WIDTH + 1) // 2), CLASSES)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.narrow(torch.tanh(self.norm(self.wide(x))))
        return self.head(torch.tanh(x).flatten(1))


def made(case: Case, seed: int) -> Net | ImageNet:
    """Return the plain model."""
    torch.manual_seed(seed)
    model = (ImageNet if case.kind == "rows" else Net)(case.hidden).to(getattr(torch, case.dtype))
    assert model.wide.bias is not None
    model.wide.bias.requires_grad_(not case.frozen)
    return model


def batch_of(case: Case, replica: int, step: int) -> tuple[Tensor, Tensor]:
    """Return what a replica trains on in a step."""
    generator = torch.Generator().manual_seed(1000 * step + replica)
    shape = (BATCH, 1, case.hidden, WIDTH) if case.kind == "rows" else (BATCH, WIDTH)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.to(getattr(torch, case.dtype)), torch.randint(CLASSES, (BATCH,), generator=generator)


def optimizer_of(case: Case, model: nn.Module) -> torch.optim.Optimizer:
    """Return the case's optimizer."""
    parameters = [one for one in model.parameters() if one.requires_grad]
    if case.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, foreach=False)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


def spread(case: Case, model: Net | ImageNet, peer: peers.Peer) -> None:
    """Spread the model over the crew, as torch's documents say."""
    layers = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
    if case.kind == "fsdp":
        fully_shard(model.narrow, mesh=peer.crew.mesh)
        fully_shard(model, mesh=peer.crew.mesh)
    elif case.kind == "tp":
        parallelize_module(model, peer.crew.mesh, layers)
    elif case.kind == "both":
        assert peer.crew.mesh.size() == peer.crew.rows  # a crew of one has a process group from here on
        mesh = init_device_mesh("cpu", sides(peer.crew.rows), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, mesh["tensor"], layers)
        fully_shard(model, mesh=mesh["data"])
    elif case.kind == "rows":
        peers.split_rows(model, peer.crew.mesh)


def sides(rows: int) -> tuple[int, int]:
    """Return the sides of the mesh of FSDP x tensor parallel: two for the tensors, if there are two."""
    return max(1, rows // 2), min(2, rows)


def part(case: Case, peer: peers.Peer, x: Tensor) -> Tensor:
    """Return this row's part of a batch."""
    if case.kind == "rows":
        start, stop = row_range(case.hidden, peer.crew.rows, peer.row)
        return x[:, :, start:stop] if x.ndim == 4 else x
    data, tensor = sides(peer.crew.rows)
    rows, row = {"fsdp": (peer.crew.rows, peer.row), "both": (data, peer.row // tensor)}.get(case.kind, (1, 0))
    start, stop = row_range(len(x), rows, row)
    return x[start:stop]


def whole(model: nn.Module) -> dict[str, Tensor]:
    """Return all tensors of a model, in full. All rows are to call it."""
    found = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        found[name] = full.detach().clone()
    return found


def reference(case: Case) -> list[dict[str, Tensor]]:
    """Return the model after each step, as plain torch and the dense mean of one or two replicas give it."""
    replicas = [made(case, 0) for _ in range(Grid.parse(case.grid).replicas)]
    optimizers = [optimizer_of(case, one) for one in replicas]
    trace = []
    for step in range(case.steps):
        for number, (model, optimizer) in enumerate(zip(replicas, optimizers, strict=True)):
            x, y = batch_of(case, number, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if case.clip:
                nn.utils.clip_grad_norm_(model.parameters(), case.clip)
            model.seen += number + 1
            optimizer.step()
        with torch.no_grad():
            for tensors in zip(*([*one.parameters(), *one.buffers()] for one in replicas), strict=True):
                if tensors[0].is_floating_point():  # not a count of batches
                    mean = torch.stack(list(tensors)).mean(0)
                    for tensor in tensors:
                        tensor.copy_(mean)
        trace.append(whole(replicas[0]))
    return trace


def joined(case: Case, environment: dict[str, str], **more: Any) -> peers.Peer:
    """Return the peer of a process."""
    settings = {"grid": case.grid, "algorithm": case.algorithm, "start_timeout": LONGEST, **case.join, **more}
    return peers.join(environment, **settings)


def meet(directory: Path, name: str, rank: int, size: int) -> None:
    """Wait until all processes of the run are here."""
    (directory / f"{name}-{rank}").touch()
    deadline = time.monotonic() + LONGEST
    while not all((directory / f"{name}-{other}").exists() for other in range(size)):
        assert time.monotonic() < deadline, f"not all came to {name}"
        time.sleep(0.005)


def train(case: Case, environment: dict[str, str], directory: Path) -> dict[str, Any]:
    """Train, and return what this process found."""
    with joined(case, environment) as peer:
        # Rows begin as one; replicas take over the first one's values. Plain tensors are the first row's.
        model = made(case, 10 * peer.replica)
        spread(case, model, peer)
        optimizer = optimizer_of(case, model)
        peer.attach(model, optimizer)
        trace = []
        for step in range(case.steps):
            x, y = (part(case, peer, one) for one in batch_of(case, peer.replica, step))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if case.clip:
                nn.utils.clip_grad_norm_(model.parameters(), case.clip)
            model.seen += peer.replica + 1
            if case.lockstep:  # as in any step that takes longer than a round trip, all answers are there
                assert peer._attached().session.driver.flush(LONGEST)
            optimizer.step()
            trace.append(whole(model))
        found = {
            "trace": trace,
            # Peers that wait for each other without end would wait for one that has agreed and left.
            "disagreement": None if case.lockstep else peer.consensus(1e-3, LONGEST),
            "end": whole(model),
            "rank": peer.rank,
            "place": (peer.replica, peer.row),
            "view": peer.view,
        }
        session = peer._attached().session
        assert session.driver.flush(LONGEST)
        meet(directory, f"{case.name}.flushed", peer.rank, peer.world_size)  # nobody has mass in flight
        session.merge()
        status = session.status()  # a parcel of a later turn waits for it
        found["weights"] = [sum(both) for both in zip(status.weights, status.waiting_weights, strict=True)]
        meet(directory, f"{case.name}.counted", peer.rank, peer.world_size)
    assert not dist.is_initialized(), "the crew's group ends with the peer"
    return found


def patiently(name: str, run: str = "run") -> presets.Preset:
    """Return settings with which a synchronous peer waits for its neighbours, however busy the machine is."""
    found = _preset(name, run)
    waits = {"wait_ceiling": LONGEST, "wait_floor": LONGEST, "resend_first": 5.0, "resend_ceiling": 5.0}
    room = {"inbox_bytes": 1 << 24, "neighbour_bytes": 1 << 24, "weight_cap": 100.0, "weight_floor": 0.0}
    return replace(found, settings=replace(found.settings, **waits, **room), shard_bytes=128)


_preset = presets.preset


def go_through(cases: list[Case], rank: int, directory: Path, ports: list[str]) -> None:
    """Let one process do its part of all cases."""
    sizes = list(dict.fromkeys(Grid.parse(case.grid).size for case in cases))
    for case in cases:
        size = Grid.parse(case.grid).size
        port = ports[sizes.index(size)]  # a store counts how often each rank has joined
        if rank >= size:
            continue
        presets.preset = patiently if case.lockstep else _preset
        world = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        try:
            job = train if case.job == "train" else getattr(import_module("crew_jobs"), case.job)
            found = job(case, world, directory)
        except BaseException as error:
            raise RuntimeError(f"case {case.name} failed at rank {rank}") from error
        torch.save(found, directory / f"{case.name}-{rank}.pt")


def main() -> None:
    directory, ports, processes = Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
    cases = [Case(**one) for one in json.loads(sys.argv[4])]
    children = [started(rank, cases, directory, ports) for rank in range(processes)]
    while children:
        child, status = os.wait()
        children.remove(child)
        if code := os.waitstatus_to_exitcode(status):  # the others would wait for it
            for other in children:
                os.kill(other, signal.SIGKILL)
            sys.exit(f"a process ended with {code}")


def started(rank: int, cases: list[Case], directory: Path, ports: list[str]) -> int:
    """Return the process of a rank. It ends as a script does, through the end of the interpreter."""
    child = os.fork()
    if not child:
        go_through(cases, rank, directory, ports)
        sys.exit(0)
    return child


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    main()
