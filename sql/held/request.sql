-- A request: judged, then held.
create or replace function underseal.begin_request(type text, version integer, principal text)
returns table (
  outcome text, reason text, message text, effective_principal text, mode text, parameters jsonb, policy text,
  policy_digest bytea, salted boolean, hold_for bigint, run_within bigint, sql_estimate text, "now" timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{client}', principal);
  refusal underseal.outcome;
  kind underseal.operation_type;
begin
  if me is null then
    refusal := underseal._denied();
  else
    kind := underseal._type_in_force(type);
    refusal := underseal._type_refusal(kind, type, version);
  end if;
  if refusal.outcome is not null then
    return query select refusal.outcome, refusal.reason, refusal.message, null::text, null::text, null::jsonb, null::text,
      null::bytea, null::boolean, null::bigint, null::bigint, null::text, underseal.clock();
  else
    return query select 'ready', null::text, null::text, me, kind.mode, kind.parameters, kind.policy, kind.policy_digest,
      kind.salted, extract(epoch from kind.hold_for)::bigint, extract(epoch from kind.run_within)::bigint,
      kind.sql_estimate, underseal.clock();
  end if;
end
$$;
comment on function underseal.begin_request(text, integer, text) is
  'What a client needs to seal a request: the type''s schema, mode, policy and durations in seconds, the principal it acts for, and the database instant that goes into the seal. Writes nothing. Outcomes: ready; refused (unknown-type, version-changed, provider-disarmed); denied.';

create or replace function underseal._type_in_force(type text) returns underseal.operation_type
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  kind underseal.operation_type;
begin
  select t.* into kind from underseal.operation_type t
  where t.type = _type_in_force.type
  order by t.version desc limit 1;
  return kind;
end
$$;
comment on function underseal._type_in_force(text) is 'The version of a type that is in force, the highest; null where there is none.';

create or replace function underseal._type_refusal(kind underseal.operation_type, type text, version integer,
  out outcome text, out reason text, out message text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if kind.type is null then
    outcome := 'refused';
    reason := 'unknown-type';
    message := format('Expected a registered operation type, found %s. Register it, or correct the name.', type);
  elsif kind.version is distinct from _type_refusal.version then
    outcome := 'refused';
    reason := 'version-changed';
    message := format('Expected %s version %s, found version %s. Request again with the version in force.', type, kind.version, version);
  elsif not kind.armed then
    outcome := 'refused';
    reason := 'provider-disarmed';
    message := format('Expected %s to be armed, found it switched off. Ask an operator; nothing runs unheld meanwhile.', type);
  end if;
end
$$;
comment on function underseal._type_refusal(underseal.operation_type, text, integer) is
  'Why the version of a type cannot be requested now, given the version in force; a null outcome if it can.';

create or replace function underseal.request_operation(
  operation_id uuid, type text, version integer, params_hash bytea, principal text, auth_kind text, token_id text,
  policy_digest bytea, state_key text, effect text, redacted text, sealed_payload jsonb,
  fingerprint bytea, fingerprint_key_id text, older_fingerprints bytea[] default '{}')
returns table (
  outcome text, reason text, message text, held_id uuid, state text, mode text, row_version bigint, held_hash bytea,
  requested_at timestamptz, expires_at timestamptz, live_payload jsonb, audit_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{client}', principal);
  kind underseal.operation_type;
  op underseal.held_operation;
  said underseal.outcome;
  leak text;
  tried boolean := false;
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if me is null then
    said := underseal._denied();
    outcome := said.outcome;
    reason := said.reason;
    message := said.message;
    return next;
    return;
  end if;
  kind := underseal._type_in_force(type);
  said := underseal._type_refusal(kind, type, version);
  if said.outcome is null and kind.policy_digest is distinct from request_operation.policy_digest then
    said := row('conflict'::text, 'policy-changed'::text,
      format('Expected the policy in force for %s, found another: it changed while the request was made. Begin the request again.', type));
  end if;
  if said.outcome is null and greatest(octet_length(redacted), octet_length(effect), 64 * octet_length(state_key)) > 65536 then
    said := row('refused'::text, 'too-large'::text,
      format('Expected a redacted copy and an effect of at most 65536 bytes and a state key of at most 1024, found %s, %s and %s. Show approvers less.',
        octet_length(redacted), octet_length(effect), octet_length(state_key)));
  end if;
  if said.outcome is null then
    leak := underseal._redaction_leak(kind.parameters, request_operation.redacted::jsonb);
    if leak is not null then
      said := row('refused'::text, 'redaction-leak'::text,
        format('Expected a redacted copy without secret or undeclared members, found one at %s. Correct the redaction of %s, or raise its version if its parameters have changed.', leak, type));
    end if;
  end if;
  if said.outcome is not null then
    outcome := said.outcome;
    reason := said.reason;
    message := said.message;
    return next;
    return;
  end if;

  audit_id := gen_random_uuid();
  loop
    -- The insert itself finds an open duplicate under the same key, so only an older key is looked for beforehand.
    if tried or older_fingerprints <> '{}' then
      select o.* into op from underseal.held_operation o
      where o.fingerprint = any (request_operation.older_fingerprints || request_operation.fingerprint)
        and o.ended_at is null
      limit 1;
      if found and op.requester <> me then
        perform underseal._report(op.operation_id::text, 'foreign-fingerprint',
          'Expected the fingerprint of its own requester, found one that another requester''s request has. Somebody edited the row.');
        return query select 'conflict', 'fingerprint-taken',
          'Expected a fingerprint of your own, found it taken. Ask an operator to run underseal doctor.',
          null::uuid, null::text, null::text, null::bigint, null::bytea, null::timestamptz, null::timestamptz, null::jsonb, null::uuid;
        return;
      elsif found then
        -- One that time has ended is no duplicate, though no sweep has said so yet. Only such a one is locked, and judged anew.
        if (case op.state when 'HELD' then op.expires_at when 'APPROVED' then op.run_deadline else op.run_lease_until end)
          <= underseal.clock() then
          select o.* into op from underseal.held_operation o where o.operation_id = op.operation_id for no key update;
          moment := underseal.clock();
          continue when op.ended_at is not null;
          continue when underseal._end_overdue(op.operation_id, moment) or underseal._end_lost_run(op.operation_id, moment);
        end if;
        return query select 'duplicate', null::text,
          format('This is already open as operation %s, %s.', op.operation_id, op.state),
          op.operation_id, op.state, op.mode, op.row_version, op.params_hash, op.requested_at, op.expires_at,
          op.sealed_payload, op.request_audit_id;
        return;
      end if;
    end if;
    if tried then
      perform from underseal.held_operation o where o.operation_id = request_operation.operation_id;
      if found then
        return query select 'conflict', 'id-taken',
          format('Expected a new operation id, found %s in use. Choose a random id and seal again.', request_operation.operation_id),
          null::uuid, null::text, null::text, null::bigint, null::bytea, null::timestamptz, null::timestamptz, null::jsonb, null::uuid;
        return;
      end if;
    end if;
    moment := underseal.clock();
    insert into underseal.held_operation as o (
      operation_id, type, type_version, mode, requester, auth_kind, token_id, params_hash, policy_digest,
      votes_required, run_within, state_key, requested_at, expires_at, request_audit_id, effect, redacted, row_version,
      state, changed_by, changed_at, fingerprint, fingerprint_key_id, sealed_payload, payload_key_id)
    values (
      request_operation.operation_id, kind.type, kind.version, kind.mode, me, request_operation.auth_kind,
      request_operation.token_id, request_operation.params_hash, kind.policy_digest,
      kind.votes_required, kind.run_within, request_operation.state_key, moment, moment + kind.hold_for, audit_id,
      request_operation.effect, request_operation.redacted, 1,
      'HELD', me, moment, request_operation.fingerprint, request_operation.fingerprint_key_id,
      request_operation.sealed_payload, request_operation.sealed_payload ->> 'kid')
    on conflict do nothing;
    exit when found;
    -- Somebody was faster: with the same request, or with the same id.
    tried := true;
  end loop;

  insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
  values (request_operation.operation_id, audit_id, null, 'request', me,
    jsonb_build_object('type', kind.type, 'version', kind.version, 'params_hash', encode(params_hash, 'hex'),
      'auth_kind', auth_kind), moment);
  outcome := 'held';
  held_id := operation_id;
  state := 'HELD';
  mode := kind.mode;
  row_version := 1;
  held_hash := params_hash;
  requested_at := moment;
  expires_at := moment + kind.hold_for;
  message := format('Held until %s for %s.', to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
    case kind.votes_required when 1 then 'one approval' else format('%s approvals', kind.votes_required) end);
  return next;
end
$$;
comment on function underseal.request_operation(uuid, text, integer, bytea, text, text, text, bytea, text, text, text, jsonb, bytea, text, bytea[]) is
  'Holds a sealed request. params_hash covers the canonical parameters; redacted and effect are canonical JSON an approver may see; sealed_payload is the envelope of format held-payload-v1; older_fingerprints are the request''s fingerprints under the other live keys. No plaintext parameter is ever an argument. Outcomes: held; duplicate (held_id is the live row, live_payload its seal, to be confirmed byte for byte); conflict (policy-changed, id-taken, fingerprint-taken); refused (unknown-type, version-changed, provider-disarmed, too-large, redaction-leak); denied.';
