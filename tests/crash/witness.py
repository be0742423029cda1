"""What the tests see of the processes: who did each effect, who took each fence, who wrote each event.

The effects are rows of a table of the tests' own. Two triggers, which are in no database but theirs, note under which
process's name (the `application_name` of its sessions) a fence was taken and an event written.
"""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from typing import Any

import psycopg

from underseal.flow.step import StepInfo, current_step

INSTALL = """
create schema crash;
grant usage on schema crash to public;

create table crash.effect (
  effect bigint generated always as identity primary key,
  execution text not null, step integer not null, attempt integer not null, name text not null, process text not null,
  value jsonb, began timestamptz, at timestamptz not null default clock_timestamp());
grant select, insert on crash.effect to public;
create index on crash.effect (execution);

create table crash.fence (
  chain_id text collate "C" not null, member text collate "C" not null, fence bigint not null, process text not null,
  at timestamptz not null default clock_timestamp());
create table crash.written (
  chain_id text collate "C" not null, member text collate "C" not null, seq bigint not null, process text not null,
  at timestamptz not null default clock_timestamp());
create table crash.sent (
  execution text not null, topic text not null, sender text not null, message_id text not null, outcome text not null,
  inbox_seq bigint, payload jsonb);
grant select, insert on crash.sent to public;
create index on crash.fence (chain_id);
create index on crash.written (chain_id);

create function crash.note_fence() returns trigger language plpgsql security definer as $$
begin
  insert into crash.fence (chain_id, member, fence, process)
  values (new.chain_id, new.member, new.fence, current_setting('application_name'));
  return null;
end $$;
create trigger crash_begun after insert on underseal.execution for each row execute function crash.note_fence();
create trigger crash_taken after update of fence on underseal.execution for each row
  when (old.fence is distinct from new.fence) execute function crash.note_fence();

create function crash.note_events() returns trigger language plpgsql security definer as $$
begin
  insert into crash.written (chain_id, member, seq, process)
  select n.chain_id, n.member, n.seq, current_setting('application_name') from new_rows n;
  return null;
end $$;
create trigger crash_written after insert on underseal.event referencing new table as new_rows
  for each statement execute function crash.note_events();

-- The clock runs, and the tests can move it on.
create sequence crash.moved minvalue 0 start 0;
grant select on sequence crash.moved to public;
select setval('crash.moved', 0);
create or replace function underseal.clock() returns timestamptz language sql volatile parallel safe
as $$ select clock_timestamp() + m.last_value * interval '1 microsecond' from crash.moved m $$;
"""

_INSERT = """
insert into crash.effect (execution, step, attempt, name, process, value, began) values (%s, %s, %s, %s, %s, %s, %s)
returning effect"""


class Effects:
    """Does the effects of one process: rows, each on disk before the step ends.

    When a step began is told by the clock of the process, which is the server's: both are on one machine.
    """

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
