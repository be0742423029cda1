"""What the tests see of the processes: who did each effect, who sent what; the exported witness notes the rest."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from underseal.flow.step import StepInfo, current_step
from underseal.testing.audit import Books, witness

# steps tell when they began by their process's clock, which is the server's: both are on one machine
INSTALL = (
    witness.install("clock_timestamp()")
    + """
create schema crash;
grant usage on schema crash to public;

create table crash.effect (
  effect bigint generated always as identity primary key,
  execution text not null, step integer not null, attempt integer not null, name text not null, process text not null,
  value jsonb, began timestamptz, at timestamptz not null default clock_timestamp());
grant select, insert on crash.effect to public;
create index on crash.effect (execution);

create table crash.sent (
  execution text not null, topic text not null, sender text not null, message_id text not null, outcome text not null,
  inbox_seq bigint, payload jsonb);
grant select, insert on crash.sent to public;

-- The clock runs, and the tests can move it on.
create sequence crash.moved minvalue 0 start 0;
grant select on sequence crash.moved to public;
select setval('crash.moved', 0);
create or replace function underseal.clock() returns timestamptz language sql volatile parallel safe
as $$ select clock_timestamp() + m.last_value * interval '1 microsecond' from crash.moved m $$;
"""
)

_INSERT = """
insert into crash.effect (execution, step, attempt, name, process, value, began) values (%s, %s, %s, %s, %s, %s, %s)
returning effect"""


class Effects:
    """Does the effects of one process: rows, each on disk before the step ends."""

    def __init__(self, conninfo: str, process: str) -> None:
        self._conninfo = conninfo
        self._process = process
        self._plain: psycopg.Connection[Any] | None = None
        self._async: psycopg.AsyncConnection[Any] | None = None
        self._one_thread = threading.Lock()
        self._one_task = asyncio.Lock()

    def _row(self, info: StepInfo, value: Any, began: datetime) -> list[Any]:
        return [
            info.execution_id,
            info.number,
            info.attempt,
            info.name,
            self._process,
            json.dumps(value),
            began,
        ]

    def do(self, value: Any) -> dict[str, Any]:
        """Do one in a thread."""
        began = datetime.now(UTC)
        with self._one_thread:
            if self._plain is None:
                self._plain = psycopg.connect(self._conninfo, autocommit=True)
            row = self._plain.execute(_INSERT, self._row(current_step(), value, began)).fetchone()
        assert row is not None
        return {"effect": row[0], "value": value}

    async def do_async(self, value: Any) -> dict[str, Any]:
        """Do one in the loop."""
        began = datetime.now(UTC)
        async with self._one_task:
            if self._async is None:
                self._async = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
            cursor = await self._async.execute(_INSERT, self._row(current_step(), value, began))
            row = await cursor.fetchone()
        assert row is not None
        return {"effect": row[0], "value": value}


def read(conninfo: str, prefix: str, excused: Iterable[str] = ()) -> Books:
    """The books of all chains whose ids begin so."""
    with psycopg.connect(conninfo, row_factory=dict_row) as connection:
        effects, sent = (
            connection.execute(
                f"select * from crash.{table} where starts_with(execution, %s)", [prefix]
            ).fetchall()
            for table in ("effect", "sent")
        )
    return Books.read(conninfo, prefix, effects=effects, sent=sent, excused=excused)
