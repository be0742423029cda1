"""The one way to a database of a test's, a module's or a room's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_postgresql.executors import NoopExecutor
from pytest_postgresql.janitor import DatabaseJanitor

from underseal.foundation.server import Server
from underseal.testing import TestDatabase, unique_name


@contextmanager
def own_database(
    server: Server, template: NoopExecutor | str | None, prefix: str = "test"
) -> Iterator[TestDatabase]:
    """A database that is gone afterwards, with its connections and roles.

    Parameters:
        server: where.
        template: what it is cloned from, the fixture or a name; None for an empty one.
        prefix: start of its name.
    """
    database = TestDatabase(server, unique_name(prefix))
    janitor = DatabaseJanitor(
        user=server.user,
        host=server.host,
        port=server.port,
        password=server.password,
        dbname=database.name,
        template_dbname=template if isinstance(template, str | None) else template.template_dbname,
    )
    try:
        with janitor:
            yield database
            database.close_connections()
    finally:
        database.drop_roles()
