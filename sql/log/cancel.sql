-- Cancelling: at once where nobody drives, else asked of the driver, who cleans up.
create or replace function underseal._cancel_execution(execution_id text, claimed text, why text, by_force boolean)
returns table (outcome text, reason text, message text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  asked record;
  e underseal.execution;
  at_once boolean;
begin
  perform underseal._require_read_committed();
  select l.* into asked from underseal._lock_judged('cancel', execution_id, claimed, '{client,operator}', parent_too => true) l;
  if not asked.allowed then
    return query select d.* from underseal._execution_denied() d;
    return;
  end if;
  e := asked.found_row;
  if length(why) > 1000 then
    return query select 'refused', 'malformed-reason', format('Expected a reason of at most 1000 characters, found %s.', length(why));
    return;
  end if;
  if underseal._is_ended(e.status) then
    return query select 'conflict', 'ended', underseal._append_message('ended');
    return;
  end if;
  -- who has claimed it may be in the middle of its first step
  at_once := coalesce(by_force, false)
    or (e.status = 'pending' and not underseal._is_claimed(e.chain_id, e.member, underseal.clock()));
  if e.cancel_requested and not at_once then
    return query select 'unchanged', null::text, 'That was asked before; its driver has not ended it yet.'::text;
    return;
  end if;

  if at_once then
    -- whoever drives it finds another fence
    update underseal.execution x set fence = x.fence + 1 where x.chain_id = e.chain_id and x.member = e.member;
  end if;
  insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
  values (e.chain_id, e.member, e.head + 1, underseal.clock(),
    case when at_once then 'EXECUTION_CANCELLED' else 'EXECUTION_CANCEL_REQUESTED' end,
    json_build_object('principal', asked.principal, 'reason', why));
  return query select case when at_once then 'cancelled' else 'requested' end, null::text,
    case when at_once then 'Cancelled.' else 'Its driver was asked to clean up and end it.' end;
end
$$;
comment on function underseal._cancel_execution(text, text, text, boolean) is
  'Cancels an execution. Apart from cancel_execution, which has an argument of the name of a result.';

create or replace function underseal.cancel_execution(
  execution_id text, principal text, reason text default null, force boolean default false)
returns table (outcome text, reason text, message text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._cancel_execution(
    cancel_execution.execution_id, cancel_execution.principal, cancel_execution.reason, cancel_execution.force)
$$;
comment on function underseal.cancel_execution(text, text, text, boolean) is
  'Cancels an execution, for its owner or an operator. One that has not begun and that nobody has claimed, or any with force, ends at once and its driver''s fence is taken; otherwise its driver is asked to clean up and end it. reason: at most 1000 characters. Outcomes: cancelled (it has ended); requested; unchanged (that was asked before); conflict (ended); refused (malformed-reason); denied (E6, E12).';
