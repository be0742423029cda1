-- Compaction: what a snapshot covers may go from the log, but for number 0.
create or replace function underseal.truncate_prefix(execution_id text, before_seq bigint, principal text default null)
returns table (outcome text, reason text, message text, log_start bigint, removed bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  asked record;
  e underseal.execution;
  flaw text;
begin
  perform underseal._require_read_committed();
  select l.* into asked
  from underseal._lock_judged('compact', execution_id, truncate_prefix.principal, '{operator}', system_too => true) l;
  if not asked.allowed then
    return query select d.*, null::bigint, null::bigint from underseal._execution_denied() d;
    return;
  end if;
  e := asked.found_row;
  flaw := case
    -- how it ended stays
    when before_seq is null or before_seq not between 1 and e.head + (not underseal._is_ended(e.status))::integer then 'beyond-head'
    when before_seq > e.log_start and not exists (
      select from underseal.snapshot s
      where s.chain_id = e.chain_id and s.member = e.member and s.seq >= before_seq - 1) then 'no-snapshot' end;
  if flaw is not null then
    return query select 'refused', flaw, case flaw
        when 'no-snapshot' then 'Expected a snapshot that covers what is to go, found none. Save one first.'
        else 'Expected the number of an event of this log above 0, or the next one where it has not ended, found another.' end,
      e.log_start, null::bigint;
    return;
  end if;
  if before_seq <= e.log_start then
    return query select 'unchanged', null::text, 'Nothing below that number was left but number 0.'::text, e.log_start, 0::bigint;
    return;
  end if;
  update underseal.execution x set log_start = before_seq where x.chain_id = e.chain_id and x.member = e.member;
  delete from underseal.event v
  where v.chain_id = e.chain_id and v.member = e.member and v.seq > 0 and v.seq < before_seq;
  get diagnostics removed = row_count;
  return query select 'truncated', null::text, null::text, before_seq, truncate_prefix.removed;
end
$$;
comment on function underseal.truncate_prefix(text, bigint, text) is
  'Removes the events below before_seq, except number 0, from a log that has a snapshot at before_seq - 1 or later; the end of one that has ended stays. principal: the operator; null for a worker. Result: the lowest number above 0 that is kept, and how many events went. Outcomes: truncated; unchanged (they were gone); refused (no-snapshot, beyond-head); denied (E1, E9, E12).';
