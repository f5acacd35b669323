"""From a run directory to a page about it."""

from __future__ import annotations

import os
from pathlib import Path

from launch.report.page import page
from launch.report.run_directory import read_run
from launch.user_errors import CommandError

__all__ = ["write_report"]


def write_report(run_dir: Path, file: Path | None = None) -> Path:
    """Write the report of a run, and return where it is: ``run_dir/report.html`` unless said otherwise."""
    text = page(read_run(run_dir))
    target = file if file is not None else run_dir / "report.html"
    # Whole or not at all: a browser may reload it while the run goes on.
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.is_dir():
            raise CommandError(f"cannot write {target}: it is a directory; name a file with -o")
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CommandError(f"cannot write {target}: {error.strerror or error}") from error
    return target
