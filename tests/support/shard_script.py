"""A training script over tar files, read by webdataset: python shard_script.py OUT KILL_RANK OPTIONS.

Each peer writes a line for each sample after its step, and one for each file that it has read to its end. The peer of
KILL_RANK kills itself in the middle of its second file. OPTIONS are those of `peers.join`, as JSON.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tarfile
import warnings
from pathlib import Path

import torch
from torch import nn

import peers

SAMPLES, EPOCHS = 4, 2


def write_shards(directory: Path, count: int) -> list[str]:
    """Write tar files of numbered samples, and return their names."""
    names = []
    for shard in range(count):
        names.append(str(directory / f"train-{shard:03}.tar"))
        with tarfile.open(names[-1], "w") as file:
            for sample in range(SAMPLES):
                text = str(shard * SAMPLES + sample).encode()
                info = tarfile.TarInfo(f"{shard:03}-{sample}.cls")
                info.size = len(text)
                file.addfile(info, io.BytesIO(text))
    return names


def main(out: Path, kill_rank: int, options: dict[str, object]) -> None:
    """Train."""
    import webdataset

    torch.set_num_threads(1)
    names = sorted(str(path) for path in out.glob("*.tar"))
    with peers.join(**options) as peer, (out / f"seen-{peer.rank}").open("w", buffering=1) as seen:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        peer.attach(model, optimizer)
        for number, name in enumerate(peer.shards(names, EPOCHS)):
            shard = webdataset.WebDataset(name, shardshuffle=False, nodesplitter=None).decode().to_tuple("cls")
            for (label,) in shard:
                optimizer.zero_grad()
                (model(torch.ones(1)) - label / 100).square().sum().backward()
                optimizer.step()
                print("sample", label, file=seen)
                if peer.rank == kill_rank and number == 1 and label % SAMPLES == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            print("shard", name, file=seen)
        peer.consensus()


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
