"""What the engine costs: models mixed between processes, against gloo and against bare sockets.

    python -m benchmarks.engine [--json] [--quick]

2, 4 and 8 processes on one host, each with 100 MiB of float32. Per step: ours (sgp on one-peer-exponential,
synchronous), as it comes, which on one host hands values over through shared memory, and over TCP, as between hosts;
`torch.distributed.all_reduce` with gloo, and a ring of plain sockets that averages in place, as a whole or by blocks;
see `benchmarks.engine_gossip`, `engine_gloo` and `engine_sockets`. They run in turns, five times for n = 4 and three
otherwise, and results are checked to the last bit. The processes live through all turns, so that a peak of memory is
that of a whole life, and all have the allocator's settings that peers are started with.

The others have only TCP. How our engine over TCP compares with them stands beside, under names with ``tcp``: between
hosts that is what counts.

Also: how much slower a trainer gets by an engine in its process, idle or with 100 MB/s coming in; see `engine_trainer`.

Bars, all at n = 4 and for ours as it comes: no slower than gloo; at most 1.2 times the CPU time of the plain sockets;
within 1% of one model handed over per step and peer; memory of at most 5 models and the interpreter's own, others'
memory that is mapped included. Encryption, over TCP, has a row and no bar.
``--quick`` is for a look: 16 MiB, 2 and 4 processes, two turns and no bars.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.bars import parser_of
from benchmarks.engine_measure import Row, Slowdown, exchanges, slowdown

__all__ = ["main"]

SYSTEMS = ["gossip", "gossip-tcp", "gloo", "sockets", "sockets-blocks"]
#: Which ratio, whether it is to be at least or at most, and what.
BARS = [
    ("wall_gloo_over_ours_n4", ">=", 1.0),
    ("cpu_ours_over_sockets_n4", "<=", 1.2),
    ("bytes_over_model_n4", ">=", 0.99),
    ("bytes_over_model_n4", "<=", 1.01),
    ("rss_over_params_n4", "<=", 5.0),
]


def ratios(rows: Sequence[Row], trainer: Slowdown) -> dict[str, float]:
    """Return what the rows come to."""
    by = {(row.system, row.n): row for row in rows}
    out = {}
    for n in sorted({row.n for row in rows}):
        ours, tcp, gloo, sockets = (by[system, n] for system in ("gossip", "gossip-tcp", "gloo", "sockets"))
        for name, row in (("ours", ours), ("ours_tcp", tcp)):
            out[f"wall_gloo_over_{name}_n{n}"] = gloo.wall_seconds / row.wall_seconds
            out[f"wall_{name}_over_sockets_n{n}"] = row.wall_seconds / sockets.wall_seconds
            out[f"cpu_{name}_over_sockets_n{n}"] = row.cpu_seconds_per_gb / sockets.cpu_seconds_per_gb
        out[f"cpu_ours_over_sockets_blocks_n{n}"] = ours.cpu_seconds_per_gb / by["sockets-blocks", n].cpu_seconds_per_gb
        out[f"bytes_over_model_n{n}"] = ours.bytes_per_step / (ours.mib << 20)
        out[f"rss_over_params_n{n}"] = (ours.peak_rss_mib - ours.own_rss_mib) / ours.mib
        out[f"rss_less_others_over_params_n{n}"] = (
            ours.peak_rss_mib - ours.own_rss_mib - ours.others_rss_mib
        ) / ours.mib
        curve = by.get(("gossip-curve", n))
        if curve is not None:
            out[f"curve_wall_over_plain_tcp_n{n}"] = curve.wall_seconds / tcp.wall_seconds
            out[f"curve_cpu_over_plain_tcp_n{n}"] = curve.cpu_seconds_per_gb / tcp.cpu_seconds_per_gb
    out["trainer_slowdown_idle"] = trainer.idle
    out["trainer_slowdown_busy"] = trainer.busy
    out["trainer_slowdown_busy_computing"] = trainer.busy_computing
    return out


def show(rows: Sequence[Row], found: dict[str, float], trainer: Slowdown, bars: bool) -> None:
    """Print the figures, and what the bars say."""
    print(f"engine: {rows[0].mib} MiB per process and step, medians of runs in turns")
    print(
        f"  {'system':14} {'transport':9} {'n':>2} {'wall ms':>8} {'CPU s/GB':>9} {'sent MiB':>11} {'on wire':>8} "
        f"{'peak RSS MiB':>26}"
    )
    for row in rows:
        sent = f"{row.bytes_per_step / (1 << 20):.2f}{'' if row.bytes_by == 'measured' else ' *'}"
        memory = f"{row.peak_rss_mib:.0f} (own {row.own_rss_mib:.0f}, others' {row.others_rss_mib:.0f})"
        print(
            f"  {row.system:14} {row.transport:9} {row.n:2} {row.wall_seconds * 1e3:8.1f} "
            f"{row.cpu_seconds_per_gb:9.3f} {sent:>11} {row.wire_bytes_per_step / (1 << 20):8.2f} {memory:>26}"
        )
    print("  * by formula: 2 (n-1)/n models. Own: the interpreter and its imports, before there is a model.")
    print("    Others': their memory, mapped here and counted there as well.")
    print(f"  trainer, busy: {trainer.rate / 1e6:.0f} MB/s came in")
    for name, value in found.items():
        print(f"  {name:34} {value:7.3f}")
    if bars:
        for name, sense, bar in BARS:
            verdict = "ok" if _holds(found, name, sense, bar) else "FAILED"
            print(f"  {name} {found[name]:.3f} (bar: {sense} {bar}): {verdict}")


def _holds(found: dict[str, float], name: str, sense: str, bar: float) -> bool:
    return found[name] >= bar if sense == ">=" else found[name] <= bar


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    mib, runs = (16, 2) if quick else (100, 5)
    rows = []
    for n in (2, 4) if quick else (2, 4, 8):
        # The bars are at 4; the others are there to compare.
        systems, turns = ([*SYSTEMS, "gossip-curve"], runs) if n == 4 else (SYSTEMS, min(runs, 3))
        rows += exchanges(systems, n, mib, turns, steps=3)
    trainer = slowdown(mib, runs=runs, seconds=0.6 if quick else 2.0)
    found = ratios(rows, trainer)
    good = quick or all(_holds(found, *bar) for bar in BARS)
    if as_json:
        print(
            json.dumps({"rows": [asdict(row) for row in rows], "ratios": found, "bars_hold": None if quick else good})
        )
    else:
        show(rows, found, trainer, bars=not quick)
    return good


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help="small models, few turns, no bars")
    args = parser.parse_args()
    raise SystemExit(not main(quick=args.quick, as_json=args.json))
