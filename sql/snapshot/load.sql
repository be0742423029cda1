create or replace function underseal.load_snapshot(execution_id text, principal text, capability jsonb default null)
returns table (outcome text, reason text, message text, seq bigint, state json)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  judged record;
  newest underseal.snapshot;
begin
  select j.* into judged
  from underseal._judge_access('read', execution_id, load_snapshot.principal, '{client,worker,operator}') j;
  if judged.cause is null then
    -- of the execution that was judged, and of no other that has its id by now
    select s.* into newest from underseal.execution e
    join underseal.snapshot s on s.chain_id = e.chain_id and s.member = e.member
    where e.chain_id = underseal._chain_of(execution_id) and e.member = underseal._member_of(execution_id)
      and e.incarnation = judged.incarnation
    order by s.seq desc
    limit 1;
    judged.cause := case when not underseal.seal_opens(newest.metadata -> 'seal', capability) then 'sealed' end;
  end if;
  if judged.cause is not null then
    perform underseal._record_denial('read', execution_id, judged.principal, judged.cause, judged.known);
    return query select d.*, null::bigint, null::json from underseal._execution_denied() d;
    return;
  end if;
  return query select case when newest.seq is null then 'none' else 'snapshot' end, null::text,
    case when newest.seq is null then underseal._snapshot_message('none') end, newest.seq, newest.state;
end
$$;
comment on function underseal.load_snapshot(text, text, jsonb) is
  'The newest snapshot of an execution: replay goes on with the event after seq. principal: who reads; null for a worker''s own reading. capability: {"ciphers", "covers"}, what the caller opens; a sealed state that it does not open is denied. Outcomes: snapshot; none; denied (E9, E12).';
