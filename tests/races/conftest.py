"""Fixtures of the races."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.databases import own_database
from tests.held.sql.kernel import Kernel
from tests.races.arena import Arena
from tests.races.log_rivals import Ring, Rival
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestClock


@pytest.fixture(scope="session")
def ring(postgres: Server, template: NoopExecutor) -> Iterator[Arena]:
    """The database and the sessions that all races share; what they do is committed."""
    with own_database(postgres, template, "races") as database:
        clock = TestClock(database)
        # Who waits longer than this waits for ever: a test fails then and does not hang.
        a, b, c = (Kernel(database.connect(OWNER, options="-c lock_timeout=8s"), clock) for _ in range(3))
        yield Arena(a, b, c, database.connect(), clock)


@pytest.fixture
def arena(ring: Arena) -> Arena:
    """The same for one test, with a type of its own that bob and carol approve."""
    arena = Arena(ring.a, ring.b, ring.c, ring.admin, ring.clock)
    arena.register()
    return arena


@pytest.fixture(scope="session")
def log_ring(postgres: Server, template: NoopExecutor) -> Iterator[Ring]:
    """The database and the sessions that all races for executions share; what they do is committed."""
    with own_database(postgres, template, "logs") as database:
        clock = TestClock(database)
        a, b, c = (Rival(database.connect(OWNER, options="-c lock_timeout=8s"), name) for name in "abc")
        yield Ring(a, b, c, database.connect(), clock, database)
