-- A log is only ever appended to. What may go is what was compacted, and what belonged to an execution that is gone.
create or replace function underseal._keep_event() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  log_start bigint;
begin
  if tg_op = 'UPDATE' then
    -- adopt_log: a number that this cluster has not reached was given by another
    if old.txn >= pg_snapshot_xmax(pg_current_snapshot()) and new.txn = pg_current_xact_id()
      and (new.chain_id, new.member, new.seq, new.recorded_at, new.type, new.data::text, new.metadata)
        is not distinct from (old.chain_id, old.member, old.seq, old.recorded_at, old.type, old.data::text, old.metadata) then
      return new;
    end if;
    raise exception using errcode = 'US004',
      message = 'underseal.event expected to be appended to, found an UPDATE',
      hint = 'What was recorded is history. Append what is true now.';
  end if;
  log_start := (
    select e.log_start from underseal.execution e where e.chain_id = old.chain_id and e.member = old.member);
  -- of an execution that is there, nothing goes but what lies between its start and what a snapshot left
  if old.seq > 0 and old.seq < log_start or log_start is null then
    return old;
  end if;
  raise exception using errcode = 'US004',
    message = 'underseal.event expected to keep the events of an execution, found a DELETE',
    hint = 'Call underseal.truncate_prefix or underseal.delete_chain.';
end
$$;
comment on function underseal._keep_event() is
  'Refuses a change of a recorded event, and its deletion unless its execution is gone or was compacted above it (E1). Judged by data alone.';

create or replace trigger event_kept
before update or delete on underseal.event
for each row execute function underseal._keep_event();
alter table underseal.event enable always trigger event_kept;
comment on trigger event_kept on underseal.event is 'Events are append-only.';

create or replace trigger event_no_truncate
before truncate on underseal.event
for each statement execute function underseal._refuse_change();
alter table underseal.event enable always trigger event_no_truncate;
comment on trigger event_no_truncate on underseal.event is 'Events are append-only.';
