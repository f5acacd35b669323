"""A peer that trains until a file says stop, or for so many steps.

python life_script.py STOP_FILE [--steps K] [--quick] [--hosts a:1,b:2 --rank R --run-dir DIR]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

import peers.closing
from gossip import presets
from gossip.membership import MembershipSettings

#: More than twice as fast as the presets, for a test that has to wait for deaths. No faster: who stands still for less
#: than five intervals is never held for dead, and on a loaded machine anybody may stand for two seconds.
QUICK = MembershipSettings(
    interval=0.6, timeout_floor=0.1, timeout_ceiling=0.2, spread_interval=0.1, sync_interval=2.0, revisit_interval=1.0
)
#: Seconds that who leaves has for handing over what it holds, where those who take it may stand still for a while.
FLUSH = 20.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("stop", type=Path)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--quick", action="store_true", help="find deaths soon")
    parser.add_argument("--hosts", default="")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--run-dir", default="")
    args = parser.parse_args()
    for name, preset in presets._PRESETS.items() if args.quick else ():
        presets._PRESETS[name] = replace(preset, membership=QUICK)
    peers.closing._FLUSH = FLUSH
    own = {"hosts": args.hosts.split(","), "rank": args.rank, "run_dir": args.run_dir, "insecure": True}
    with peers.join(**own if args.hosts else {}) as peer:
        torch.manual_seed(0)
        model = torch.nn.Linear(200, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        peer.attach(model, optimizer)
        generator = torch.Generator().manual_seed(peer.rank)
        for _ in range(args.steps):
            if args.stop.exists():
                break
            loss = (model(torch.randn(8, 200, generator=generator)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            peer.log(loss=loss)
            optimizer.step()
            time.sleep(0.01)  # a step's computing


if __name__ == "__main__":
    main()
