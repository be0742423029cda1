-- What came of an execution outside it: noted in its log, also after its end.
create or replace function underseal._record_outcome(execution_id text, came_of_it json, claimed text)
returns table (outcome text, reason text, message text, seq bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  asked record;
  flaw text;
begin
  perform underseal._require_read_committed();
  select l.* into asked from underseal._lock_judged('outcome', execution_id, claimed, '{client,operator}') l;
  if not asked.allowed then
    return query select d.*, null::bigint from underseal._execution_denied() d;
    return;
  end if;
  flaw := underseal._value_flaw(came_of_it);
  if flaw is not null then
    return query select 'refused', flaw, underseal._append_message(flaw), null::bigint;
    return;
  end if;
  return query
  insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
  values ((asked.found_row).chain_id, (asked.found_row).member, (asked.found_row).head + 1, underseal.clock(), 'OUTCOME_RECORDED',
    json_build_object('outcome', coalesce(came_of_it, 'null'), 'principal', asked.principal))
  returning 'recorded', null::text, null::text, event.seq;
end
$$;
comment on function underseal._record_outcome(text, json, text) is
  'Records what came of an execution. Apart from record_outcome, which has an argument of the name of a result.';

create or replace function underseal.record_outcome(execution_id text, outcome json, principal text)
returns table (outcome text, reason text, message text, seq bigint)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._record_outcome(record_outcome.execution_id, record_outcome.outcome, record_outcome.principal)
$$;
comment on function underseal.record_outcome(text, json, text) is
  'Records what came of an execution, for its owner or an operator, whatever its status; it changes nothing else. outcome: any JSON of at most 1 MiB, null for JSON null. Outcomes: recorded, with the number of the event; refused (too-large, envelope, unreadable); denied (E6, E12).';
