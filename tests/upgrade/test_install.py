"""The kernel moves into a database that somebody already uses, and out again."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from alembic.util import CommandError

from tests.upgrade.catalog import catalog
from tests.upgrade.hosts import Host
from tools.freeze import FROZEN, ROOMS, frozen_text
from underseal.foundation.environment import LOCK
from underseal.foundation.extension import VERSION
from underseal.foundation.install import current_revision, downgrade, install_script, migrate, revisions
from underseal.foundation.kernel import installed_kernel
from underseal.foundation.repeatables import CREATE_SCHEMA, repeatable_script
from underseal.foundation.server import Server, binaries
from underseal.testing import OWNER, DictConnection, TestDatabase, wait_until

HEAD = revisions(installed_kernel())[-1].revision


def allow(database: TestDatabase, role: str = OWNER) -> str:
    """Give a role CREATE on a database; its connection string."""
    database.connect().execute(f'grant create on database "{database.name}" to "{role}"'.encode())
    return database.conninfo_as(role)


def forget_bundle(conninfo: str) -> None:
    """Make the next migration apply every file again."""
    with psycopg.connect(conninfo) as connection:
        connection.execute("delete from underseal.setting where key = 'bundle.digest'")


def run_psql(conninfo: str, script: str) -> str:
    """Feed a script to psql as it is; what it prints."""
    done = subprocess.run(
        [binaries() / "psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", conninfo],
        input=script,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.clause("T7a")
def test_it_installs_beside_the_tables_and_the_history_of_a_host(host: Host) -> None:
    before = host.everything()
    migrate(host.conninfo)
    assert current_revision(host.conninfo) == HEAD
    assert host.everything() == before
    owner = host.database.connect().execute(
        "select r.rolname, r.rolsuper from pg_namespace n join pg_roles r on r.oid = n.nspowner"
        " where nspname = 'underseal'"
    )
    assert owner.fetchall() == [{"rolname": host.role, "rolsuper": False}]


@pytest.mark.clause("H1.4a")
def test_a_database_of_another_encoding_is_refused(empty_database: TestDatabase, postgres: Server) -> None:
    name = f"{empty_database.name}_latin1"
    admin = empty_database.connect()
    admin.execute(f"create database \"{name}\" encoding 'LATIN1' locale 'C' template template0".encode())
    try:
        with pytest.raises(psycopg.errors.RaiseException, match="encoding UTF8, found LATIN1"):
            migrate(postgres.conninfo(name))
        with psycopg.connect(postgres.conninfo(name)) as connection:
            assert connection.execute("select from pg_namespace where nspname = 'underseal'").rowcount == 0
    finally:
        admin.execute(f'drop database "{name}" with (force)'.encode())


def test_it_upgrades_after_create_on_the_database_is_revoked(host: Host) -> None:
    migrate(host.conninfo)
    admin = host.database.connect()
    admin.execute(f'revoke create on database "{host.database.name}" from "{host.role}"'.encode())
    before = catalog(host.database.conninfo)
    forget_bundle(host.conninfo)
    migrate(host.conninfo)
    assert catalog(host.database.conninfo) == before


def test_without_create_on_the_database_it_says_so_and_changes_nothing(host: Host) -> None:
    admin = host.database.connect()
    admin.execute(f'revoke create on database "{host.database.name}" from "{host.role}"'.encode())
    before = host.everything()
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for database"):
        migrate(host.conninfo)
    assert host.everything() == before


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_two_processes_may_migrate_at_once(host: Host, isolation: str) -> None:
    admin = host.database.connect()
    admin.execute(
        f"alter database \"{host.database.name}\" set default_transaction_isolation = '{isolation}'".encode()
    )
    holder = host.database.connect(autocommit=False)
    holder.execute(LOCK.partition(";")[0].encode())
    code = f"from underseal.foundation.install import migrate; migrate({host.conninfo!r})"
    migrators = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    waiting = "select count(*) as n from pg_locks where locktype = 'advisory' and not granted"
    wait_until(lambda: admin.execute(waiting).fetchall() == [{"n": 2}], timeout=15)
    holder.rollback()
    assert [(m.communicate(timeout=60)[1], m.returncode) for m in migrators] == [("", 0), ("", 0)]
    assert current_revision(host.conninfo) == HEAD


@pytest.mark.clause("T7d")
def test_going_back_to_nothing_leaves_the_host_as_it_was(host: Host) -> None:
    before = host.everything()
    migrate(host.conninfo)
    downgrade(host.conninfo)
    assert host.everything() == before
    assert catalog_is_gone(host.database.connect())
    migrate(host.conninfo)
    assert current_revision(host.conninfo) == HEAD


def catalog_is_gone(connection: DictConnection) -> bool:
    return connection.execute("select from pg_namespace where nspname = 'underseal'").fetchone() is None


@pytest.mark.parametrize(
    ("build", "named"),
    [
        ("create view mine as select underseal.clock() as t", "view mine"),
        ("create view mine as select * from underseal.setting", "view mine"),
        (
            "create table mine (t timestamptz default underseal.clock())",
            "default value for column t of table mine",
        ),
        (
            "create table mine (k text references underseal.setting (key))",
            "constraint mine_k_fkey on table mine",
        ),
        ("create table mine (s underseal.setting)", "column s of table mine"),
        ("create function mine(underseal.setting) returns int language sql return 1", "function mine"),
    ],
)
@pytest.mark.clause("T7d")
def test_going_back_refuses_while_the_host_has_built_upon_us(host: Host, build: str, named: str) -> None:
    migrate(host.conninfo)
    with psycopg.connect(host.conninfo) as connection:
        connection.execute(build.encode())
    before = (host.everything(), catalog(host.database.conninfo))
    with pytest.raises(RuntimeError, match=f"would be dropped with it: {named}"):
        downgrade(host.conninfo)
    assert (host.everything(), catalog(host.database.conninfo)) == before


def test_a_dry_run_prints_what_would_run_and_changes_nothing(host: Host) -> None:
    before = host.everything()
    script = migrate(host.conninfo, dry_run=True)
    assert host.everything() == before
    assert catalog_is_gone(host.database.connect())
    run_psql(host.conninfo, script)
    printed = catalog(host.database.conninfo)
    downgrade(host.conninfo)
    migrate(host.conninfo)
    assert catalog(host.database.conninfo) == printed


def test_a_dry_run_on_an_installed_kernel_prints_a_script_that_changes_nothing_more(host: Host) -> None:
    migrate(host.conninfo)
    before = catalog(host.database.conninfo)
    script = migrate(host.conninfo, dry_run=True)
    assert "create table underseal.held_operation" not in script
    run_psql(host.conninfo, script)
    assert catalog(host.database.conninfo) == before


def test_the_printed_script_installs_the_same_as_the_migrations(
    database: TestDatabase, empty_database: TestDatabase
) -> None:
    conninfo = allow(empty_database)
    run_psql(conninfo, install_script())
    assert catalog(empty_database.conninfo) == catalog(database.conninfo)
    migrate(conninfo)
    assert current_revision(conninfo) == HEAD


@pytest.mark.clause("T7c")
def test_the_readable_tables_are_those_that_the_migrations_make(
    database: TestDatabase, empty_database: TestDatabase
) -> None:
    kernel = installed_kernel()
    tables = [(kernel.root / "sql" / room / "tables.sql").read_text() for room in ROOMS]
    with psycopg.connect(allow(empty_database)) as connection:
        for text in (CREATE_SCHEMA, VERSION.format(head=HEAD), *tables, *repeatable_script(kernel, HEAD)):
            connection.execute(text.encode())
    assert catalog(empty_database.conninfo) == catalog(database.conninfo)


def test_the_frozen_copy_of_the_tables_is_up_to_date() -> None:
    assert FROZEN.read_text() == frozen_text(), "run `make freeze`"


def test_every_file_of_the_kernel_is_in_the_manifest() -> None:
    kernel = installed_kernel()
    on_disk = {
        p for d in ("sql", "triggers") for p in (kernel.root / d).rglob("*.sql") if p.name != "tables.sql"
    }
    assert on_disk == set(kernel.repeatables())


@pytest.mark.clause("T7a")
def test_a_host_may_have_us_inside_its_own_history(host: Host, database: TestDatabase) -> None:
    host.upgrade("host2")
    assert current_revision(host.conninfo) == HEAD
    columns = [row.get("attname") for row in host.everything()]
    assert {"before_us", "after_us"} <= set(columns)
    migrate(host.conninfo)
    theirs = {name: text.replace(host.role, OWNER) for name, text in catalog(host.database.conninfo).items()}
    assert theirs == catalog(database.conninfo)
    host.downgrade("host1")
    assert catalog_is_gone(host.database.connect())


def test_an_unknown_revision_is_refused(host: Host) -> None:
    with pytest.raises(CommandError, match="nowhere"):
        migrate(host.conninfo, "nowhere")
    assert catalog_is_gone(host.database.connect())


def test_a_dump_restored_elsewhere_is_the_same_schema(
    database: TestDatabase, empty_database: TestDatabase
) -> None:
    dump = [str(binaries() / "pg_dump"), "--schema=underseal", database.conninfo]
    script = subprocess.run(dump, text=True, capture_output=True, check=True, timeout=60).stdout
    # a setting that pg_dump 18 writes and Postgres 15 does not know
    run_psql(empty_database.conninfo, script.replace("SET transaction_timeout = 0;", ""))
    # Postgres prints an expression that it has read from its own print with other parentheses
    bare = str.maketrans("", "", "()")
    restored, original = (catalog(d.conninfo) for d in (empty_database, database))
    assert {n: t.translate(bare) for n, t in restored.items()} == {
        n: t.translate(bare) for n, t in original.items()
    }
    migrate(allow(empty_database))
