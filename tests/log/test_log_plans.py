"""What reads logs reads by its index and no more than it answers with, however long they are (clause E11).

The functions themselves are called, and the counters of the transaction say what they read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.shared import shared_kernel
from tests.log.logs import Logs, Reader, well_ordered
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestDatabase

EXECUTIONS: Final = 12_000
EVENTS: Final = 10
TXNS: Final = (10, 610)
"""Numbers of the transactions of the past: each wrote two hundred events."""
LARGE: Final = ("execution", "event", "execution_denial")
ROWS: Final = 400


@dataclass(frozen=True)
class Past:
    """A database with a past.

    Parameters:
        database: which.
        now: a cursor that has seen all of it.
    """

    database: TestDatabase
    now: str

    def since(self, txn: int) -> str:
        """A cursor that has seen nothing from a transaction on."""
        tag = self.now.split("/")[1]
        return f"1/{tag}/{txn}:{txn}://///"


@pytest.fixture(scope="module")
def past(postgres: Server, template: NoopExecutor) -> Iterator[Past]:
    """Long logs, written by transactions long ago; the tests here roll back."""
    with shared_kernel(postgres, template.template_dbname) as kernel:
        admin = kernel.connection
        with admin.transaction():
            for table in ("execution", "event"):
                admin.execute(f"alter table underseal.{table} disable trigger user")
            admin.execute(
                """insert into underseal.execution (chain_id, member, line, flow, flow_version, owner, status, head,
                     fence, started_at, changed_at)
                   select 'x' || n, '', '', 'flow' || n %% 3, 1, 'user' || n %% 100,
                     case when n %% 500 = 0 then 'failed' else 'running' end, %s - 1, 1,
                     underseal.clock() - n * interval '1 s', underseal.clock()
                   from generate_series(1, %s) n""",
                [EVENTS, EXECUTIONS],
            )
            # in the order in which they were written, an execution's events far from each other
            admin.execute(
                """insert into underseal.event (chain_id, member, seq, txn, recorded_at, type, data)
                   select 'x' || n, '', s, (%s + (s * %s + n) / 200)::text::xid8, underseal.clock(),
                     case s when 0 then 'EXECUTION_STARTED' else 'STEP_COMPLETED' end, '{}'
                   from generate_series(0, %s) s, generate_series(1, %s) n order by s, n""",
                [TXNS[0], EXECUTIONS, EVENTS - 1, EXECUTIONS],
            )
            admin.execute(
                """insert into underseal.execution_denial (denied_at, op, execution_id, cause)
                   select underseal.clock() - interval '29 days', 'read', 'x', 'missing'
                   from generate_series(1, 20000)"""
            )
            for table in ("execution", "event"):
                admin.execute(f"alter table underseal.{table} enable trigger user")
        for table in ("execution", "event"):
            admin.execute(f"vacuum analyze underseal.{table}")
        database = TestDatabase(postgres, str(admin.info.dbname))
        now = Logs(database.connect(OWNER)).call("read_all", "now")["cursor"]
        yield Past(database, now)
        database.close_connections()


CALLS: Final = {
    "get": "select * from underseal.get_execution('x77', 'user77')",
    "get-missing": "select * from underseal.get_execution('nothing', 'user77')",
    "read": "select * from underseal.read_events('x77', 'user77')",
    "read-foreign": "select * from underseal.read_events('x77', 'user78')",
    "read-news": "select * from underseal.read_events('x77', 'user77', 9)",
    "read-many": """
      select * from underseal.read_logs((
        select json_agg(json_build_object('execution_id', 'x' || n, 'after', n % 3))
        from generate_series(70, 90) n))""",
    "head": "select * from underseal.head('x77')",
    "list": "select * from underseal.list_executions('user7')",
    "list-all": "select * from underseal.list_executions(null)",
    "list-flow": "select * from underseal.list_executions('user7', null, 'flow1', null, 20)",
    "list-of-few": "select * from underseal.list_executions('nobody')",
    "list-later": """
      select * from underseal.list_executions('user7', null, null, (
        select l.cursor from underseal.list_executions('user7', null, null, null, 20) l offset 19))""",
    "list-all-later": """
      select * from underseal.list_executions(null, null, null, (
        select l.cursor from underseal.list_executions(null, null, null, null, 20) l offset 19))""",
    "sweep": "select * from underseal.sweep_denials(100)",
    "poll": "select * from underseal.read_all('{now}')",
    "begin": "select * from underseal.read_all(null, 100)",
    "begin-later": "select * from underseal.read_all('{halfway}', 100)",
    "now": "select * from underseal.read_all('now')",
    "news": "select * from underseal.read_all('{late}', 100)",
}
WALKS: Final = {"news": 2_500}
"""The last five transactions wrote a thousand events: looked at to see how many, and to find which come first."""


def read(connection: psycopg.Connection[Any]) -> tuple[dict[str, int], dict[str, int]]:
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


@pytest.mark.clause("E11a", "E11b")
@pytest.mark.parametrize("plans", ["auto", "force_generic_plan"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_stays_within_its_index(past: Past, call: str, plans: str) -> None:
    tag = past.now.split("/")[1]
    query = CALLS[call].format(
        now=past.now, late=past.since(TXNS[1] - 5), halfway=f"1/{tag}//{TXNS[1]}:{TXNS[1]}:/key/3//x5"
    )
    with psycopg.connect(past.database.conninfo_as(OWNER)) as connection:
        connection.execute("select set_config('plan_cache_mode', %s, true)", [plans])
        # more often than a plan takes to become generic
        for _ in range(7):
            connection.execute(query)
        tables_before, indexes_before = read(connection)
        answer = connection.execute(query).fetchall()
        tables, indexes = read(connection)
        connection.rollback()

    assert tables == tables_before
    walked = {
        name: rows - indexes_before[name] for name, rows in indexes.items() if rows > indexes_before[name]
    }
    assert max(walked.values(), default=0) <= WALKS.get(call, ROWS), walked
    assert len(answer) > 0 or call in ("read-news", "list-of-few")
    if call == "poll":
        # where a plan is made anew, the planner looks at the end of an index
        assert max(walked.values(), default=0) <= 2, walked


@pytest.mark.clause("E11b")
@pytest.mark.parametrize("size", [100, 1000])
@pytest.mark.parametrize("begin", ["the beginning", "long ago"])
def test_a_long_way_is_not_walked_again_for_every_page(past: Past, begin: str, size: int) -> None:
    cursor = None if begin == "the beginning" else past.since(TXNS[0])
    with psycopg.connect(past.database.conninfo_as(OWNER), row_factory=psycopg.rows.dict_row) as connection:
        follower = Reader(Logs(connection), cursor, size)
        before = connection.execute(COUNTED).fetchall()
        follower.drain()
        after = connection.execute(COUNTED).fetchall()
        connection.rollback()
    assert len(follower.seen) == EXECUTIONS * EVENTS
    well_ordered(follower.seen)
    walked = sum(row["returned"] for row in after) - sum(row["returned"] for row in before)
    # A piece of 4096 is looked at for each of its pages, and a few times to find it. All of it for each page would
    # be 60 times the log for large pages, and 600 times for small ones.
    assert walked <= EXECUTIONS * EVENTS * (3 if cursor is None else 10 + 4096 / size)


COUNTED: Final = """
  select pg_stat_get_xact_tuples_returned(c.oid) as returned from pg_class c
  join pg_index i on i.indexrelid = c.oid where i.indrelid = 'underseal.event'::regclass
"""


@pytest.mark.clause("E11b")
def test_what_cannot_be_cut_is_walked_once_along_the_key(past: Past) -> None:
    """A host that has its number for as long as all this was written, and writes to one of the executions last."""
    with psycopg.connect(past.database.conninfo_as(OWNER), row_factory=psycopg.rows.dict_row) as connection:
        logs = Logs(connection)
        tag, low = past.now.split("/")[1], TXNS[0]
        running = f"1/{tag}/{low - 1}:{low}:{low - 1}/////"
        with psycopg.connect(past.database.conninfo, autocommit=True) as admin:
            admin.execute("alter table underseal.event disable trigger user")
            admin.execute(
                """insert into underseal.event (chain_id, member, seq, txn, recorded_at, type, data)
                   select 'x' || n, '', %s, %s::text::xid8, underseal.clock(), 'STEP_COMPLETED', '{}'
                   from generate_series(1, 12000, 100) n""",
                [EVENTS, low - 1],
            )
            try:
                follower = Reader(logs, running, 1000)
                before = connection.execute(COUNTED).fetchall()
                follower.drain()
                after = connection.execute(COUNTED).fetchall()
            finally:
                admin.execute("delete from underseal.event where seq = %s", [EVENTS])
                admin.execute("alter table underseal.event enable trigger user")
                admin.execute("vacuum underseal.event")
    assert len(follower.seen) == EXECUTIONS * EVENTS + 120
    well_ordered(follower.seen)
    walked = sum(row["returned"] for row in after) - sum(row["returned"] for row in before)
    assert walked <= EXECUTIONS * EVENTS * 4
