-- A log is only ever appended to. What may go is what was compacted, and what belonged to an execution that is gone.
create or replace function underseal._keep_event() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- adopt_log: a number that this cluster has not reached was given by another
  if old.txn >= pg_snapshot_xmax(pg_current_snapshot()) and new.txn = pg_current_xact_id()
    and (new.chain_id, new.member, new.seq, new.recorded_at, new.type, new.data::text, new.metadata)
      is not distinct from (old.chain_id, old.member, old.seq, old.recorded_at, old.type, old.data::text, old.metadata) then
    return new;
  end if;
  raise exception using errcode = 'US004',
    message = 'underseal.event expected to be appended to, found an UPDATE',
    hint = 'What was recorded is history. Append what is true now.';
end
$$;
comment on function underseal._keep_event() is
  'Refuses a change of a recorded event, but for the transaction number of one that another cluster wrote (E1). Judged by data alone.';

create or replace function underseal._keep_events() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  -- of an execution that is there, nothing goes but what lies between its start and what a snapshot left
  if exists (
      select from (
        select d.chain_id, d.member, min(d.seq) as first, max(d.seq) as last from deleted_events d
        group by d.chain_id, d.member) d
      join underseal.execution e on e.chain_id = d.chain_id and e.member = d.member
      where d.first = 0 or d.last >= e.log_start) then
    raise exception using errcode = 'US004',
      message = 'underseal.event expected to keep the events of an execution, found a DELETE',
      hint = 'Call underseal.truncate_prefix or underseal.delete_chain.';
  end if;
  return null;
end
$$;
comment on function underseal._keep_events() is
  'Refuses to delete recorded events unless their execution is gone or was compacted above them (E1). By the statement: logs are long.';

create or replace trigger event_fixed
before update on underseal.event
for each row execute function underseal._keep_event();
alter table underseal.event enable always trigger event_fixed;
comment on trigger event_fixed on underseal.event is 'Events never change.';

create or replace trigger event_kept
after delete on underseal.event
referencing old table as deleted_events
for each statement execute function underseal._keep_events();
alter table underseal.event enable always trigger event_kept;
comment on trigger event_kept on underseal.event is 'Events are kept.';

create or replace trigger event_no_truncate
before truncate on underseal.event
for each statement execute function underseal._refuse_change();
alter table underseal.event enable always trigger event_no_truncate;
comment on trigger event_no_truncate on underseal.event is 'Events are append-only.';
