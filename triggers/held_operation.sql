-- The state machine, for every writer: functions, the table's owner, COPY, MERGE, a replica.
create or replace function underseal._check_held_insert() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.state <> 'HELD' or new.row_version <> 1 then
    raise exception using errcode = 'US002',
      message = format('underseal.held_operation expected a new row to be HELD at row version 1, found %s at %s', new.state, new.row_version),
      hint = 'Call underseal.request_operation.';
  end if;
  if not underseal._is_envelope(new.sealed_payload, 'held-payload-v1') then
    raise exception using errcode = 'US013',
      message = 'underseal.held_operation expected sealed_payload to be an envelope of format held-payload-v1, found something else',
      hint = 'See docs/formats.md.';
  end if;
  perform from underseal.operation_type t
  where t.type = new.type and t.version = new.type_version and t.mode = new.mode;
  if not found then
    raise exception using errcode = 'US001',
      message = format('underseal.held_operation expected a registered type, version and mode, found %s version %s, %s', new.type, new.type_version, new.mode),
      hint = 'Call underseal.register_operation_type.';
  end if;
  return new;
end
$$;
comment on function underseal._check_held_insert() is 'An operation begins HELD, sealed and of a registered type (H3.9).';

create or replace function underseal._check_held_update() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  probe underseal.held_operation;
begin
  if (old.operation_id, old.type, old.type_version, old.mode, old.requester, old.auth_kind, old.token_id, old.params_hash,
      old.policy_digest, old.votes_required, old.run_within, old.state_key, old.requested_at, old.expires_at, old.request_audit_id)
    is distinct from
    (new.operation_id, new.type, new.type_version, new.mode, new.requester, new.auth_kind, new.token_id, new.params_hash,
      new.policy_digest, new.votes_required, new.run_within, new.state_key, new.requested_at, new.expires_at, new.request_audit_id) then
    raise exception using errcode = 'US003',
      message = format('underseal.held_operation expected the identity of %s to stay as it is, found a change', old.operation_id),
      hint = 'What was requested never changes. Cancel it and request again.';
  end if;

  if old.state is distinct from new.state then
    if (old.state, new.state) not in (
      ('HELD', 'APPROVED'), ('HELD', 'REJECTED'), ('HELD', 'CANCELLED'), ('HELD', 'EXPIRED'),
      ('APPROVED', 'EXECUTING'), ('APPROVED', 'CANCELLED'), ('APPROVED', 'EXPIRED'),
      ('EXECUTING', 'SUCCEEDED'), ('EXECUTING', 'FAILED'), ('EXECUTING', 'REFUSED'), ('EXECUTING', 'OUTCOME_UNKNOWN')) then
      raise exception using errcode = 'US002',
        message = format('underseal.held_operation expected a legal change of state, found %s to %s', old.state, new.state),
        hint = 'See docs/held.md for the states.';
    end if;
  elsif old.ended_at is not null and old is distinct from new then
    raise exception using errcode = 'US002',
      message = format('underseal.held_operation expected %s to stay as it ended, %s, found a change', old.operation_id, old.state),
      hint = 'An ended operation is history.';
  end if;

  -- Retention counts from the end, so an end is not dated back; an hour is left to clocks that were set back.
  if old.ended_at is null and new.ended_at is not null
    and (new.ended_at is distinct from new.changed_at or new.ended_at < old.requested_at - interval '1 hour') then
    raise exception using errcode = 'US003',
      message = format('underseal.held_operation expected the end of %s to be dated by the change that ends it, after its request, found %s', old.operation_id, new.ended_at),
      hint = 'Call the functions of schema underseal.';
  end if;

  -- The seal is wiped at the end (a table constraint ties the two), or sealed anew under another key.
  if new.ended_at is null and (old.sealed_payload, old.payload_key_id, old.fingerprint, old.fingerprint_key_id)
    is distinct from (new.sealed_payload, new.payload_key_id, new.fingerprint, new.fingerprint_key_id) then
    probe := new;
    probe.sealed_payload := old.sealed_payload;
    probe.payload_key_id := old.payload_key_id;
    probe.fingerprint := old.fingerprint;
    probe.fingerprint_key_id := old.fingerprint_key_id;
    if probe is distinct from old
      or (old.sealed_payload is distinct from new.sealed_payload and old.payload_key_id = new.payload_key_id)
      or (old.fingerprint is distinct from new.fingerprint and old.fingerprint_key_id = new.fingerprint_key_id)
      or not underseal._is_envelope(new.sealed_payload, 'held-payload-v1') then
      raise exception using errcode = 'US006',
        message = format('underseal.held_operation expected the seal of %s to stay, or to be replaced alone and under another key, found something else', old.operation_id),
        hint = 'Call underseal.rewrap_operation.';
    end if;
  end if;

  -- What approvers see changes only before the first vote, and then the version says so.
  if (old.redacted, old.effect) is distinct from (new.redacted, new.effect) then
    if new.state <> 'HELD' or exists (select from underseal.held_vote v where v.operation_id = old.operation_id) then
      raise exception using errcode = 'US003',
        message = format('underseal.held_operation expected what approvers of %s saw to stay, found a change after a vote', old.operation_id),
        hint = 'Cancel it and request again.';
    end if;
    new.row_version := old.row_version + 1;
  elsif old.row_version is distinct from new.row_version then
    raise exception using errcode = 'US003',
      message = format('underseal.held_operation expected row version %s, found %s without a change of what approvers see', old.row_version, new.row_version);
  end if;

  if (old.approved_at, old.run_deadline) is distinct from (new.approved_at, new.run_deadline)
    and not (old.state = 'HELD' and new.state = 'APPROVED') then
    raise exception using errcode = 'US003',
      message = format('underseal.held_operation expected the run deadline of %s to be set by its approval alone, found a change', old.operation_id);
  end if;
  if (old.run_id, old.run_audit_id, old.run_worker, old.run_token_hash)
    is distinct from (new.run_id, new.run_audit_id, new.run_worker, new.run_token_hash)
    and not (old.state = 'APPROVED' and new.state = 'EXECUTING') then
    raise exception using errcode = 'US003',
      message = format('underseal.held_operation expected the run of %s to be set by its claim alone, found a change', old.operation_id);
  end if;
  if old.run_lease_until is distinct from new.run_lease_until
    and not (new.state = 'EXECUTING' and old.state in ('APPROVED', 'EXECUTING')) then
    raise exception using errcode = 'US003',
      message = format('underseal.held_operation expected the lease of %s to change only while it runs, found a change', old.operation_id);
  end if;
  return new;
end
$$;
comment on function underseal._check_held_update() is
  'Keeps the states, the identity, the seal, the version and the run of an operation, whoever writes (H3.1–H3.4, H2.9).';

create or replace function underseal._check_held_delete() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if old.ended_at is null then
    raise exception using errcode = 'US007',
      message = format('underseal.held_operation expected to keep %s, which is %s, found a DELETE', old.operation_id, old.state),
      hint = 'Open operations are never deleted. Cancel it first.';
  end if;
  if not coalesce(underseal._may_be_purged(old.operation_id), false) then
    raise exception using errcode = 'US007',
      message = format('underseal.held_operation expected to keep %s for 90 days after its end, found a DELETE', old.operation_id),
      hint = 'Call underseal.purge_operations.';
  end if;
  if exists (select from underseal.held_event e where e.operation_id = old.operation_id)
    or exists (select from underseal.held_vote v where v.operation_id = old.operation_id)
    or exists (select from underseal.replay_ticket t where t.operation_id = old.operation_id)
    or exists (select from underseal.held_waiter w where w.operation_id = old.operation_id) then
    raise exception using errcode = 'US007',
      message = format('underseal.held_operation expected the events, votes, tickets and waiters of %s to go first, found some', old.operation_id),
      hint = 'Call underseal.purge_operations.';
  end if;
  return old;
end
$$;
comment on function underseal._check_held_delete() is
  'Open operations are never deleted, ended ones after 90 days and after their events (H3.8).';

-- Every change of state, and every vote, becomes an event. At the origin only: a replica receives the events as rows.
create or replace function underseal._record_held_change() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The event's own trigger gives it its place.
  insert into underseal.held_event (operation_id, type, actor, from_state, to_state, reason, detail, recorded_at)
  values (
    new.operation_id,
    case when tg_op = 'INSERT' then 'requested'
      when old.state = new.state then 'voted'
      when new.state = 'EXECUTING' then 'claimed'
      else replace(lower(new.state), '_', '-') end,
    new.changed_by,
    case when tg_op = 'UPDATE' then old.state end,
    new.state,
    case when new.ended_at is not null then new.outcome_reason end,
    case when new.state = 'APPROVED' then jsonb_build_object('run_deadline', new.run_deadline)
      when new.state = 'EXECUTING' then jsonb_build_object('run_id', new.run_id, 'worker', new.run_worker)
      when new.outcome_detail is not null then jsonb_build_object('detail', new.outcome_detail)
      when tg_op = 'INSERT' then jsonb_build_object('expires_at', new.expires_at) end,
    new.changed_at);
  return null;
end
$$;
comment on function underseal._record_held_change() is 'Writes the event of a change of state or of a vote (H3.5, H3.6).';

-- Judges data at commit, whoever changed the state.
create or replace function underseal._demand_held_event() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from underseal.held_event e
  where e.operation_id = new.operation_id
    and e.to_state = new.state
    and e.from_state is not distinct from case when tg_op = 'UPDATE' then old.state end;
  if not found then
    raise exception using errcode = 'US005',
      message = format('underseal.held_operation expected the event that goes with %s becoming %s, found none', new.operation_id, new.state),
      hint = 'Call the functions of schema underseal; a state does not change without its event.';
  end if;
  if new.state in ('APPROVED', 'REJECTED') then
    if (select count(*) from underseal.held_vote v
        where v.operation_id = new.operation_id and v.row_version = new.row_version
          and v.decision = case new.state when 'APPROVED' then 'approve' else 'reject' end)
      < (case new.state when 'APPROVED' then new.votes_required else 1 end) then
      raise exception using errcode = 'US005',
        message = format('underseal.held_operation expected the votes that make %s %s, found too few', new.operation_id, new.state),
        hint = 'Call underseal.vote.';
    end if;
  end if;
  return null;
end
$$;
comment on function underseal._demand_held_event() is
  'At commit: every change of state has its event, an approval and a rejection have their votes (H3.5).';

create or replace trigger held_operation_check_insert
before insert on underseal.held_operation
for each row execute function underseal._check_held_insert();
alter table underseal.held_operation enable always trigger held_operation_check_insert;
comment on trigger held_operation_check_insert on underseal.held_operation is 'An operation begins HELD.';

create or replace trigger held_operation_check_update
before update on underseal.held_operation
for each row execute function underseal._check_held_update();
alter table underseal.held_operation enable always trigger held_operation_check_update;
comment on trigger held_operation_check_update on underseal.held_operation is 'The state machine and what never changes.';

create or replace trigger held_operation_check_delete
before delete on underseal.held_operation
for each row execute function underseal._check_held_delete();
alter table underseal.held_operation enable always trigger held_operation_check_delete;
comment on trigger held_operation_check_delete on underseal.held_operation is 'Retention.';

create or replace trigger held_operation_no_truncate
before truncate on underseal.held_operation
for each statement execute function underseal._refuse_change();
alter table underseal.held_operation enable always trigger held_operation_no_truncate;
comment on trigger held_operation_no_truncate on underseal.held_operation is 'Operations are never truncated.';

create or replace trigger held_operation_record_insert
after insert on underseal.held_operation
for each row execute function underseal._record_held_change();
comment on trigger held_operation_record_insert on underseal.held_operation is 'Writes the first event, at the origin.';

create or replace trigger held_operation_record_update
after update on underseal.held_operation
for each row
when ((old.state, old.changed_by, old.changed_at) is distinct from (new.state, new.changed_by, new.changed_at))
execute function underseal._record_held_change();
comment on trigger held_operation_record_update on underseal.held_operation is 'Writes the event of a change, at the origin.';

-- There is no REPLACE for a constraint trigger. Its name sorts after the trigger that writes the event, which matters
-- where a transaction has made its constraints immediate.
drop trigger if exists held_operation_recorded on underseal.held_operation;
create constraint trigger held_operation_recorded
after insert or update of state on underseal.held_operation
deferrable initially deferred
for each row execute function underseal._demand_held_event();
alter table underseal.held_operation enable always trigger held_operation_recorded;
comment on trigger held_operation_recorded on underseal.held_operation is 'At commit: no state without its event.';
