"""What polls finds what is due by an index, whatever else there is; also while somebody holds an old snapshot.

The functions themselves are called, and the counters of the transaction say what they read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from pytest_postgresql.executors import NoopExecutor

from tests.wake.wakes import Wakes, claimed
from underseal.foundation.server import Server
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase, unique_name, wait_until

PARKED: Final = 100_000
TIMERS: Final = 50_000
LARGE: Final = ("wake", "execution", "event")
SOME: Final = "array(select 'd' || n from generate_series(1, 100) n)"
CALLS: Final = {
    "claim": "select * from underseal.claim_due('w', '{due}', '1 minute', 50)",
    "claim-of-many-flows": "select * from underseal.claim_due('w', '{due,onboard,other}', '1 minute', 50)",
    "claim-of-nothing": "select * from underseal.claim_due('w', '{onboard}', '1 minute', 100)",
    "claim-of-another-flow": "select * from underseal.claim_due('w', '{other}', '1 minute', 100)",
    "next": "select * from underseal.next_due('{onboard,other}', true)",
    "renew": f"select * from underseal.renew_claims('w', {SOME}, '1 minute')",
    "release": f"select * from underseal.release_claims('w', {SOME})",
    "release-one": "select * from underseal.release_claim('d1', 'w', '1 minute')",
    "schedules": "select * from underseal.claim_schedules('w', '1 minute', 5)",
    "fire": """
      select f.* from underseal.claim_schedules('w', '1 minute', 1) c
      cross join lateral underseal.fire_schedule(c.name, 'w', c.due_at, c.revision, '{0}', '30 days') f""",
}
# a call reads of one table by one index what it answers with, at most 100 rows, a few times over
ROWS: Final = 600

HISTORY: Final = f"""
insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
select 'p' || n, '', 0, underseal.clock(), 'EXECUTION_STARTED',
  '{{"flow": "onboard", "flow_version": 1, "owner": "ann", "input": null}}'
from generate_series(1, {PARKED}) n;
insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
select 'p' || n, '', 1, underseal.clock(), 'EXECUTION_SUSPENDED',
  json_build_object('waits', json_build_array(json_build_object('wait', 'w', 'arms', json_build_array(case
    when n <= {TIMERS} then json_build_object('due', '2099-01-01T00:00:00Z'::timestamptz + n * interval '1 s')
    else json_build_object('topic', 'news') end))))
from generate_series(1, {PARKED}) n;
insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
select 'd' || n, '', 0, underseal.clock(), 'EXECUTION_STARTED',
  '{{"flow": "due", "flow_version": 1, "owner": "ann", "input": null}}'
from generate_series(1, 5000) n;
update underseal.wake set claimed_by = 'w', claimed_until = underseal.clock() + interval '1 hour'
where chain_id in (select 'd' || n from generate_series(1, 100) n);
insert into underseal.schedule (name, flow, flow_version, input, owner, cron, time_zone, missed, created_at, changed_at)
select 's' || n, 'backup', 1, 'null', 'ann', '0 3 * * *', 'UTC', 'all', underseal.clock(), underseal.clock()
from generate_series(1, 1000) n;
insert into underseal.wake (chain_id, member, kind, flow, wake_at)
select 's' || n, '', 'schedule', '',
  date_trunc('second', underseal.clock()) - interval '1 hour' + n * interval '60 seconds'
from generate_series(1, 1000) n;
"""


@pytest.fixture(scope="module")
def past(postgres: Server, template: NoopExecutor) -> Iterator[TestDatabase]:
    """A database with many executions that wait, shared by the tests here, each of which rolls back."""
    database = TestDatabase(postgres, unique_name("waiting"))
    name = sql.Identifier(database.name)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        server.execute(
            sql.SQL("create database {} template {}").format(
                name, sql.Identifier(str(template.template_dbname))
            )
        )
    with psycopg.connect(database.conninfo, autocommit=True) as admin:
        for statement in HISTORY.split(";\n"):
            admin.execute(statement)
        admin.execute(
            "vacuum analyze underseal.wake, underseal.execution, underseal.event, underseal.schedule"
        )
    yield database
    database.close_connections()
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        server.execute(sql.SQL("drop database {}").format(name))


def _read(connection: psycopg.Connection[Any]) -> tuple[dict[str, int], dict[str, int]]:
    """What this transaction has read so far: scans of each large table, and rows fetched by each of their indexes."""
    named = [[f"underseal.{table}" for table in LARGE]]
    tables = connection.execute(
        "select c.relname, pg_stat_get_xact_numscans(c.oid) from pg_class c where c.oid = any (%s::regclass[])",
        named,
    ).fetchall()
    indexes = connection.execute(
        """select c.relname, pg_stat_get_xact_tuples_returned(c.oid) from pg_class c
           join pg_index i on i.indexrelid = c.oid where i.indrelid = any (%s::regclass[])""",
        named,
    ).fetchall()
    return dict(tables), dict(indexes)


@pytest.mark.parametrize("plans", ["auto", "force_generic_plan"])
@pytest.mark.parametrize("call", CALLS)
def test_a_poll_stays_within_its_index(past: TestDatabase, call: str, plans: str) -> None:
    with psycopg.connect(past.conninfo_as(OWNER)) as connection:
        connection.execute("select set_config('plan_cache_mode', %s, true)", [plans])
        # more often than a plan takes to become generic
        for _ in range(7):
            connection.execute(CALLS[call])
        tables_before, indexes_before = _read(connection)
        rows = connection.execute(CALLS[call]).fetchall()
        tables, indexes = _read(connection)
        connection.rollback()

    assert (len(rows) > 0) == (call not in ("claim-of-nothing", "claim-of-another-flow"))
    assert tables == tables_before
    walked = {
        name: rows - indexes_before[name] for name, rows in indexes.items() if rows > indexes_before[name]
    }
    # whoever claims or renews again in this transaction walks past the versions that it left before
    left = 400 if call.startswith("claim") else 2000 if call == "renew" else 0
    assert max(walked.values(), default=0) <= ROWS + left, walked


CYCLES: Final = 20
EACH: Final = 100


def _churn(w: Wakes, renewals: int = 3) -> None:
    """Executions that start, are claimed, renewed, parked on a timer, claimed again and ended."""
    waits = [{"wait": "w", "arms": [{"for": 0.2}, {"topic": "t"}]}]
    for cycle in range(CYCLES):
        ids = [f"c{cycle}x{n}" for n in range(EACH)]
        w.start(*ids)
        claims = w.claim(most=EACH)
        assert sorted(claimed(claims)) == sorted(ids)
        for _ in range(renewals):
            w.renew(*ids)
        w.done(*({**w.mine(one), "verb": "park", "waits": waits} for one in claims))
        if w.clock:
            w.clock.advance(seconds=1)
        else:
            wait_until(lambda: not w.rows("select 1 from underseal.wake where wake_at > underseal.clock()"))
        claims = w.claim(most=EACH)
        assert len(claims) == EACH
        for one in claims:
            w.rows("select * from underseal.deliver(%s, %s)", one["execution_id"], one["fence"])
        w.done(*({**w.mine(one), "verb": "complete"} for one in claims))


def _hold_an_old_snapshot(database: TestDatabase) -> None:
    holder = database.connect(autocommit=False)
    holder.execute("set transaction isolation level repeatable read")
    holder.execute("select 1")


def _size(admin: DictConnection) -> int:
    row = admin.execute("select pg_total_relation_size('underseal.wake') as bytes").fetchone()
    assert row is not None
    return int(row["bytes"])


@pytest.fixture
def twin(postgres: Server, template: NoopExecutor) -> Iterator[TestDatabase]:
    """A second database with the kernel."""
    database = TestDatabase(postgres, unique_name("twin"))
    name = sql.Identifier(database.name)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        server.execute(
            sql.SQL("create database {} template {}").format(
                name, sql.Identifier(str(template.template_dbname))
            )
        )
        yield database
        database.close_connections()
        server.execute(sql.SQL("drop database {} with (force)").format(name))


def test_an_old_snapshot_does_not_bloat_the_wakes(database: TestDatabase, twin: TestDatabase) -> None:
    _churn(Wakes(database.connect(OWNER)))
    free = _size(database.connect())
    _hold_an_old_snapshot(twin)
    _churn(Wakes(twin.connect(OWNER)))
    held = _size(twin.connect())

    assert held <= 3 * free
    # what no vacuum can take away yet: ten versions of narrow rows, and their index entries
    assert held <= 1500 * CYCLES * EACH


def _entries_read(connection: DictConnection) -> int:
    """Entries of the index of what is due that one poll walks, and finds nothing."""
    look = "select pg_stat_get_xact_tuples_returned('underseal.wake_due'::regclass) as entries"
    with connection.transaction(force_rollback=True):
        before = connection.execute(look).fetchone()
        assert (
            connection.execute("select 1 from underseal.claim_due('w', '{onboard}', '1 minute')").fetchall()
            == []
        )
        after = connection.execute(look).fetchone()
    assert before is not None
    assert after is not None
    return int(after["entries"] - before["entries"])


def test_a_poll_does_not_walk_through_what_an_old_snapshot_keeps(
    w: Wakes, database: TestDatabase, clock: TestClock
) -> None:
    _hold_an_old_snapshot(database)
    _churn(w, renewals=0)
    assert _entries_read(w.connection) > CYCLES * EACH

    clock.advance(seconds=11)
    w.claim()
    assert _entries_read(w.connection) == 0
    # the sweep that comes now looks through all of it once
    clock.advance(seconds=11)
    assert _entries_read(w.connection) > CYCLES * EACH
    w.claim()
    assert _entries_read(w.connection) == 0
