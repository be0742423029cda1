"""The fixtures keep what they promise."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from underseal.testing import (
    OWNER,
    DictConnection,
    TestClock,
    TestDatabase,
    in_background,
    wait_blocked,
    wait_until,
)


def test_the_schema_belongs_to_a_role_without_powers(db: DictConnection) -> None:
    row = db.execute(
        "select r.rolname, r.rolsuper, r.rolcreatedb, r.rolcreaterole from pg_namespace n"
        " join pg_roles r on r.oid = n.nspowner where n.nspname = 'underseal'"
    ).fetchone()
    assert row == {"rolname": OWNER, "rolsuper": False, "rolcreatedb": False, "rolcreaterole": False}


def test_clock_is_seen_by_a_session_in_an_old_repeatable_read_snapshot(
    database: TestDatabase, clock: TestClock
) -> None:
    old = database.connect(OWNER, autocommit=False)
    old.execute("set transaction isolation level repeatable read")
    before = old.execute("select underseal.clock() as now").fetchone()
    assert before is not None
    clock.advance(days=400)
    after = old.execute("select underseal.clock() as now").fetchone()
    assert after is not None
    assert (after["now"] - before["now"]).days == 400
    clock.set(datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
    assert clock.now() == datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_wait_blocked_returns_when_a_session_waits(database: TestDatabase, admin: DictConnection) -> None:
    holder = database.connect(autocommit=False)
    waiter = database.connect()
    holder.execute("select pg_advisory_xact_lock(1)")
    waiting = in_background(waiter.execute, "select pg_advisory_lock(1)")
    wait_blocked(admin, waiter.info.backend_pid)
    assert not waiting.done()
    holder.commit()
    waiting.result(timeout=10)


def test_wait_until_says_what_it_last_saw() -> None:
    with pytest.raises(TimeoutError, match="last said 0"):
        wait_until(lambda: 0, timeout=0)


def test_roles_made_for_a_test_can_log_in(database: TestDatabase) -> None:
    role = database.create_role("client")
    row = database.connect(role).execute("select current_user as me").fetchone()
    assert row == {"me": role}
