"""Fixtures of the tests of flows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from psycopg import sql
from pytest_postgresql.executors import NoopExecutor

from tests.databases import own_database
from tests.flow.nodes import World, a_world
from underseal.foundation.server import Server
from underseal.testing import TestClock, TestDatabase

TABLES = (
    "select c.relname from pg_class c where c.relnamespace = 'underseal'::regnamespace and c.relkind = 'r'"
)
GUARDS = """
select t.tgname, c.relname from pg_trigger t join pg_class c on c.oid = t.tgrelid
where c.relnamespace = 'underseal'::regnamespace and t.tgtype & 32 <> 0
"""


def emptying(database: TestDatabase) -> sql.Composed:
    """The statement that brings a database back to what it holds now."""
    admin = database.connect()
    for guard in admin.execute(GUARDS).fetchall():
        admin.execute(
            sql.SQL("drop trigger {} on underseal.{}").format(
                sql.Identifier(guard["tgname"]), sql.Identifier(guard["relname"])
            )
        )
    names = [sql.Identifier("underseal", row["relname"]) for row in admin.execute(TABLES).fetchall()]
    empty = [
        name for name in names if not admin.execute(sql.SQL("select from {} limit 1").format(name)).fetchall()
    ]
    database.close_connections()
    return sql.SQL("truncate {} restart identity").format(sql.SQL(", ").join(empty))


@pytest.fixture(scope="session")
def flow_database(postgres: Server, template: NoopExecutor) -> Iterator[tuple[TestDatabase, sql.Composed]]:
    """The database that most tests of this room use one after the other, and the statement that empties it."""
    with own_database(postgres, template, "flow") as database:
        yield database, emptying(database)


@pytest.fixture
async def w(flow_database: tuple[TestDatabase, sql.Composed]) -> AsyncIterator[World]:
    """Nodes over a database that is empty, on the real clock."""
    database, empty = flow_database
    async with a_world(database, empty) as world:
        yield world
    database.connect().execute(empty)
    database.close_connections()


@pytest.fixture
async def timed(database: TestDatabase, clock: TestClock) -> AsyncIterator[World]:
    """Nodes over a database of this test's own, whose clock stands still until it is moved."""
    async with a_world(database) as world:
        yield world
