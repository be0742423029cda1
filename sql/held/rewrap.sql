-- Key rotation: open rows are sealed anew under the active keys, in batches, while the system runs.
create or replace function underseal.list_rewrap(
  payload_key_id text, decision_key_id text, fingerprint_key_id text, max_rows integer default 100)
returns table (
  outcome text, reason text, message text, operation_id uuid, approver text, requester text, type text, version integer,
  sealed jsonb, held_fingerprint_key_id text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  (select 'payload', null::text, null::text, o.operation_id, null::text, o.requester, o.type, o.type_version,
    o.sealed_payload, o.fingerprint_key_id
   from underseal.held_operation o
   where o.ended_at is null
     and (o.payload_key_id <> list_rewrap.payload_key_id or o.fingerprint_key_id <> list_rewrap.fingerprint_key_id)
   limit max_rows)
  union all
  (select 'decision', null::text, null::text, v.operation_id, v.approver, null::text, null::text, null::integer,
    v.sealed_decision, null::text
   from underseal.held_operation o
   join underseal.held_vote v on v.operation_id = o.operation_id
   where o.ended_at is null and v.decision_key_id <> list_rewrap.decision_key_id
   limit max_rows)
$$;
comment on function underseal.list_rewrap(text, text, text, integer) is
  'Seals of open operations that are not under the active keys named, up to max_rows payloads and as many decisions. A null key id lists nothing of its kind. Outcomes: payload, decision rows (H2.6).';

create or replace function underseal.rewrap_operation(
  operation_id uuid, sealed_before jsonb, sealed_payload jsonb, fingerprint bytea, fingerprint_key_id text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform underseal._require_read_committed();
  update underseal.held_operation o
  set sealed_payload = rewrap_operation.sealed_payload,
    payload_key_id = rewrap_operation.sealed_payload ->> 'kid',
    fingerprint = rewrap_operation.fingerprint,
    fingerprint_key_id = rewrap_operation.fingerprint_key_id
  where o.operation_id = rewrap_operation.operation_id
    and o.ended_at is null
    and o.sealed_payload = rewrap_operation.sealed_before;
  if found then
    return query select 'rewrapped', null::text, null::text;
  else
    return query select 'conflict', 'changed',
      'Expected an open operation with the seal that was read, found it ended or sealed anew. Nothing to do.'::text;
  end if;
end
$$;
comment on function underseal.rewrap_operation(uuid, jsonb, jsonb, bytea, text) is
  'Replaces the seal of an open operation by one of the same plaintext under another key, and its fingerprint likewise; sealed_before is the seal that was read. Outcomes: rewrapped; conflict (changed) (H2.6).';

create or replace function underseal.rewrap_vote(operation_id uuid, approver text, sealed_before jsonb, sealed_decision jsonb)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform underseal._require_read_committed();
  perform from underseal.held_operation o where o.operation_id = rewrap_vote.operation_id for no key update;
  update underseal.held_vote v
  set sealed_decision = rewrap_vote.sealed_decision, decision_key_id = rewrap_vote.sealed_decision ->> 'kid'
  from underseal.held_operation o
  where v.operation_id = rewrap_vote.operation_id
    and v.approver = rewrap_vote.approver
    and v.sealed_decision = rewrap_vote.sealed_before
    and o.operation_id = v.operation_id
    and o.ended_at is null;
  if found then
    return query select 'rewrapped', null::text, null::text;
  else
    return query select 'conflict', 'changed',
      'Expected an open operation with the seal that was read, found it ended or sealed anew. Nothing to do.'::text;
  end if;
end
$$;
comment on function underseal.rewrap_vote(uuid, text, jsonb, jsonb) is
  'Replaces the seal of a decision on an open operation by one of the same plaintext under another key. Outcomes: rewrapped; conflict (changed) (H2.6).';

create or replace function underseal.list_key_ids()
returns table (outcome text, reason text, message text, key_id text, purpose text, open_rows bigint)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select 'key', null::text, null::text, k.key_id, k.purpose, count(*)
  from (
    select o.payload_key_id as key_id, 'payload' as purpose from underseal.held_operation o where o.ended_at is null
    union all
    select o.fingerprint_key_id, 'fingerprint' from underseal.held_operation o where o.ended_at is null
    union all
    select v.decision_key_id, 'decision'
    from underseal.held_operation o join underseal.held_vote v on v.operation_id = o.operation_id
    where o.ended_at is null
  ) k
  group by k.key_id, k.purpose
  order by k.purpose, k.key_id
$$;
comment on function underseal.list_key_ids() is
  'Which keys open operations need, and how many rows each; a key that is not listed may be destroyed. Outcomes: key rows.';
