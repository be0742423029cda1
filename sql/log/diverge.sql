-- A flow whose code has left its log behind is no failure of the execution: its driver parks it and tells operators why.
create or replace function underseal.report_divergence(execution_id text, fence bigint, cause text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  e underseal.execution;
  flaw text;
begin
  perform underseal._require_read_committed();
  perform from underseal.execution x where x.chain_id = chain and x.member = me for no key update;
  select x.* into e from underseal.execution x where x.chain_id = chain and x.member = me;
  flaw := case
    when e.chain_id is null then 'not-found'
    when e.fence is distinct from report_divergence.fence then 'stale-fence'
    when underseal._is_ended(e.status) then 'ended' end;
  if flaw is not null then
    return query select case when flaw = 'not-found' then flaw else 'conflict' end, nullif(flaw, 'not-found'),
      underseal._append_message(flaw);
    return;
  end if;
  if length(cause) > 1000 then
    return query select 'refused', 'too-large', format('Expected a cause of at most 1000 characters, found %s.', length(cause));
    return;
  end if;
  perform underseal._report(underseal._execution_id(chain, me), 'flow-diverged', coalesce(cause, 'no cause was given'));
  return query select 'reported', null::text, 'Operators are told.'::text;
end
$$;
comment on function underseal.report_divergence(text, bigint, text) is
  'Tells operators (report flow-diverged) that the code of a flow has left the log of one of its executions behind, for the driver that parks it, under its fence. cause: what was expected and what was found, at most 1000 characters and no payload. Outcomes: reported; not-found; conflict (stale-fence, ended); refused (too-large) (E5).';
