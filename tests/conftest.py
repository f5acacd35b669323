"""What holds for every test: hypothesis is deterministic, the longest come first, and in CI a skip is a failure.

SIGINT raises KeyboardInterrupt, as in a terminal, also where pytest runs in the background of a script.
"""

from __future__ import annotations

import os
import signal

# Workers times BLAS threads would be more threads than cores. Set before anything imports numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# The same examples in every run: a test that fails once in a hundred runs is no use to anybody.
settings.register_profile("gossip", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("gossip")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited; processes that tests start would inherit it as well
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, or one worker is busy with one of them when the others have nothing left to do."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a CI run in which something was skipped: what is skipped is not promised."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped") and not exitstatus:
        reporter.write_line("CI: a skipped test is a failure; the reasons stand above.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
