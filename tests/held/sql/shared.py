"""One database for the many tests that need no second session: each runs in a transaction that is rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pytest_postgresql.janitor import DatabaseJanitor

from tests.held.sql.kernel import Kernel
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestClock, TestDatabase, unique_name


@contextmanager
def shared_kernel(server: Server, template: str | None) -> Iterator[Kernel]:
    """A database with the kernel, a clock moved by hand, and a session that a superuser opened.

    Parameters:
        server: where.
        template: name of the database to clone.
    """
    database = TestDatabase(server, unique_name("shared"))
    janitor = DatabaseJanitor(
        user=server.user,
        host=server.host,
        port=server.port,
        password=server.password,
        dbname=database.name,
        template_dbname=template,
    )
    with janitor:
        yield Kernel(database.connect(), TestClock(database))
        database.close_connections()


@contextmanager
def rolled_back(kernel: Kernel) -> Iterator[Kernel]:
    """The schema owner's view of it, for one test; what the test does is undone.

    Parameters:
        kernel: of `shared_kernel`.
    """
    kernel.clock.set(datetime.now(UTC).replace(microsecond=0))
    with kernel.connection.transaction(force_rollback=True):
        kernel.connection.execute(f"set local session authorization {OWNER}")
        yield kernel
