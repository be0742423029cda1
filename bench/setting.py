"""The database that is measured: durable settings, the kernel, one service role, one operation type, and the same
tables once more without triggers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from underseal.foundation.server import Server, embedded_server
from underseal.testing import OWNER, install

DURABLE: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # a checkpoint in the middle of one side's round and not of the other's would be measured as theirs
    "checkpoint_timeout": "1h",
    "max_wal_size": "8GB",
}
SERVICE: Final = "bench_service"
TYPE: Final = "payout.send"
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "account": {"type": "string"},
        "amount": {"type": "integer"},
        "currency": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["account", "amount", "currency"],
    "additionalProperties": False,
}
POLICY: Final = {"approvers": ["bob", "carol"], "hold_for": 86400, "run_within": 86400}
WRITTEN: Final = ("held_operation", "held_vote", "held_event", "held_event_pending", "audit_entry")
"""The tables that a full cycle writes."""


@contextmanager
def measured_server(directory: Path) -> Iterator[Server]:
    """The embedded Postgres with durable settings.

    Parameters:
        directory: an existing directory for its data.
    """
    with embedded_server(directory / "data", DURABLE) as server:
        yield server


def as_owner(server: Server, dbname: str) -> psycopg.Connection[tuple[object, ...]]:
    """An autocommit connection of the role that owns the schema."""
    return psycopg.connect(make_conninfo(server.conninfo(dbname), user=OWNER), autocommit=True)


def as_service(server: Server, dbname: str) -> str:
    """The connection string of the service that is measured."""
    return make_conninfo(server.conninfo(dbname), user=SERVICE)


def make_database(server: Server, dbname: str) -> None:
    """Make a database with the kernel, the service role and its operation type.

    Parameters:
        server: where.
        dbname: its name; must not exist.
    """
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(dbname)))
        if admin.execute("select from pg_roles where rolname = %s", [SERVICE]).fetchone() is None:
            admin.execute(sql.SQL("create role {} login").format(sql.Identifier(SERVICE)))
    install(server, dbname)
    with as_owner(server, dbname) as owner:
        for access in ("client", "approver", "worker"):
            owner.execute("select underseal.grant_access(%s, %s, 'asserted')", [SERVICE, access])
        owner.execute(
            "select underseal.register_operation_type(%s, 1, 'ON_APPROVAL', %s, %s)",
            [TYPE, Jsonb(SCHEMA), Jsonb(POLICY)],
        )


def make_bare_tables(server: Server, dbname: str) -> None:
    """Copy every table that a cycle writes, with its constraints, indexes and storage settings, without its triggers
    (and so without the audit trail's foreign key, which is triggers too).

    Parameters:
        server: where.
        dbname: a database that has the kernel.
    """
    with psycopg.connect(server.conninfo(dbname), autocommit=True) as admin:
        admin.execute("create schema bare")
        for table in WRITTEN:
            name = sql.Identifier(table)
            admin.execute(sql.SQL("create table bare.{0} (like underseal.{0} including all)").format(name))
            # LIKE leaves the storage settings out
            row = admin.execute(
                "select array_to_string(c.reloptions, ', ') from pg_class c where c.oid = %s::regclass",
                [f"underseal.{table}"],
            ).fetchone()
            if row is not None and row[0]:
                admin.execute(sql.SQL("alter table bare.{} set ({})").format(name, sql.SQL(row[0])))
        service = sql.Identifier(SERVICE)
        admin.execute(sql.SQL("grant usage on schema bare to {}").format(service))
        admin.execute(
            sql.SQL("grant select, insert, update on all tables in schema bare to {}").format(service)
        )
