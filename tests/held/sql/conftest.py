"""Fixtures of the tests of the held verbs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import Kernel
from tests.held.sql.shared import rolled_back, shared_kernel
from underseal.foundation.server import Server
from underseal.testing import DictConnection, TestClock


@pytest.fixture(scope="session")
def kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    """The database that the tests of this room share."""
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def bare(kernel: Kernel) -> Iterator[Kernel]:
    """The verbs in one session, as the schema's owner, on a clock that stands still; no type is registered."""
    with rolled_back(kernel):
        yield kernel


@pytest.fixture
def k(bare: Kernel) -> Kernel:
    """The same with the type account.close, which bob and carol approve."""
    assert bare.register()["outcome"] == "registered"
    return bare


@pytest.fixture
def own(db: DictConnection, clock: TestClock) -> Kernel:
    """The same in a database of the test's own, where every call commits, for tests of several sessions."""
    kernel = Kernel(db, clock)
    assert kernel.register()["outcome"] == "registered"
    return kernel
