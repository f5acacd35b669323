"""The nursery, one for each worker of pytest, and swarms that are reaped whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Nursery, Swarm
from proxies import Proxies


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    one = Nursery()
    yield one
    one.close()


@pytest.fixture
def swarm(nursery: Nursery) -> Iterator[Swarm]:
    one = Swarm(nursery)
    yield one
    one.end()


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    """Closed after the swarm, whatever order a test names them in: a test that has both asks for this first."""
    one = Proxies()
    yield one
    one.close()
