"""What the peers of the matrix run: examples/digits.py, with its books written down, and a fault in it if asked for.

    trainer.py [--seed S] [--sabotage WHAT:RANK@STEP ...] [--padding MIB] [--checkpoints JSON]
               ARGUMENTS OF THE EXAMPLE

Started with CHAOS_NURSERY in its environment it asks the nursery there for a process (see `benchmarks.chaos.nursery`),
and only stands for that one: signals go to it, and it ends as that one does. Otherwise it trains itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    if "CHAOS_NURSERY" in os.environ:
        from benchmarks.chaos.standing import stand_for

        stand_for(os.environ["CHAOS_NURSERY"], sys.argv)
    else:
        from benchmarks.chaos.training import train

        train(sys.argv)
