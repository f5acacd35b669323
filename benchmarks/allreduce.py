"""What `allreduce` costs, against gloo's: vectors averaged between processes.

    python -m benchmarks.allreduce [--quick]

Four processes on one host, 1, 25 and 100 MiB of float32. Per size, in turns: ours as it comes, which on one host hands
values over through shared memory; ours over TCP, as between hosts; `torch.distributed.all_reduce` with gloo, which has
only TCP here. Results are checked to the last bit. There is no bar: it is there to compare algorithms by, and has to be
near enough to gloo for that. ``--quick`` is for a look: 1 and 25 MiB, once.
"""

from __future__ import annotations

from benchmarks.bars import parser_of
from benchmarks.engine_measure import exchanges
from gossip.collective import choose

__all__ = ["main"]

SYSTEMS = ["allreduce", "allreduce-tcp", "gloo"]
PROCESSES = 4


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="1 and 25 MiB, once")
    args = parser.parse_args(arguments)
    print(f"allreduce: {PROCESSES} processes on one host, medians of runs in turns")
    print(f"  {'MiB':>4} {'system':14} {'ms a step':>10} {'CPU s/GB':>9} {'sent MiB':>9} {'gloo / it':>10}")
    for mib in (1, 25) if args.quick else (1, 25, 100):
        steps = max(4, min(40, 400 // mib))
        rows = {row.system: row for row in exchanges(SYSTEMS, PROCESSES, mib, 1 if args.quick else 5, steps)}
        for system, row in rows.items():
            ratio = rows["gloo"].wall_seconds / row.wall_seconds
            sent = f"{row.bytes_per_step / (1 << 20):.2f}{'' if row.bytes_by == 'measured' else ' *'}"
            print(
                f"  {mib:4} {system:14} {1e3 * row.wall_seconds:10.2f} {row.cpu_seconds_per_gb:9.2f} {sent:>9} "
                f"{ratio:10.2f}"
            )
        print(f"       plan: {choose(PROCESSES, mib << 20)}")
    print("  * by its formula; gloo does not count. gloo / it above 1: it is faster than gloo")


if __name__ == "__main__":
    main()
