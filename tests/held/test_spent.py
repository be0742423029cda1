"""The spent register remembers, outside the database, what was run (H8.5)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool

from underseal.held.spent import FileSpentRegister, PostgresSpentRegister, SpentRegister, SpentRegisterError
from underseal.testing import TestDatabase, in_background, wait_until

DAY = timedelta(days=1)
OPERATION = UUID("0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a")


@pytest.fixture
def other(empty_database: TestDatabase) -> PostgresSpentRegister:
    register = PostgresSpentRegister(empty_database.conninfo)
    register.create()
    return register


@pytest.fixture(params=["files", "database", "pool"])
def register(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SpentRegister]:
    if request.param == "files":
        yield FileSpentRegister(tmp_path / "spent")
    elif request.param == "database":
        yield request.getfixturevalue("other")
    else:
        conninfo = request.getfixturevalue("empty_database").conninfo
        with ConnectionPool(conninfo, min_size=1, max_size=4, open=True) as pool:
            register = PostgresSpentRegister(pool)
            register.create()
            yield register


@pytest.mark.clause("H8.5a")
def test_an_operation_is_spent_once(register: SpentRegister) -> None:
    assert isinstance(register, SpentRegister)
    assert register.spend(OPERATION, DAY) is True
    assert register.spend(OPERATION, DAY) is False
    assert register.spend(OPERATION, 2 * DAY) is False
    assert register.spend(uuid4(), DAY) is True


@pytest.mark.clause("H8.5a")
def test_of_many_threads_one_is_first(register: SpentRegister) -> None:
    gate = threading.Barrier(8)
    answers: list[bool] = []

    def spend() -> None:
        gate.wait()
        answers.append(register.spend(OPERATION, DAY))

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]


@pytest.mark.clause("H8.5a")
async def test_async_callers_use_a_thread(register: SpentRegister) -> None:
    answers = await asyncio.gather(*(asyncio.to_thread(register.spend, OPERATION, DAY) for _ in range(4)))
    assert sorted(answers) == [False] * 3 + [True]


@pytest.mark.clause("H8.5e")
@pytest.mark.parametrize("keep_for", [timedelta(0), timedelta(microseconds=-1), -DAY])
def test_an_entry_is_kept_for_some_time_or_refused(register: SpentRegister, keep_for: timedelta) -> None:
    with pytest.raises(SpentRegisterError, match="keep_for must be longer than zero"):
        register.spend(OPERATION, keep_for)
    assert register.spend(OPERATION, DAY) is True


PROGRAM = """
import json, sys
from datetime import timedelta
from uuid import UUID
from underseal.held.spent import FileSpentRegister, PostgresSpentRegister
kind, where, operation = sys.argv[1:]
register = FileSpentRegister(where) if kind == "files" else PostgresSpentRegister(where)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(register.spend(UUID(operation), timedelta(days=1))), flush=True)
"""


@pytest.mark.clause("H8.5a")
@pytest.mark.parametrize("kind", ["files", "database"])
def test_of_many_processes_one_is_first(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = str(tmp_path / "spent")
    if kind == "database":
        request.getfixturevalue("other")
        where = request.getfixturevalue("empty_database").conninfo
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, kind, where, str(OPERATION)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert sorted(answers) == [False] * 3 + [True]


# The register of files.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spent"


def test_the_directory_and_its_entries_are_private(path: Path) -> None:
    before = os.umask(0)
    try:
        FileSpentRegister(path).spend(OPERATION, DAY)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == 0o700
    (entry,) = path.iterdir()
    assert entry.name == str(OPERATION)
    assert entry.stat().st_mode & 0o7777 == 0o600


def test_a_loose_directory_is_refused_with_the_remedy(path: Path) -> None:
    path.mkdir(parents=True, mode=0o755)
    path.chmod(0o755)
    with pytest.raises(SpentRegisterError, match=f"has mode 0755.*run: chmod 700 {path}"):
        FileSpentRegister(path).spend(OPERATION, DAY)
    assert list(path.iterdir()) == []


@pytest.mark.clause("H8.5a")
def test_an_entry_is_on_disk_before_the_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        done.append("directory" if Path(f"/proc/self/fd/{fd}").is_dir() else "file")
        fsync(fd)

    register = FileSpentRegister(path)
    register.spend(uuid4(), DAY)
    monkeypatch.setattr(os, "fsync", noted)
    assert register.spend(OPERATION, DAY) is True
    assert done == ["file", "directory"]


@pytest.mark.clause("H8.5a")
def test_an_entry_that_a_crash_left_empty_is_spent_and_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    register = FileSpentRegister(path)
    register.spend(uuid4(), DAY)
    with monkeypatch.context() as crashing:
        crashing.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            register.spend(OPERATION, DAY)
    (path / str(OPERATION)).write_bytes(b"")
    assert register.spend(OPERATION, DAY) is False
    assert register.prune(timedelta(0)) == 0
    assert register.spend(OPERATION, DAY) is False


def at(monkeypatch: pytest.MonkeyPatch, later: timedelta) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + later.total_seconds())


@pytest.mark.clause("H8.5e")
def test_files_are_pruned_when_they_are_over_and_not_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = FileSpentRegister(path)
    long, short = uuid4(), uuid4()
    register.spend(long, 30 * DAY)
    register.spend(short, DAY)
    assert register.prune() == 0
    at(monkeypatch, 1.5 * DAY)
    assert register.prune() == 0
    assert register.spend(short, DAY) is False
    at(monkeypatch, 1.0 * DAY)
    assert register.prune() == 1
    assert register.spend(long, DAY) is False
    assert register.spend(short, DAY) is True


def test_a_grace_is_never_negative(path: Path) -> None:
    with pytest.raises(ValueError, match="zero or more"):
        FileSpentRegister(path).prune(-DAY)


# The register in another database.


def expire(database: TestDatabase, operation: UUID) -> None:
    database.connect().execute(
        "update underseal_spent set keep_until = clock_timestamp() - interval '1 second' where operation_id = %s",
        [operation],
    )


@pytest.mark.clause("H8.5e")
def test_rows_are_kept_as_long_as_asked_by_that_server_s_clock(
    other: PostgresSpentRegister, empty_database: TestDatabase
) -> None:
    other.spend(OPERATION, DAY)
    row = empty_database.connect().execute(
        "select keep_until - spent_at between interval '24 hours' and interval '24 hours 1 minute' as kept,"
        " spent_at between clock_timestamp() - interval '1 minute' and clock_timestamp() as dated"
        " from underseal_spent"
    )
    assert row.fetchall() == [{"kept": True, "dated": True}]


@pytest.mark.clause("H8.5e")
def test_rows_are_pruned_when_they_are_over_and_not_before(
    other: PostgresSpentRegister, empty_database: TestDatabase
) -> None:
    over = uuid4()
    other.spend(OPERATION, DAY)
    other.spend(over, DAY)
    assert other.prune() == 0
    expire(empty_database, over)
    assert other.spend(over, DAY) is False
    assert other.prune() == 1
    assert other.spend(OPERATION, DAY) is False
    assert other.spend(over, DAY) is True


def test_the_table_is_made_once_and_may_have_another_name(
    other: PostgresSpentRegister, empty_database: TestDatabase
) -> None:
    other.create()
    named = PostgresSpentRegister(empty_database.conninfo, table='gone "for good"')
    named.create()
    assert named.spend(OPERATION, DAY) is True
    assert other.spend(OPERATION, DAY) is True
    assert repr(named) == '<PostgresSpentRegister "gone ""for good""">'


@pytest.mark.clause("H8.5a")
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_no_default_of_the_server_weakens_it(
    other: PostgresSpentRegister, empty_database: TestDatabase, level: str
) -> None:
    admin = empty_database.connect()
    name = sql.Identifier(empty_database.name)
    for setting, value in (("default_transaction_isolation", level), ("synchronous_commit", "off")):
        admin.execute(sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), value))
    admin.execute("create table seen (isolation text, commits text)")
    admin.execute(
        """create function look() returns trigger language plpgsql as $$ begin
             insert into seen
               values (current_setting('transaction_isolation'), current_setting('synchronous_commit'));
             return new;
           end $$"""
    )
    admin.execute("create trigger look before insert on underseal_spent for each row execute function look()")
    assert other.spend(OPERATION, DAY) is True
    assert admin.execute("select * from seen").fetchall() == [
        {"isolation": "read committed", "commits": "on"}
    ]


@pytest.mark.clause("H8.5a")
def test_a_first_time_that_is_not_committed_yet_is_waited_for(
    other: PostgresSpentRegister, empty_database: TestDatabase
) -> None:
    admin, holder = empty_database.connect(), empty_database.connect(autocommit=False)
    holder.execute(
        "insert into underseal_spent (operation_id, keep_until)"
        " values (%s, clock_timestamp() + interval '1 day')",
        [OPERATION],
    )
    answer = in_background(other.spend, OPERATION, DAY)
    waiting = "select 1 from pg_locks where not granted and locktype = 'transactionid'"
    wait_until(lambda: admin.execute(waiting).fetchone())
    assert not answer.done()
    holder.commit()
    assert answer.result(timeout=10) is False


@pytest.mark.clause("H8.5a")
def test_a_register_that_cannot_be_reached_is_an_error_and_never_a_first_time(tmp_path: Path) -> None:
    unreachable = PostgresSpentRegister(f"host={tmp_path} dbname=x connect_timeout=2")
    with pytest.raises(psycopg.OperationalError):
        unreachable.spend(OPERATION, DAY)
