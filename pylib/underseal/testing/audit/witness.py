"""Triggers, in test databases alone, that note which process took a fence and which one wrote an event,
of an execution or of a held operation.

A process is known by the `application_name` of its sessions.
"""

from __future__ import annotations

from typing import Final


def install(clock: str = "underseal.clock()") -> str:
    """SQL that makes the schema `witness` with the tables `fence`, `written` and `held`, and triggers that fill them.

    `number` is one order over all three: what is noted of an execution or of an operation is noted under its lock.

    Parameters:
        clock: an expression for `at`, the instant, with which what processes noted is compared.
    """
    return _INSTALL.replace("<clock>", clock)


_INSTALL: Final = """
create schema witness;
create sequence witness.number;

create table witness.fence (
  chain_id text collate "C" not null, member text collate "C" not null, fence bigint not null, process text not null,
  number bigint not null default nextval('witness.number'), at timestamptz not null default <clock>);
create table witness.written (
  chain_id text collate "C" not null, member text collate "C" not null, seq bigint not null, process text not null,
  number bigint not null default nextval('witness.number'), at timestamptz not null default <clock>);
create table witness.held (
  operation_id uuid not null, seq integer not null, process text not null,
  number bigint not null default nextval('witness.number'), at timestamptz not null default <clock>,
  primary key (operation_id, seq));
create index on witness.fence (chain_id);
create index on witness.written (chain_id);
-- begins anew when the tables are emptied so
alter sequence witness.number owned by witness.fence.number;

create function witness.note_fence() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  insert into witness.fence (chain_id, member, fence, process)
  values (new.chain_id, new.member, new.fence, current_setting('application_name'));
  return null;
end $$;
create trigger witness_begun after insert on underseal.execution for each row execute function witness.note_fence();
create trigger witness_taken after update of fence on underseal.execution for each row
  when (old.fence is distinct from new.fence) execute function witness.note_fence();

create function witness.note_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  insert into witness.written (chain_id, member, seq, process)
  select n.chain_id, n.member, n.seq, current_setting('application_name') from new_rows n
  order by n.chain_id, n.member, n.seq;
  return null;
end $$;
create trigger witness_written after insert on underseal.event referencing new table as new_rows
  for each statement execute function witness.note_events();

create function witness.note_held() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  insert into witness.held (operation_id, seq, process)
  values (new.operation_id, new.seq, current_setting('application_name'));
  return null;
end $$;
create trigger witness_held after insert on underseal.held_event for each row execute function witness.note_held();
"""

INSTALL: Final = install()
"""With the database's clock."""
