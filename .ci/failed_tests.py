"""A pytest plugin that writes down which tests failed, so that `retry.py` can run those once more.

It writes nothing unless the environment names a file (`REPORT`). It takes that name out of the environment, so the
workers of pytest-xdist and processes that tests start do not write to the same file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

__all__ = ["REPORT", "Outcome", "pytest_configure"]

#: The environment variable that names the file to write.
REPORT = "CI_OUTCOME"


@dataclass(frozen=True)
class Outcome:
    """What one run of pytest came to."""

    #: pytest's exit status: 1 says that it ran to its end, and tests failed; -1 that it did not come to its end.
    status: int = -1
    #: Node ids of the tests that failed: in the test itself, before or after it, or by a crash of the worker.
    failed: list[str] = field(default_factory=list)
    #: Node ids of what failed and is no test, such as a file that cannot be imported.
    broken: list[str] = field(default_factory=list)
    #: Node ids of what was skipped.
    skipped: list[str] = field(default_factory=list)
    #: The seed of pytest-randomly, or None without that plugin.
    seed: int | None = None

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Return what a file holds. Without a file the run did not come to its end."""
        return cls(**json.loads(path.read_text("utf-8"))) if path.exists() else cls()


class _Writer:
    """Writes the outcome when pytest's session ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what the terminal reporter has counted: it sees the reports of all workers."""
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        reports = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
        tests = [report.nodeid for report in reports if isinstance(report, pytest.TestReport)]
        others = [report.nodeid for report in reports if not isinstance(report, pytest.TestReport)]
        skipped = [report.nodeid for report in reporter.stats.get("skipped", ())]
        seed = session.config.getoption("randomly_seed", None)
        # A test can fail twice, in itself and in what comes after it.
        Outcome(int(session.exitstatus), list(dict.fromkeys(tests)), others, skipped, seed).write(self._path)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to write, if the environment names a file."""
    if path := os.environ.pop(REPORT, ""):
        config.pluginmanager.register(_Writer(Path(path)))
