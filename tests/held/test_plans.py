"""What looks for open operations finds them by an index, however many have ended.

The functions themselves are called, and the counters of the transaction say what they read: no table scanned, and no
index walked further than the answer needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from pytest_postgresql.executors import NoopExecutor

from bench.history import add_history
from bench.kernel_side import KernelSide
from bench.request import new_operation
from bench.setting import POLICY, SCHEMA, TYPE
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestDatabase, unique_name

ENDED: Final = 40_000
OPENED: Final = 4_000
LARGE: Final = ("held_operation", "held_vote", "held_event", "held_event_position", "audit_entry")
CLAIM: Final = f"select * from underseal.claim_runs('w', '{{{TYPE}}}', '{{1}}', '{{bench-key}}', 10)"
CALLS: Final = {
    "claim": CLAIM,
    "claim-of-nothing": "select * from underseal.claim_runs('w', '{other}', '{1}', '{bench-key}', 10)",
    "list": "select * from underseal.list_operations('bob')",
    "list-own": "select * from underseal.list_operations('user7')",
    "list-own-of-few": "select * from underseal.list_operations('nobody')",
    "list-own-ended": "select * from underseal.list_operations('user7', '{FAILED,SUCCEEDED}')",
    "list-own-ended-of-few": "select * from underseal.list_operations('nobody', '{SUCCEEDED}')",
    "list-ended": "select * from underseal.list_operations('bob', '{SUCCEEDED}')",
    "list-a-later-page": """
      select * from underseal.list_operations('bob', after_id => (
        select o.operation_id from underseal.held_operation o where o.state = 'HELD' order by o.expires_at limit 1))""",
    "sweep": "select * from underseal.sweep_operations(10)",
    "purge": "select * from underseal.purge_operations(10)",
    "poll": "select * from underseal.read_outbox('here')",
    "read": "select * from underseal.read_outbox('behind', 50)",
}
# whatever a call reads of one table by one index, it reads for its answer: at most 10 of each kind, or a page of 50
ROWS: Final = 400
WALKS: Final = {"claim-of-nothing": OPENED, "list-own": 2 * OPENED}
"""Look at no ended row either: a worker that serves no approved row has looked at all of them, and what one asked for
is sought among what is open (with what earlier tests left behind) or among all one asked for, whichever is fewer."""


@pytest.fixture(scope="module")
def past(postgres: Server, template: NoopExecutor) -> Iterator[TestDatabase]:
    """A database with a past, shared by the tests here, each of which rolls back."""
    database = TestDatabase(postgres, unique_name("past"))
    name = sql.Identifier(database.name)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        server.execute(
            sql.SQL("create database {} template {}").format(
                name, sql.Identifier(str(template.template_dbname))
            )
        )
    owner = database.connect(OWNER)
    owner.execute(
        "select underseal.register_operation_type(%s, 1, 'ON_APPROVAL', %s, %s)",
        [TYPE, Jsonb(SCHEMA), Jsonb(POLICY)],
    )
    with psycopg.connect(database.conninfo, autocommit=True) as admin:
        add_history(admin, ended=ENDED, opened=OPENED)
    owner.execute("select underseal.register_consumer('behind'), underseal.register_consumer('here', false)")
    yield database
    database.close_connections()
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        server.execute(sql.SQL("drop database {}").format(name))


def _read(connection: psycopg.Connection[Any]) -> tuple[dict[str, int], dict[str, int]]:
    """What this transaction has read so far: scans of each large table, and rows fetched by each of their indexes."""
    tables = connection.execute(
        "select c.relname, pg_stat_get_xact_numscans(c.oid) from pg_class c where c.oid = any (%s::regclass[])",
        [[f"underseal.{table}" for table in LARGE]],
    ).fetchall()
    indexes = connection.execute(
        """select c.relname, pg_stat_get_xact_tuples_returned(c.oid) from pg_class c
           join pg_index i on i.indexrelid = c.oid where i.indrelid = any (%s::regclass[])""",
        [[f"underseal.{table}" for table in LARGE]],
    ).fetchall()
    return dict(tables), dict(indexes)


@pytest.mark.parametrize("plans", ["auto", "force_generic_plan"])
@pytest.mark.parametrize("call", CALLS)
def test_a_search_stays_within_its_index(past: TestDatabase, call: str, plans: str) -> None:
    with psycopg.connect(past.conninfo_as(OWNER)) as connection:
        connection.execute("select set_config('plan_cache_mode', %s, true)", [plans])
        # more often than a plan takes to become generic
        for _ in range(7):
            connection.execute(CALLS[call])
        tables_before, indexes_before = _read(connection)
        connection.execute(CALLS[call])
        tables, indexes = _read(connection)
        connection.rollback()

    assert tables == tables_before
    walked = {
        name: rows - indexes_before[name] for name, rows in indexes.items() if rows > indexes_before[name]
    }
    assert max(walked.values(), default=0) <= WALKS.get(call, ROWS), walked


@pytest.mark.parametrize("plans", ["auto", "force_generic_plan"])
def test_a_whole_cycle_scans_no_table(past: TestDatabase, plans: str) -> None:
    with psycopg.connect(past.conninfo_as(OWNER)) as connection:
        connection.execute("select set_config('plan_cache_mode', %s, true)", [plans])
        cycle = KernelSide(connection, by_id=True)
        for _ in range(7):
            cycle.cycle(new_operation())
        tables_before, indexes_before = _read(connection)
        cycle.cycle(new_operation())
        connection.execute("set constraints all immediate")
        tables, indexes = _read(connection)
        connection.rollback()

    assert tables == tables_before
    assert max(rows - indexes_before[name] for name, rows in indexes.items()) <= ROWS
