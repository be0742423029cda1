-- A run is claimed once. Rows are found and locked in one statement and judged in the next, by a
-- clock that is read after the locks are held.
create or replace function underseal._serves(
  operation_id uuid, type text, type_version integer, payload_key_id text, types text[], versions integer[], key_ids text[])
returns boolean
language sql stable
as $$
  select payload_key_id = any (key_ids)
    and not exists (
      select from underseal.held_vote v
      where v.operation_id = _serves.operation_id and v.decision_key_id <> all (key_ids))
    and exists (
      select from unnest(types, versions) as served (type, version)
      where served.type = _serves.type
        -- A version that is no longer in force can be refused by whoever knows the type.
        and (served.version = _serves.type_version or _serves.type_version <> underseal._current_version(_serves.type)))
$$;
comment on function underseal._serves(uuid, text, integer, text, text[], integer[], text[]) is
  'Whether a worker with these types and keys can serve an operation (H5.5).';

create or replace function underseal._random_token() returns bytea
language sql volatile
as $$ select sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) $$;
comment on function underseal._random_token() is 'A token of 32 bytes from the server''s strong random source.';

create or replace function underseal._is_readable(instant timestamptz) returns boolean
language sql immutable
as $$ select instant between timestamptz '0001-01-02 00:00:00Z' and timestamptz '9999-12-30 00:00:00Z' $$;
comment on function underseal._is_readable(timestamptz) is 'Whether every language''s calendar has this instant: no infinity, and a year from 1 to 9999.';

create or replace function underseal._claim(
  id uuid, waits boolean, mode text, worker text, types text[], versions integer[], key_ids text[])
returns table (
  outcome text, reason text, message text, operation_id uuid, run_id uuid, run_token bytea, claimed_at timestamptz,
  type text, version integer, current_version integer, armed boolean, run_mode text, requester text, auth_kind text,
  token_id text, params_hash bytea, policy_digest bytea, policy_in_force text, policy_in_force_digest bytea,
  eligible text[], state_key text, effect text, redacted text, row_version bigint, votes_required integer,
  requested_at timestamptz, expires_at timestamptz, approved_at timestamptz, run_deadline timestamptz,
  lease_until timestamptz, sealed_payload jsonb, votes jsonb, request_audit_id uuid, run_audit_id uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz;
  op underseal.held_operation;
  approvals jsonb;
  readable boolean;
begin
  perform underseal._commit_durably();
  -- A row of its own subtransaction: one that was damaged by hand stops nobody else's run. The lock is taken inside, since
  -- a row locked by a transaction and changed by its subtransaction costs a multixact.
  begin
    if waits then
      perform from underseal.held_operation o where o.operation_id = id for no key update;
    else
      perform from underseal.held_operation o where o.operation_id = id for no key update skip locked;
      if not found then
        return;
      end if;
    end if;
    run_token := underseal._random_token();
    moment := underseal.clock();
    update underseal.held_operation o
    set state = 'EXECUTING', changed_by = 'worker:' || worker, changed_at = moment,
      run_id = gen_random_uuid(), run_audit_id = gen_random_uuid(), run_worker = worker,
      run_token_hash = sha256(run_token), run_lease_until = moment + underseal._run_lease()
    where o.operation_id = id
      and o.state = 'APPROVED'
      and o.mode = _claim.mode
      and o.run_deadline > moment
      and o.approved_at + (
        select t.run_within from underseal.operation_type t where t.type = o.type and t.version = o.type_version) > moment
      and underseal._serves(o.operation_id, o.type, o.type_version, o.payload_key_id, types, versions, key_ids)
    returning o.* into op;
    if not found then
      return;
    end if;
    select coalesce(jsonb_agg(jsonb_build_object('approver', v.approver, 'decision', v.decision,
          'params_hash', encode(v.params_hash, 'hex'), 'row_version', v.row_version, 'cast_at', v.cast_at,
          'sealed_decision', v.sealed_decision) order by v.cast_at, v.approver), '[]'),
        jsonb_agg(jsonb_build_object('approver', v.approver, 'cast_at', v.cast_at) order by v.cast_at, v.approver)
          filter (where v.decision = 'approve'),
        coalesce(array_agg(v.approver)
          filter (where underseal._is_eligible(op.type, op.type_version, v.approver, op.operation_id)), '{}'),
        coalesce(bool_and(underseal._is_readable(v.cast_at) is true), true)
      into votes, approvals, eligible, readable
    from underseal.held_vote v where v.operation_id = op.operation_id;
    -- The worker's driver would fail on such an instant, and every run claimed together with this one would be lost.
    -- One that was requested later than now could not be ended.
    if (op.requested_at <= moment + interval '1 hour' and readable and underseal._is_readable(op.requested_at) and underseal._is_readable(op.expires_at)
        and underseal._is_readable(op.approved_at) and underseal._is_readable(op.run_deadline)) is not true then
      raise exception using errcode = 'datetime_field_overflow', message = 'an instant is beyond the years 1 to 9999, or the request is from the future';
    end if;
    select t.armed, t.policy, t.policy_digest, underseal._current_version(t.type)
      into armed, policy_in_force, policy_in_force_digest, current_version
    from underseal.operation_type t
    where t.type = op.type and t.version = op.type_version;
    insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
    values (op.operation_id, op.run_audit_id, op.request_audit_id, 'run', op.requester,
      jsonb_build_object('run_id', op.run_id, 'worker', worker, 'approved_at', op.approved_at, 'approvals', approvals),
      moment);
    -- Column by column: a query that returns the row costs several times as much.
    outcome := 'claimed';
    operation_id := op.operation_id;
    run_id := op.run_id;
    claimed_at := moment;
    type := op.type;
    version := op.type_version;
    run_mode := op.mode;
    requester := op.requester;
    auth_kind := op.auth_kind;
    token_id := op.token_id;
    params_hash := op.params_hash;
    policy_digest := op.policy_digest;
    state_key := op.state_key;
    effect := op.effect;
    redacted := op.redacted;
    row_version := op.row_version;
    votes_required := op.votes_required;
    requested_at := op.requested_at;
    expires_at := op.expires_at;
    approved_at := op.approved_at;
    run_deadline := op.run_deadline;
    lease_until := op.run_lease_until;
    sealed_payload := op.sealed_payload;
    request_audit_id := op.request_audit_id;
    run_audit_id := op.run_audit_id;
    return next;
  exception when others then
    if underseal._is_no_fault_of_a_row(sqlstate) then
      raise;
    end if;
    outcome := 'conflict';
    reason := 'damaged';
    message := format('Operation %s could not be claimed (SQLSTATE %s): its rows were edited by hand. Run underseal doctor; once mended, underseal.clear_report lets workers try it again.', id, sqlstate);
    perform underseal._report(id::text, 'claim-failed', message);
    return next;
  end;
end
$$;
comment on function underseal._claim(uuid, boolean, text, text, text[], integer[], text[]) is
  'Locks an operation (waits: behind who holds it; else it is passed by) and claims its run, judged now; no row if it may not be claimed.';

create or replace function underseal._run_lease() returns interval
language sql immutable
as $$ select interval '15 minutes' $$;
comment on function underseal._run_lease() is 'How long a claim or a renewal keeps a run alive: 15 minutes (H8.1).';

create or replace function underseal._claim_conflict(
  operation_id uuid, types text[], versions integer[], key_ids text[], out outcome text, out reason text, out message text)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select 'conflict', coalesce(c.reason, 'unserved'), coalesce(c.message,
    'Expected an operation that this worker can serve, found that it lacks the provider or a key.')
  from (values (1)) as one (row)
  left join underseal.held_operation o on o.operation_id = _claim_conflict.operation_id
  left join underseal.operation_type t on t.type = o.type and t.version = o.type_version
  left join lateral (values
    (o.operation_id is null, 'not-found',
      format('Expected operation %s, found none. Check the id.', _claim_conflict.operation_id)),
    (o.state <> 'APPROVED', 'not-approved',
      format('Expected an approved operation that nobody runs, found it %s.', o.state)),
    (o.run_deadline <= underseal.clock() or o.approved_at + t.run_within <= underseal.clock(), 'expired',
      'Expected an operation before its run deadline, found it past. The requester may request again.'),
    (underseal._serves(o.operation_id, o.type, o.type_version, o.payload_key_id, types, versions, key_ids), 'other-mode',
      format('Expected an operation of the other mode, found %s: BY_REQUESTER runs only when its requester asks again.', o.mode))
  ) as c (applies, reason, message) on c.applies
  limit 1
$$;
comment on function underseal._claim_conflict(uuid, text[], integer[], text[]) is 'Why an operation could not be claimed, told to a worker.';

create or replace function underseal.claim_runs(
  worker text, types text[], versions integer[], key_ids text[], max_runs integer default 1, only_id uuid default null)
returns table (
  outcome text, reason text, message text, operation_id uuid, run_id uuid, run_token bytea, claimed_at timestamptz,
  type text, version integer, current_version integer, armed boolean, mode text, requester text, auth_kind text,
  token_id text, params_hash bytea, policy_digest bytea, policy_in_force text, policy_in_force_digest bytea,
  eligible text[], state_key text, effect text, redacted text, row_version bigint, votes_required integer,
  requested_at timestamptz, expires_at timestamptz, approved_at timestamptz, run_deadline timestamptz,
  lease_until timestamptz, sealed_payload jsonb, votes jsonb, request_audit_id uuid, run_audit_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- Its queries have one good plan each; planning the search anew for every instant costs more than the search.
set plan_cache_mode = force_generic_plan
as $$
declare
  id uuid;
  claimed integer := 0;
  moment timestamptz := underseal.clock();
begin
  perform underseal._require_read_committed();
  if underseal._effective_principal('{worker}', worker) is null then
    select d.outcome, d.reason, d.message into outcome, reason, message from underseal._denied() d;
    return next;
    return;
  end if;
  if only_id is not null then
    return query select c.* from underseal._claim(only_id, true, 'ON_APPROVAL', worker, types, versions, key_ids) c;
    if not found then
      select c.outcome, c.reason, c.message into outcome, reason, message
      from underseal._claim_conflict(only_id, types, versions, key_ids) c;
      return next;
    end if;
    return;
  end if;
  -- What is found is a candidate, judged under its lock; more than max_runs, since other workers hold some of them.
  for id in
    select o.operation_id from underseal.held_operation o
    where o.state = 'APPROVED' and o.run_deadline > moment and o.mode = 'ON_APPROVAL'
      and underseal._serves(o.operation_id, o.type, o.type_version, o.payload_key_id, types, versions, key_ids)
      and not exists (
        select from underseal.operator_report r where r.subject = o.operation_id::text and r.kind = 'claim-failed')
    order by o.run_deadline
    limit 2 * max_runs + 32
  loop
    exit when claimed >= max_runs;
    return query
    select c.* from underseal._claim(id, false, 'ON_APPROVAL', worker, types, versions, key_ids) c
    where c.outcome = 'claimed';
    if found then
      claimed := claimed + 1;
    end if;
  end loop;
end
$$;
comment on function underseal.claim_runs(text, text[], integer[], text[], integer, uuid) is
  'Claims approved ON_APPROVAL operations that this worker can serve: up to max_runs, the nearest deadline first, past rows that others hold; or the one named by only_id. types and versions: the providers it has; key_ids: the payload and decision keys it has. run_token is returned here and nowhere else; the lease is 15 minutes. Outcomes: claimed rows; conflict (not-found, not-approved, expired, other-mode, unserved, damaged) with only_id; denied. A row that cannot be claimed because it was edited by hand is reported (claim-failed) and left out until the report is cleared (H5).';

create or replace function underseal.claim_resubmission(
  operation_id uuid, principal text, auth_kind text, token_id text, worker text, types text[], versions integer[], key_ids text[])
returns table (
  outcome text, reason text, message text, held_id uuid, run_id uuid, run_token bytea, claimed_at timestamptz,
  type text, version integer, current_version integer, armed boolean, mode text, requester text, held_auth_kind text,
  held_token_id text, params_hash bytea, policy_digest bytea, policy_in_force text, policy_in_force_digest bytea,
  eligible text[], state_key text, effect text, redacted text, row_version bigint, votes_required integer,
  requested_at timestamptz, expires_at timestamptz, approved_at timestamptz, run_deadline timestamptz,
  lease_until timestamptz, sealed_payload jsonb, votes jsonb, request_audit_id uuid, run_audit_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{worker}', principal);
  found_id uuid;
begin
  perform underseal._require_read_committed();
  if me is null then
    select d.outcome, d.reason, d.message into outcome, reason, message from underseal._denied() d;
    return next;
    return;
  end if;
  -- Anybody else, another kind of authentication or another token learns nothing (H7.2, H7.4).
  select o.operation_id into found_id from underseal.held_operation o
  where o.operation_id = claim_resubmission.operation_id
    and o.requester = me
    and o.auth_kind = claim_resubmission.auth_kind
    and (o.token_id is null or o.token_id = claim_resubmission.token_id);
  if found_id is null then
    select n.outcome, n.reason, n.message into outcome, reason, message
    from underseal._not_found(claim_resubmission.operation_id) n;
    return next;
    return;
  end if;
  return query select c.* from underseal._claim(found_id, true, 'BY_REQUESTER', worker, types, versions, key_ids) c;
  if not found then
    select c.outcome, c.reason, c.message into outcome, reason, message
    from underseal._claim_conflict(found_id, types, versions, key_ids) c;
    return next;
  end if;
end
$$;
comment on function underseal.claim_resubmission(uuid, text, text, text, text, text[], integer[], text[]) is
  'Claims the run of an approved BY_REQUESTER operation for its own requester, under the same auth kind and, where the request was bound to a token, the same token. Columns as claim_runs. Outcomes: claimed; conflict (not-approved, expired, other-mode, unserved, damaged); not-found to everybody else; denied (H7).';

create or replace function underseal.report_unserved(worker text, types text[], versions integer[], key_ids text[])
returns table (outcome text, reason text, message text, operation_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  op record;
  due boolean;
begin
  if underseal._effective_principal('{worker}', worker) is null then
    select d.outcome, d.reason, d.message into outcome, reason, message from underseal._denied() d;
    return next;
    return;
  end if;
  for op in
    select o.operation_id, o.type, o.type_version,
      o.type = any (types) as knows_type
    from underseal.held_operation o
    where o.state = 'APPROVED' and o.run_deadline > (select underseal.clock()) and o.mode = 'ON_APPROVAL'
      and not underseal._serves(o.operation_id, o.type, o.type_version, o.payload_key_id, types, versions, key_ids)
    order by o.run_deadline
    limit 100
  loop
    reason := case when op.knows_type then 'unserved-key' else 'unserved-type' end;
    message := format('Operation %s (%s version %s) is approved, and worker %s lacks %s. Give it one, or run a worker that has it before the run deadline.',
      op.operation_id, op.type, op.type_version, worker,
      case when op.knows_type then 'the key or the provider''s version' else 'the provider' end);
    due := underseal._report(op.operation_id::text, reason, message);
    outcome := case when due then 'reported' else 'quiet' end;
    operation_id := op.operation_id;
    return next;
  end loop;
end
$$;
comment on function underseal.report_unserved(text, text[], integer[], text[]) is
  'Reports approved operations that this worker cannot serve; they stay APPROVED. Outcomes: reported the first time and then every 16th, quiet otherwise; denied (H5.5).';
