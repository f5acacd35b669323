"""The training script of `benchmarks.grid_memory`: a wide network with AdamW, alone or in a crew, in bounded memory.

``--budget`` is the memory that the process may allocate from here on, in MiB: the kernel refuses more (RLIMIT_DATA).
"""

import argparse
import resource
from pathlib import Path

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--layers", type=int, required=True)
parser.add_argument("--samples", type=int, required=True)
parser.add_argument("--batch-size", type=int, required=True, help="of a replica")
parser.add_argument("--budget", type=int, default=0, help="MiB that the process may allocate; 0: any")
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()
torch.set_num_threads(1)


def allocated() -> int:
    """Return the bytes that this process has allocated."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


@torch.no_grad()
def fill(layer: nn.Linear) -> None:
    """Draw a layer as a whole, and keep the part of this row: drawn by parts, torch's rows would all have the same."""
    drawn = torch.empty(layer.weight.shape)
    nn.init.kaiming_normal_(drawn, nonlinearity="relu")  # a network this deep would not learn otherwise
    if isinstance(layer.weight, DTensor):
        drawn = distribute_tensor(drawn, layer.weight.device_mesh, layer.weight.placements)
    layer.weight.copy_(drawn)
    layer.bias.zero_()


generator = torch.Generator().manual_seed(5)
inputs = torch.randn(args.samples + 256, 32, generator=generator)
targets = torch.tanh(inputs @ torch.randn(32, 8, generator=generator) / 4)
data = torch.utils.data.TensorDataset(inputs[:-256], targets[:-256])

with peers.join() as peer:
    mesh = peer.crew.mesh
    if args.budget:
        limit = allocated() + args.budget * 2**20
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.manual_seed(3)
    with torch.device("meta"):  # a process that cannot hold the model cannot make it either
        middle = [part for _ in range(args.layers) for part in (nn.Linear(args.width, args.width), nn.ReLU())]
        model = nn.Sequential(nn.Linear(32, args.width), nn.ReLU(), *middle, nn.Linear(args.width, 8))
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    if peer.crew.rows > 1:  # in pairs: the first cut by its outputs, the second by its inputs
        inner = [name for name, layer in model.named_children() if layer in layers[1:-1]]
        ways = [ColwiseParallel(), RowwiseParallel()] * (len(inner) // 2)
        parallelize_module(model, mesh, dict(zip(inner, ways, strict=True)))
    model.to_empty(device="cpu")
    for layer in layers:
        fill(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    peer.attach(model, optimizer)
    for x, y in peer.batches(data, args.batch_size, epochs=1, split="none"):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    peer.consensus()
    with torch.no_grad():
        final = nn.functional.mse_loss(model(inputs[-256:]), targets[-256:]).item()
    if peer.rank == 0:
        parameters = sum(one.numel() for one in model.parameters())
        args.result.write_text(f"{final} {parameters} {peer.step}")
