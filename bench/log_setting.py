"""The database in which the log is measured, the values that are written, and the table somebody would make by hand."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from bench.setting import SERVICE, make_database
from underseal.foundation.server import Server

Service = psycopg.Connection[Any]

DATA: Final = json.dumps(
    {
        "step": "charge-card",
        "attempt": 1,
        "output": {"reference": "po-8812", "amount": 12500, "sent": True},
        "ms": 41,
    },
    separators=(",", ":"),
)
"""What one event says, about a hundred bytes."""
TYPE: Final = "STEP_COMPLETED"
EVENT: Final = f'{{"type": "{TYPE}", "data": {DATA}}}'
INPUT: Final = '{"user": "user-4711", "plan": "monthly"}'
OUTPUT: Final = '{"receipt": "po-8812"}'
FLOW: Final = "onboard"

RAW: Final = """
  create schema raw;
  grant usage on schema raw to {service};
  create table raw.event (
    chain_id text collate "C",
    member text collate "C",
    seq bigint,
    recorded_at timestamptz not null,
    type text collate "C" not null,
    data json not null,
    metadata jsonb,
    primary key (chain_id, member, seq)
  );
  create table raw.execution (
    id text collate "C" primary key, flow text not null, status text not null, input json, output json);
  create table raw.step (id text collate "C", seq bigint, data json not null, primary key (id, seq));
  grant select, insert, update on all tables in schema raw to {service};
"""
"""By hand: the same columns and the same key, without what only a kernel needs (a transaction id, its index, checks,
triggers). The other two are what an execution would be in three commits."""


def make_log_database(server: Server, dbname: str) -> None:
    """Make a database with the kernel and the tables made by hand.

    Parameters:
        server: where.
        dbname: its name; must not exist.
    """
    make_database(server, dbname)
    with psycopg.connect(server.conninfo(dbname), autocommit=True) as admin:
        admin.execute(sql.SQL(RAW).format(service=sql.Identifier(SERVICE)))


def new_id() -> str:
    """32 hexadecimal digits that begin with the time, as the kernel mints them."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def array(items: list[str]) -> str:
    """A JSON array of what is JSON already."""
    return f"[{','.join(items)}]"


def start_item(execution_id: str, *, worker: str | None = None) -> str:
    """An item of a batch that starts an execution, claimed where a worker is given."""
    claim = f', "worker": "{worker}", "lease": "30 seconds"' if worker else ""
    return (
        f'{{"verb": "start", "execution_id": "{execution_id}", "flow": "{FLOW}", "flow_version": 1,'
        f' "principal": "ann", "input": {INPUT}{claim}}}'
    )


def item(verb: str, execution_id: str, rest: str) -> str:
    """An item of a batch that writes to an execution under its first fence."""
    return f'{{"verb": "{verb}", "execution_id": "{execution_id}", "fence": 1, {rest}}}'


def append_item(execution_id: str, events: int) -> str:
    """An item that appends so many events."""
    return item("append", execution_id, f'"events": {array([EVENT] * events)}')


BATCH: Final = "select outcome, reason, head from underseal.append_batch(%s)"


def write_batch(service: Service, batch: str, expected: str) -> None:
    """Write a batch all of whose items must have one outcome.

    Errors:
        RuntimeError: one had another.
    """
    rows = service.execute(BATCH, [batch], prepare=True).fetchall()
    for outcome, reason, _ in rows:
        if outcome != expected:
            raise RuntimeError(f"expected {expected}, found {outcome} ({reason}): nothing was measured")


def one(service: Service, query: LiteralString, expected: str, *values: object) -> None:
    """Call a verb that must have this outcome, its first column.

    Errors:
        RuntimeError: it had another.
    """
    row = service.execute(query, values, prepare=True).fetchone()
    if row is None or row[0] != expected:
        raise RuntimeError(f"expected {expected}, found {row and row[:2]}: nothing was measured")


def start(service: Service, amount: int) -> list[str]:
    """Start executions that nobody has claimed.

    Returns: their ids.
    """
    ids = [new_id() for _ in range(amount)]
    for begin in range(0, amount, 100):
        write_batch(service, array([start_item(i) for i in ids[begin : begin + 100]]), "started")
    return ids
