"""The time from `attach` to the end of the first step: two peers with 1 GiB of parameters.

    python -m benchmarks.attach [--quick] [--json]

- *trained, the same*: all is trained, and both peers begin with the same values, as after loading one file.
- *trained, its own*: each peer drew its own values; those of rank 0 are sent.
- *frozen*: all but 4 MiB is frozen, and the same at both.

The peers are on one machine and share memory. The seconds are those of the slower peer, from the call of `attach` on,
which waits for the other peer. The step itself computes almost nothing: what it takes is the gossip and the optimizer.
Memory is the most that a process held, torch included. ``--quick`` is 128 MiB. No bars.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bars import command, finish, table
from benchmarks.written_down import written_down

__all__ = ["main"]

N = 2
KINDS = {"same": "trained, the same", "drawn": "trained, its own", "frozen": "frozen"}
_MIB = 1 << 20
_PATIENCE = 900.0
_SCRIPT = Path(__file__).parent / "attach_script.py"


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures."""
    mib = 128 if quick else 1024
    found = {kind: _attach(mib, kind) for kind in KINDS}
    rows = []
    for kind, name in KINDS.items():
        worst = {key: max(peer[key] for peer in found[kind]) for key in found[kind][0]}
        rows.append(
            [
                name,
                *(f"{worst[key]:.2f}" for key in ("attach", "attach_cpu", "first_step", "step")),
                *(f"{worst[key] / _MIB:.0f}" for key in ("sent", "peak")),
            ]
        )
    text = f"attach: {N} peers, {mib} MiB of parameters; the slower peer, seconds\n"
    head = ["", "attach", "CPU of attach", "to the end of the first step", "third step", "sent, MiB", "memory, MiB"]
    return finish(text + table(head, rows), {"runs": found}, [], as_json=as_json)


def _attach(mib: int, kind: str) -> list[dict[str, Any]]:
    """Return what each peer wrote down."""
    options = ("--start-timeout", "300s")
    return written_down("attach", N, _SCRIPT, str(mib), kind, options=options, patience=_PATIENCE)


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
