"""The stages of the simulations: one database a module, emptied before each run; and others to be changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.databases import own_database
from underseal.foundation.server import Server
from underseal.testing.simulation import Stage


@pytest.fixture(scope="module")
def stage(postgres: Server, template: NoopExecutor) -> Iterator[Stage]:
    """A database with the kernel, made a stage."""
    with _staged(postgres, template) as stage:
        yield stage


@pytest.fixture
def own_stage(postgres: Server, template: NoopExecutor) -> Iterator[Stage]:
    """One for a single test, which may change its functions."""
    with _staged(postgres, template) as stage:
        yield stage


@contextmanager
def _staged(postgres: Server, template: NoopExecutor) -> Iterator[Stage]:
    with own_database(postgres, template, "stage") as database:
        stage = Stage(database)
        yield stage
        stage.server.close()
