-- What the owner of a run may do: renew, mark progress, take a ticket, finish.
create or replace function underseal._run_conflict(
  operation_id uuid, run_token bytea, moment timestamptz, out outcome text, out reason text, out message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'conflict', coalesce(c.reason, 'not-found'),
    coalesce(c.message, format('Expected a run of operation %s, found none. Check the id.', _run_conflict.operation_id))
  from (values (1)) as one (row)
  left join underseal.held_operation o on o.operation_id = _run_conflict.operation_id
  left join lateral (values
    (o.run_token_hash is distinct from sha256(run_token), 'not-your-run',
      'Expected the token of this run, found another. Only the worker that claimed it may go on.'),
    (o.state = 'OUTCOME_UNKNOWN' or (o.state = 'EXECUTING' and o.run_lease_until <= moment), 'lease-lost',
      'Expected a run whose lease is alive, found it passed: the outcome is unknown. Nothing runs it again; the requester may ask again.'),
    (o.state <> 'EXECUTING', 'already-ended', format('Expected a run that is under way, found it %s.', o.state))
  ) as c (applies, reason, message) on o.operation_id is not null and c.applies
  limit 1
$$;
comment on function underseal._run_conflict(uuid, bytea, timestamptz) is 'Why a run''s owner may not go on.';

create or replace function underseal.renew_run(operation_id uuid, run_token bytea)
returns table (outcome text, reason text, message text, lease_until timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz;
  renewed timestamptz;
begin
  perform underseal._require_read_committed();
  perform from underseal.held_operation o where o.operation_id = renew_run.operation_id for no key update;
  moment := underseal.clock();
  update underseal.held_operation o
  set run_lease_until = moment + underseal._run_lease()
  where o.operation_id = renew_run.operation_id
    and o.state = 'EXECUTING'
    and o.run_token_hash = sha256(run_token)
    and o.run_lease_until > moment
  returning o.run_lease_until into renewed;
  if found then
    return query select 'renewed', null::text, null::text, renewed;
  else
    return query select c.outcome, c.reason, c.message, null::timestamptz from underseal._run_conflict(operation_id, run_token, moment) c;
  end if;
end
$$;
comment on function underseal.renew_run(uuid, bytea) is
  'Renews the lease of a run by 15 minutes from now. Outcomes: renewed; conflict (not-found, not-your-run, lease-lost, already-ended) (H8.1).';

create or replace function underseal.record_progress(operation_id uuid, run_token bytea, note text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  op underseal.held_operation;
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  select o.* into op from underseal.held_operation o where o.operation_id = record_progress.operation_id for no key update;
  moment := underseal.clock();
  insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
  select o.operation_id, gen_random_uuid(), o.run_audit_id, 'progress', o.requester, jsonb_build_object('note', note), moment
  from underseal.held_operation o
  where o.operation_id = record_progress.operation_id
    and o.state = 'EXECUTING'
    and o.run_token_hash = sha256(run_token)
    and o.run_lease_until > moment;
  if found then
    return query select 'recorded', null::text, null::text;
  else
    return query select c.outcome, c.reason, c.message from underseal._run_conflict(operation_id, run_token, moment) c;
  end if;
end
$$;
comment on function underseal.record_progress(uuid, bytea, text) is
  'Writes how far a run got, as an audit entry under the run''s; call it in a transaction of its own. note: for people, never a secret. Outcomes: recorded; conflict (not-found, not-your-run, lease-lost, already-ended) (H6.7).';

create or replace function underseal.issue_ticket(operation_id uuid, run_token bytea)
returns table (outcome text, reason text, message text, ticket bytea)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  token bytea := underseal._random_token();
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  perform from underseal.held_operation o where o.operation_id = issue_ticket.operation_id for no key update;
  moment := underseal.clock();
  insert into underseal.replay_ticket (operation_id, run_id, principal, ticket_hash, issued_at)
  select o.operation_id, o.run_id, o.requester, sha256(token), moment
  from underseal.held_operation o
  where o.operation_id = issue_ticket.operation_id
    and o.state = 'EXECUTING'
    and o.run_token_hash = sha256(run_token)
    and o.run_lease_until > moment
  on conflict on constraint replay_ticket_pkey do nothing;
  if found then
    return query select 'issued', null::text, null::text, token;
    return;
  end if;
  return query
  select c.outcome, coalesce(t.reason, c.reason), coalesce(t.message, c.message), null::bytea
  from underseal._run_conflict(operation_id, run_token, moment) c
  left join lateral (
    select 'already-issued' as reason, 'Expected a run without a ticket, found one issued. A run has one ticket.' as message
    from underseal.replay_ticket r
    where r.operation_id = issue_ticket.operation_id and c.reason = 'not-found') t on true;
end
$$;
comment on function underseal.issue_ticket(uuid, bytea) is
  'Issues the one replay ticket of a run, bound to operation, run and requester. Outcomes: issued; conflict (not-found, not-your-run, lease-lost, already-ended, already-issued) (H6.6).';

create or replace function underseal.consume_ticket(operation_id uuid, ticket bytea, principal text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  perform from underseal.held_operation o where o.operation_id = consume_ticket.operation_id for no key update;
  moment := underseal.clock();
  update underseal.replay_ticket t
  set consumed_at = moment
  from underseal.held_operation o
  where t.operation_id = consume_ticket.operation_id
    and o.operation_id = t.operation_id
    and t.consumed_at is null
    and t.ticket_hash = sha256(ticket)
    and t.principal = consume_ticket.principal
    and t.run_id = o.run_id
    and o.state = 'EXECUTING'
    and o.run_lease_until > moment;
  if found then
    return query select 'consumed', null::text, null::text;
  else
    return query select 'refused', 'ticket',
      'Expected an unused replay ticket of this operation, its present run and this principal, found another. The body does not run.'::text;
  end if;
end
$$;
comment on function underseal.consume_ticket(uuid, bytea, text) is
  'Uses a replay ticket, once, while its run is under way. Outcomes: consumed; refused (ticket): used, another operation''s, another principal''s, or after the run (H6.6).';

create or replace function underseal.finish_run(
  operation_id uuid, run_token bytea, ended_as text, why text default null, detail text default null, result jsonb default null)
returns table (outcome text, reason text, message text, state text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  op underseal.held_operation;
  said underseal.outcome;
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if ended_as is null or ended_as not in ('SUCCEEDED', 'FAILED', 'REFUSED', 'OUTCOME_UNKNOWN') then
    raise exception using errcode = 'US001',
      message = format('underseal.finish_run expected SUCCEEDED, FAILED, REFUSED or OUTCOME_UNKNOWN, found %L', ended_as);
  end if;
  perform from underseal.held_operation o where o.operation_id = finish_run.operation_id for no key update;
  moment := underseal.clock();
  update underseal.held_operation o
  set state = ended_as, changed_by = 'worker:' || o.run_worker, changed_at = moment, ended_at = moment,
    outcome_reason = why, outcome_detail = finish_run.detail,
    result = case when ended_as = 'SUCCEEDED' and o.mode = 'ON_APPROVAL' then finish_run.result end,
    sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null
  where o.operation_id = finish_run.operation_id
    and o.state = 'EXECUTING'
    and o.run_token_hash = sha256(run_token)
    and o.run_lease_until > moment
  returning o.* into op;
  if found then
    insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
    values (op.operation_id, gen_random_uuid(), op.run_audit_id, 'result', op.requester,
      jsonb_build_object('state', ended_as, 'reason', why, 'detail', finish_run.detail), moment);
    outcome := 'finished';
    state := op.state;
    return next;
    return;
  end if;

  select c.outcome, c.reason, c.message into said from underseal._run_conflict(operation_id, run_token, moment) c;
  if said.reason = 'lease-lost' then
    perform underseal._end_lost_run(operation_id, moment);
    select o.* into op from underseal.held_operation o where o.operation_id = finish_run.operation_id;
    -- The fact that it came too late, and what it would have said, stays on the timeline (H8.3).
    if not exists (
      select from underseal.held_event e where e.operation_id = op.operation_id and e.type = 'late-finish') then
      insert into underseal.held_event (operation_id, type, actor, from_state, to_state, reason, detail, recorded_at)
      values (op.operation_id, 'late-finish', 'worker:' || op.run_worker, op.state, op.state, 'lease-lost',
        jsonb_build_object('would_be', ended_as), moment);
    end if;
  end if;
  return query select said.outcome, said.reason, said.message, op.state;
end
$$;
comment on function underseal.finish_run(uuid, bytea, text, text, text, jsonb) is
  'Ends a run. ended_as: SUCCEEDED, FAILED, REFUSED or OUTCOME_UNKNOWN; why: one hyphenated word; detail: for people, never a secret; result: JSON, kept for ON_APPROVAL only. Wipes the seal. Outcomes: finished; conflict (not-found, not-your-run, already-ended, lease-lost: the outcome is unknown and the late finish is on the timeline). Errors: US001 (H8.3).';

create or replace function underseal._end_lost_run(operation_id uuid, moment timestamptz) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update underseal.held_operation o
  set state = 'OUTCOME_UNKNOWN', changed_by = 'underseal:sweep', changed_at = moment, ended_at = moment,
    outcome_reason = 'lease-lost',
    outcome_detail = concat('The run was interrupted and is not run again. Ask again once you know how far it got: ', coalesce((
      select format('its last mark is "%s", of %s.', left(a.detail ->> 'note', 1000),
        to_char(a.recorded_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
      from underseal.audit_entry a
      where a.operation_id = o.operation_id and a.parent_id = o.run_audit_id and a.action = 'progress'
      order by a.recorded_at desc limit 1), 'it left no mark of progress.')),
    sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null
  where o.operation_id = _end_lost_run.operation_id
    and o.state = 'EXECUTING'
    and o.run_lease_until <= moment;
  return found;
end
$$;
comment on function underseal._end_lost_run(uuid, timestamptz) is
  'Ends a run whose lease has passed as OUTCOME_UNKNOWN and says how far its audit entries got (H8.2, H8.4).';
