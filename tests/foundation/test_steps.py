"""Steps: the same commands over both drivers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from underseal.errors import KernelError
from underseal.foundation import steps as module
from underseal.foundation.sources import AsyncPoolSource, PoolSource
from underseal.foundation.steps import (
    Call,
    During,
    Pause,
    Query,
    Steps,
    Undo,
    atomic,
    call,
    drive,
    drive_async,
    query,
)
from underseal.foundation.threads import await_here, in_thread
from underseal.testing import DictConnection, TestDatabase, in_background, wait_blocked


class Both:
    """A driver, sync or async, over a source of its own."""

    def __init__(self, conninfo: str, asynchronous: bool) -> None:
        self.conninfo = conninfo
        self.asynchronous = asynchronous

    def __call__(self, steps: Steps[Any]) -> Any:
        """Carry steps out."""
        if not self.asynchronous:
            source = PoolSource(self.conninfo)
            try:
                return drive(source, steps)
            finally:
                source.close()

        async def carry_out() -> Any:
            source = AsyncPoolSource(self.conninfo)
            try:
                return await drive_async(source, steps)
            finally:
                await source.close()

        return asyncio.run(carry_out())

    def joined(self, steps: Steps[Any], *, autocommit: bool = False) -> Any:
        """Carry steps out on a connection of the caller's, and roll back what it has open."""
        if not self.asynchronous:
            with psycopg.connect(self.conninfo, autocommit=autocommit) as connection:
                value = drive(connection, steps)
                connection.rollback()
                return value

        async def carry_out() -> Any:
            async with await psycopg.AsyncConnection.connect(
                self.conninfo, autocommit=autocommit
            ) as connection:
                value = await drive_async(connection, steps)
                await connection.rollback()
                return value

        return asyncio.run(carry_out())


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, empty_database: TestDatabase) -> Both:
    """A driver over a database with one table."""
    empty_database.connect().execute("create table t (n integer)")
    return Both(empty_database.conninfo, request.param == "async")


@pytest.fixture
def rows(empty_database: TestDatabase) -> Any:
    """How many rows the table has."""
    admin = empty_database.connect()
    return lambda: len(admin.execute("select from t").fetchall())


def insert(n: int) -> Steps[Any]:
    return query("insert into t values (%s)", (n,))


def test_a_query_gives_dicts_whatever_the_connection_is_set_to(both: Both) -> None:
    assert both(query("select %(a)s::int as a, 'x' as b", {"a": 1})) == [{"a": 1, "b": "x"}]
    assert both(insert(1)) == []
    with psycopg.connect(both.conninfo, row_factory=tuple_row) as connection:
        assert drive(connection, query("select 1 as a")) == [{"a": 1}]


def test_an_error_reaches_the_steps(both: Both) -> None:
    def steps() -> Steps[str]:
        try:
            yield Query("select 1/0 as boom")
        except psycopg.errors.DivisionByZero:
            rows = yield from query("select 'after' as a")
            return str(rows[0]["a"])
        return "no error"

    assert both(steps()) == "after"


def test_an_error_that_the_steps_let_through_is_raised(both: Both) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        both(query("select 1/0 as boom"))


def test_a_sqlstate_of_ours_is_a_kernel_error(both: Both) -> None:
    with pytest.raises(KernelError) as error:
        both(query("do $$ begin raise exception 'no' using errcode = 'US001'; end $$"))
    assert (error.value.sqlstate, error.value.code, str(error.value)) == (
        "US001",
        "US001",
        "no [US001: malformed argument]",
    )
    assert error.value.__cause__ is None


def test_atomic_steps_commit_or_roll_back_together(both: Both, rows: Any) -> None:
    def two(fail: bool) -> Steps[int]:
        yield from insert(1)
        yield from insert(2)
        if fail:
            raise ZeroDivisionError
        return 2

    assert both(atomic(lambda: two(False))) == 2
    assert rows() == 2
    with pytest.raises(ZeroDivisionError):
        both(atomic(lambda: two(True)))
    assert rows() == 2


def test_an_undo_rolls_back_and_gives_its_value(both: Both, rows: Any) -> None:
    def undo() -> Steps[str]:
        yield from insert(1)
        raise Undo("undone")

    def outer() -> Steps[str]:
        yield from insert(2)
        return (yield from atomic(undo))

    assert both(atomic(undo)) == "undone"
    assert rows() == 0
    assert both(atomic(outer)) == "undone"
    assert rows() == 1


def test_an_error_inside_a_savepoint_leaves_the_rest(both: Both, rows: Any) -> None:
    def outer() -> Steps[str]:
        yield from insert(1)
        try:
            yield from atomic(lambda: query("select 1/0"))
        except psycopg.errors.DivisionByZero:
            yield from insert(2)
        return "done"

    assert both(atomic(outer)) == "done"
    assert rows() == 2


@pytest.mark.parametrize("steps", [lambda: insert(1), lambda: atomic(lambda: insert(1))])
def test_steps_on_a_callers_connection_join_its_transaction(both: Both, rows: Any, steps: Any) -> None:
    both.joined(steps())
    assert rows() == 0
    both.joined(steps(), autocommit=True)
    assert rows() == 1


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_transaction_of_ours_is_tried_again(
    both: Both, monkeypatch: pytest.MonkeyPatch, sqlstate: str
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0)
    tries: list[int] = []

    def clash() -> Steps[int]:
        tries.append(1)
        if len(tries) < 3:
            yield from query(f"do $$ begin raise exception 'again' using errcode = '{sqlstate}'; end $$")
        return len(tries)

    assert both(atomic(clash)) == 3
    tries.clear()
    with pytest.raises(psycopg.OperationalError):
        both.joined(atomic(clash))
    assert len(tries) == 1


def test_a_transaction_is_not_tried_for_ever(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0)
    tries: list[int] = []

    def clash() -> Steps[None]:
        tries.append(1)
        yield from query("do $$ begin raise exception 'again' using errcode = '40001'; end $$")

    with pytest.raises(psycopg.errors.SerializationFailure):
        both(atomic(clash))
    assert len(tries) == 6


def test_a_real_deadlock_is_tried_again(empty_database: TestDatabase, admin: DictConnection) -> None:
    observer = empty_database.connect()
    observer.execute("create table pair (n integer primary key, by text)")
    observer.execute("insert into pair values (1, ''), (2, '')")
    other = empty_database.connect(autocommit=False)
    other.execute("set deadlock_timeout = '1h'")
    other.execute("update pair set by = 'other' where n = 2")
    source = PoolSource(empty_database.conninfo)
    pids: list[int] = []

    def both_rows() -> Steps[None]:
        pids.append((yield from query("select pg_backend_pid() as pid"))[0]["pid"])
        yield from query("update pair set by = by || 'ours' where n = 1")
        yield from query("update pair set by = by || 'ours' where n = 2")

    ours = in_background(drive, source, atomic(both_rows))
    while not pids:
        threading.Event().wait(0.01)
    wait_blocked(observer, pids[0])
    other.execute("update pair set by = 'other' where n = 1")
    other.commit()
    ours.result(timeout=20)
    source.close()
    assert len(pids) >= 2
    assert [row["by"] for row in observer.execute("select by from pair order by n")] == [
        "otherours",
        "otherours",
    ]


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_a_statement_runs_at_read_committed(both: Both, empty_database: TestDatabase, level: str) -> None:
    admin = empty_database.connect()
    admin.execute(f"alter database {empty_database.name} set default_transaction_isolation = '{level}'")
    admin.execute(
        "create function demand() returns text language plpgsql as $$ begin"
        " if current_setting('transaction_isolation') <> 'read committed' then"
        " raise exception 'no' using errcode = 'US008'; end if; return 'fine'; end $$"
    )
    assert both(query("select demand() as a")) == [{"a": "fine"}]
    assert both(atomic(lambda: query("select demand() as a"))) == [{"a": "fine"}]


# -- calls ------------------------------------------------------------------------------------------


def plain(value: int) -> int:
    return value + 1


async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value + 1


def promising(value: int) -> Any:
    return later(value)


@pytest.mark.parametrize("function", [plain, later, promising])
def test_a_call_is_awaited_where_it_must_be(both: Both, function: Any) -> None:
    assert both(call(function, 1)) == 2


async def test_a_sync_driver_awaits_inside_a_running_loop() -> None:
    assert await_here(later(1)) == 2
    with pytest.raises(ZeroDivisionError):
        await_here(failing())


async def failing() -> None:
    raise ZeroDivisionError


def test_an_async_driver_runs_plain_code_in_a_thread_of_its_own(empty_database: TestDatabase) -> None:
    here = threading.get_ident()
    assert Both(empty_database.conninfo, True)(call(threading.get_ident)) != here


def test_a_thread_sees_the_context_it_was_called_in() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def look() -> int:
        variable.set(7)
        return await in_thread(variable.get)

    assert asyncio.run(look()) == 7


def test_errors_of_a_thread_are_raised() -> None:
    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(in_thread(stop))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(lambda: 1 // 0))


def test_a_thread_that_outlives_its_loop_is_nobodys_business() -> None:
    go, gone = threading.Event(), threading.Event()

    def linger() -> None:
        go.wait(20)
        gone.set()

    async def leave() -> None:
        waiting = asyncio.create_task(in_thread(linger))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave())
    go.set()
    assert gone.wait(20)


# -- beside each other ------------------------------------------------------------------------------


def test_ticks_go_on_while_the_steps_do(both: Both) -> None:
    ticks: list[int] = []
    enough = threading.Event()

    def tick() -> Steps[None]:
        ticks.append((yield from query("select 1 as a"))[0]["a"])
        if len(ticks) == 1:
            raise RuntimeError("this one failed")
        if len(ticks) >= 3:
            enough.set()

    def steps() -> Steps[bool]:
        waited: bool = yield from call(enough.wait, 20)
        return waited

    def during() -> Steps[bool]:
        waited: bool = yield During(steps, 0.01, tick)
        return waited

    assert both(during()) is True
    assert len(ticks) >= 3


def test_a_pause_waits(both: Both) -> None:
    def steps() -> Steps[float]:
        began = time.monotonic()
        yield Pause(0.05)
        return time.monotonic() - began

    assert both(steps()) >= 0.05


def test_commands_are_plain_values() -> None:
    assert Query("select 1") == Query("select 1", None)
    assert Call(plain, (1,)).args == (1,)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = {thread for thread in threading.enumerate() if thread.name == "underseal-beat"}
    yield
    left = {thread for thread in threading.enumerate() if thread.name == "underseal-beat"} - before
    for thread in left:
        thread.join(5)
        assert not thread.is_alive()
