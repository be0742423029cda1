"""Fixtures of the tests of snapshots and stored content."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import Kernel
from tests.held.sql.shared import rolled_back, shared_kernel
from tests.inbox.box import Box, box
from underseal.foundation.server import Server


@pytest.fixture(scope="session")
def snapshot_kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    """The database that the tests of this room share."""
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(snapshot_kernel: Kernel) -> Iterator[Kernel]:
    """The verbs in one session, as the schema's owner, on a clock that stands still."""
    with rolled_back(snapshot_kernel):
        yield snapshot_kernel


@pytest.fixture
def b(k: Kernel) -> Box:
    """An execution that has begun, as its driver sees it."""
    return box(k)
