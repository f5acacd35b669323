"""What frozen weights cost at `attach`: three peers, 400 MiB frozen and 4 MiB trained, as with adapters (LoRA).

    python -m benchmarks.frozen [--quick] [--json]

- *the same*: all peers have the same frozen weights, as after loading one file. Bar: all bytes that all peers send
  together are at most ten times what is trained: a piece of that may be sent twice, and nothing that is frozen moves.
- *its own*: each peer has others, and all get those of rank 0. The bytes are those weights, once for each peer.
- *memory*: the most that a peer held from the model on until it was attached, over the model's own. Bar: 1.3, in both
  cases and with every algorithm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, command, finish, table
from benchmarks.written_down import written_down

__all__ = ["main"]

N = 3
MEMORY, TRAINED = 1.3, 10.0
_MIB = 1 << 20
_PATIENCE = 600.0
_SCRIPT = Path(__file__).parent / "frozen_script.py"


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    sizes = (400,) if quick else (400, 1500)
    found: list[dict[str, Any]] = [
        {"mib": mib, "seeds": seeds, "algorithm": algorithm, "peers": _attach(mib, seeds, algorithm)}
        for mib in sizes
        for algorithm in ("osgp", "allreduce")
        for seeds in ("same", "own")
    ]
    rows: list[list[str]] = []
    bars: list[Bar] = []
    for run in found:
        sent = sum(peer["sent"] for peer in run["peers"])
        memory = max(peer["peak"] / peer["own"] for peer in run["peers"])
        name = f"{run['mib']} MiB frozen, {'the same' if run['seeds'] == 'same' else 'its own'}, {run['algorithm']}"
        seconds = max(peer["seconds"] for peer in run["peers"])
        rows.append([name, f"{seconds:.1f}", f"{sent / _MIB:.1f}", f"{memory:.2f}"])
        bars.append(Bar(f"{name}: memory over the model's own", memory, "<=", MEMORY))
        if run["seeds"] == "same":
            bars.append(Bar(f"{name}: bytes sent, of the trained", sent / (4 * _MIB), "<=", TRAINED))
        if len({peer["first"] for peer in run["peers"]}) != 1:
            raise SystemExit(f"frozen: {name}: the peers have different weights after attach")
    text = f"frozen: {N} peers, 4 MiB trained; the worst peer, and the bytes of all\n"
    text += table(["", "attach, seconds", "sent, MiB", "memory"], rows)
    return finish(text, {"runs": found}, bars, as_json=as_json)


def _attach(mib: int, seeds: str, algorithm: str) -> list[dict[str, Any]]:
    """Return what each peer wrote down."""
    return written_down("frozen", N, _SCRIPT, str(mib), seeds, options=("--algorithm", algorithm), patience=_PATIENCE)


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
