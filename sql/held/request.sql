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
    select d.outcome, d.reason, d.message into refusal from underseal._denied() d;
  else
    select t.* into kind from underseal.operation_type t
    where t.type = begin_request.type and t.version = begin_request.version;
    select r.outcome, r.reason, r.message into refusal from underseal._type_refusal(kind, type, version) r;
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

create or replace function underseal._type_refusal(kind underseal.operation_type, type text, version integer,
  out outcome text, out reason text, out message text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  current_version integer := underseal._current_version(type);
begin
  if current_version is null then
    outcome := 'refused';
    reason := 'unknown-type';
    message := format('Expected a registered operation type, found %s. Register it, or correct the name.', type);
  elsif kind.type is null or kind.version <> current_version then
    outcome := 'refused';
    reason := 'version-changed';
    message := format('Expected %s version %s, found version %s. Request again with the version in force.', type, current_version, version);
  elsif not kind.armed then
    outcome := 'refused';
    reason := 'provider-disarmed';
    message := format('Expected %s to be armed, found it switched off. Ask an operator; nothing runs unheld meanwhile.', type);
  end if;
end
$$;
comment on function underseal._type_refusal(underseal.operation_type, text, integer) is
  'Why a type cannot be requested now; a null outcome if it can.';

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
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if me is null then
    select d.outcome, d.reason, d.message into said from underseal._denied() d;
    return query select said.outcome, said.reason, said.message, null::uuid, null::text, null::text, null::bigint,
      null::bytea, null::timestamptz, null::timestamptz, null::jsonb, null::uuid;
    return;
  end if;
  select t.* into kind from underseal.operation_type t
  where t.type = request_operation.type and t.version = request_operation.version;
  select r.outcome, r.reason, r.message into said from underseal._type_refusal(kind, type, version) r;
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
        format('Expected a redacted copy without secret or undeclared members, found one at %s. Correct the redaction of %s.', leak, type));
    end if;
  end if;
  if said.outcome is not null then
    return query select said.outcome, said.reason, said.message, null::uuid, null::text, null::text, null::bigint,
      null::bytea, null::timestamptz, null::timestamptz, null::jsonb, null::uuid;
    return;
  end if;

  loop
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
      return query select 'duplicate', null::text,
        format('This is already open as operation %s, %s.', op.operation_id, op.state),
        op.operation_id, op.state, op.mode, op.row_version, op.params_hash, op.requested_at, op.expires_at,
        op.sealed_payload, op.request_audit_id;
      return;
    end if;
    moment := underseal.clock();
    insert into underseal.held_operation as o (
      operation_id, type, type_version, mode, requester, auth_kind, token_id, params_hash, policy_digest,
      votes_required, run_within, state_key, requested_at, expires_at, request_audit_id, effect, redacted, row_version,
      state, changed_by, changed_at, fingerprint, fingerprint_key_id, sealed_payload, payload_key_id)
    values (
      request_operation.operation_id, kind.type, kind.version, kind.mode, me, request_operation.auth_kind,
      request_operation.token_id, request_operation.params_hash, kind.policy_digest,
      kind.votes_required, kind.run_within, request_operation.state_key, moment, moment + kind.hold_for, gen_random_uuid(),
      request_operation.effect, request_operation.redacted, 1,
      'HELD', me, moment, request_operation.fingerprint, request_operation.fingerprint_key_id,
      request_operation.sealed_payload, request_operation.sealed_payload ->> 'kid')
    on conflict do nothing
    returning o.* into op;
    exit when found;
    -- Somebody was faster: with the same request, which the next look-up finds, or with the same id.
    perform from underseal.held_operation o where o.operation_id = request_operation.operation_id;
    if found then
      return query select 'conflict', 'id-taken',
        format('Expected a new operation id, found %s in use. Choose a random id and seal again.', request_operation.operation_id),
        null::uuid, null::text, null::text, null::bigint, null::bytea, null::timestamptz, null::timestamptz, null::jsonb, null::uuid;
      return;
    end if;
  end loop;

  insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
  values (op.operation_id, op.request_audit_id, null, 'request', op.requester,
    jsonb_build_object('type', op.type, 'version', op.type_version, 'params_hash', encode(op.params_hash, 'hex'),
      'auth_kind', op.auth_kind), op.requested_at);
  return query select 'held', null::text,
    format('Held until %s for %s.', to_char(op.expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
      case op.votes_required when 1 then 'one approval' else format('%s approvals', op.votes_required) end),
    op.operation_id, op.state, op.mode, op.row_version, op.params_hash, op.requested_at, op.expires_at,
    null::jsonb, op.request_audit_id;
end
$$;
comment on function underseal.request_operation(uuid, text, integer, bytea, text, text, text, bytea, text, text, text, jsonb, bytea, text, bytea[]) is
  'Holds a sealed request. params_hash covers the canonical parameters; redacted and effect are canonical JSON an approver may see; sealed_payload is the envelope of format held-payload-v1; older_fingerprints are the request''s fingerprints under the other live keys. No plaintext parameter is ever an argument. Outcomes: held; duplicate (held_id is the live row, live_payload its seal, to be confirmed byte for byte); conflict (policy-changed, id-taken, fingerprint-taken); refused (unknown-type, version-changed, provider-disarmed, too-large, redaction-leak); denied.';
