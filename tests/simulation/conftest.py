"""The stages of the simulations: one database a module, emptied before each run; and others to be changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pytest_postgresql.executors import NoopExecutor
from pytest_postgresql.janitor import DatabaseJanitor

from underseal.foundation.server import Server
from underseal.testing import TestDatabase, unique_name
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
    database = TestDatabase(postgres, unique_name("stage"))
    janitor = DatabaseJanitor(
        user=postgres.user,
        host=postgres.host,
        port=postgres.port,
        password=postgres.password,
        dbname=database.name,
        template_dbname=template.template_dbname,
    )
    try:
        with janitor:
            stage = Stage(database)
            yield stage
            stage.server.close()
            database.close_connections()
    finally:
        database.drop_roles()
