"""Processes that share the rows of images: torch is imported once, then forked, and each runs the cases it is told.

python row_script.py PROCESSES STORE CASE...: a line for each case and process that failed; exits with 0 if none did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from datetime import timedelta
from pathlib import Path

#: Nothing here takes longer than this unless it hangs.
PATIENCE = 200.0


def run_rows(processes: int, store: Path, *cases: str) -> None:
    """Run cases of row_cases.py in this number of processes; all must pass in all of them."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    command = [sys.executable, __file__, str(processes), str(store), *cases]
    script = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = script.communicate(timeout=PATIENCE + 10)
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
            script.wait()
    assert script.returncode == 0, said
    assert said.count("passed\n") == processes * len(cases), said


def started(row: int, processes: int, store: str, cases: list[str]) -> int:
    """Return a process that runs the cases and ends as Python does, with all its finalizers."""
    child = os.fork()
    if child:
        return child
    import torch
    import torch.distributed as dist
    from row_cases import CASES

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=row, world_size=processes, timeout=timedelta(seconds=PATIENCE)
    )
    failed = False
    for case in cases:
        try:
            CASES[case](row, processes)
            sys.stdout.write("passed\n")
        except BaseException:  # noqa: BLE001 - the test is to see it
            sys.stdout.write(f"row {row} of {processes}, {case}:\n{traceback.format_exc()}\n")
            failed = True
            break  # the others may be in another exchange by now
        sys.stdout.flush()
    sys.stdout.flush()
    if failed:
        os._exit(1)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(0)


def main() -> None:
    """Start the processes and wait for them."""
    import row_cases  # noqa: F401 - here, so that it is imported once

    processes, store = int(sys.argv[1]), sys.argv[2]
    children = [started(row, processes, store, sys.argv[3:]) for row in range(processes)]
    codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    sys.exit(codes != {0})


if __name__ == "__main__":
    main()
