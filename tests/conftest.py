"""The fixtures every room's tests use.

One server for the whole run: the embedded one, or the one that UNDERSEAL_TEST_DSN (a superuser's connection string)
names. Each pytest process installs the kernel once into a template; each test gets a clone of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from pytest_postgresql import factories
from pytest_postgresql.executors import NoopExecutor

from tests.databases import own_database
from underseal.foundation.server import THROWAWAY, Server, embedded_server
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase, in_memory, install, unique_name

pytest_plugins = ["tests.plugins.clauses"]

DSN = "UNDERSEAL_TEST_DSN"
DATA = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Name one data directory for all the processes of this run; the server starts when a test first needs it."""
    given: dict[str, str] | None = getattr(config, "workerinput", None)
    if given:
        config.stash[DATA] = Path(given["underseal_data"])
    elif DSN not in os.environ:
        config.stash[DATA] = Path(tempfile.mkdtemp(prefix="underseal-test-", dir=in_memory()))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist process where the data directory is."""
    node.workerinput["underseal_data"] = str(node.config.stash.get(DATA, ""))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the data directory, from the process that made it."""
    if not hasattr(config, "workerinput") and DATA in config.stash:
        shutil.rmtree(config.stash[DATA], ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[Server]:
    """The server of this run."""
    if dsn := os.environ.get(DSN):
        given = {"host": "localhost", "port": "5432", "user": "postgres", "password": ""}
        given |= {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
        yield Server(given["host"], int(given["port"]), given["user"], given["password"])
    else:
        with embedded_server(pytestconfig.stash[DATA] / "data", THROWAWAY) as server:
            yield server


@pytest.fixture(scope="session")
def server(postgres: Server) -> SimpleNamespace:
    """The server in the shape that pytest-postgresql's factories ask for."""
    return SimpleNamespace(
        host=postgres.host,
        port=postgres.port,
        user=postgres.user,
        password=postgres.password,
        options="",
        maintenance_dbname="postgres",
        template_dbname=None,
    )


def _install(*, host: str, port: int, user: str, dbname: str, password: str, **_: object) -> None:
    install(Server(host, port, user, password), dbname)


template = factories.postgresql_noproc(depends_on="server", dbname=unique_name("underseal"), load=[_install])


@pytest.fixture
def database(postgres: Server, template: NoopExecutor) -> Iterator[TestDatabase]:
    """A database of this test's own with the kernel installed by `underseal_owner`."""
    with own_database(postgres, template) as database:
        yield database


@pytest.fixture
def empty_database(postgres: Server) -> Iterator[TestDatabase]:
    """A database of this test's own without the kernel."""
    with own_database(postgres, None) as database:
        yield database


@pytest.fixture
def db(database: TestDatabase) -> DictConnection:
    """An autocommit connection as the role that owns the schema, which is no superuser."""
    return database.connect(OWNER)


@pytest.fixture
def admin(database: TestDatabase) -> DictConnection:
    """An autocommit connection as the superuser."""
    return database.connect()


@pytest.fixture
def clock(database: TestDatabase) -> TestClock:
    """A clock moved by hand in place of `underseal.clock()`."""
    return TestClock(database)


@pytest.fixture
def connect(database: TestDatabase) -> Callable[..., DictConnection]:
    """`database.connect`, for tests that need nothing else of it."""
    return database.connect
