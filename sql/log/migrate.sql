-- Moving an execution to another version of its flow: what a deployment does with those that are under way.
create or replace function underseal.migrate_execution(execution_id text, flow_version integer, principal text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  asked record;
  e underseal.execution;
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  select l.* into asked
  from underseal._lock_judged('migrate', execution_id, migrate_execution.principal, '{client,operator}') l;
  if not asked.allowed then
    return query select d.* from underseal._execution_denied() d;
    return;
  end if;
  e := asked.found_row;
  if coalesce(migrate_execution.flow_version, 0) < 1 then
    return query select 'refused', 'malformed-version', 'Expected a version of the flow from 1, found none such.';
    return;
  end if;
  if underseal._is_ended(e.status) then
    return query select 'conflict', 'ended', underseal._append_message('ended');
    return;
  end if;
  if e.flow_version = migrate_execution.flow_version then
    return query select 'unchanged', null::text, 'It is of that version already; nothing is changed.'::text;
    return;
  end if;

  -- whoever drives it finds another fence, and holds no claim that would keep those who serve the new version waiting
  update underseal.execution x set fence = x.fence + 1 where x.chain_id = e.chain_id and x.member = e.member;
  moment := underseal.clock();
  update underseal.wake w
  set claimed_by = null, claimed_until = null, attempts = 0,
    -- a start that was put off by its starter keeps its instant, not one that a worker without the right code put off
    wake_at = case when w.kind = 'drive' and (e.status <> 'pending' or w.holds > 0) then moment else w.wake_at end
  where w.chain_id = e.chain_id and w.member = e.member and w.kind in ('drive', 'timer', 'inbox');
  insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
  values (e.chain_id, e.member, e.head + 1, moment, 'EXECUTION_MIGRATED',
    json_build_object('flow_version', migrate_execution.flow_version, 'principal', asked.principal));
  return query select 'migrated', null::text,
    format('It is of version %s now; a worker that serves it goes on.', migrate_execution.flow_version);
end
$$;
comment on function underseal.migrate_execution(text, integer, text) is
  'Moves an open execution to another version of its flow, a later or an earlier one, for its owner or an operator. Its driver''s fence and claims are taken and it is due at once, a parked one too, which keeps the instants of its waits for when it parks on them again; a start that its starter put off stays so. flow_version: from 1. Outcomes: migrated; unchanged (it is of that version); conflict (ended); refused (malformed-version); denied (E6, E12).';
