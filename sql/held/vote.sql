-- A vote: lock, then one conditional update; no row back is a conflict that says why.
create or replace function underseal.vote(
  operation_id uuid, principal text, decision text, note text, params_hash bytea, row_version bigint, sealed_decision jsonb)
returns table (
  outcome text, reason text, message text, state text, votes integer, votes_required integer, cast_at timestamptz,
  run_deadline timestamptz, mode text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{approver}', principal);
  op underseal.held_operation;
  kind underseal.operation_type;
  said underseal.outcome;
  needed integer;
  counted integer;
  next_state text;
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if decision is null or decision not in ('approve', 'reject') then
    raise exception using errcode = 'US001',
      message = format('underseal.vote expected approve or reject, found %L', decision);
  end if;
  -- Who may ask is judged without a lock first: a denied call must hold nothing (H4.7).
  if me is null then
    said := underseal._denied();
  else
    select o.* into op from underseal.held_operation o where o.operation_id = vote.operation_id;
    if not found or not (op.requester = me or underseal._is_eligible(op.type, op.type_version, me, op.operation_id)) then
      select n.outcome, n.reason, n.message into said from underseal._not_found(operation_id) n;
    elsif decision = 'reject' and coalesce(length(trim(note)), 0) = 0 then
      said := row('refused'::text, 'reason-required'::text,
        'Expected a reason for the rejection, found none. Say why, the requester will read it.'::text);
    end if;
  end if;
  if said.outcome is null then
    select o.* into op from underseal.held_operation o where o.operation_id = vote.operation_id for no key update;
    if not found or not (op.requester = me or underseal._is_eligible(op.type, op.type_version, me, op.operation_id)) then
      select n.outcome, n.reason, n.message into said from underseal._not_found(operation_id) n;
    end if;
  end if;
  if said.outcome is not null then
    outcome := said.outcome;
    reason := said.reason;
    message := said.message;
    return next;
    return;
  end if;

  select t.* into kind from underseal.operation_type t where t.type = op.type and t.version = op.type_version;
  -- A policy that became stricter since the request holds here too, one that became laxer does not.
  needed := greatest(op.votes_required, kind.votes_required);
  select count(*)::integer + 1 into counted
  from underseal.held_vote v
  where v.operation_id = op.operation_id and v.decision = vote.decision
    and (v.decision = 'reject' or underseal._is_eligible(op.type, op.type_version, v.approver, op.operation_id));
  next_state := case
    when decision = 'approve' and counted >= needed then 'APPROVED'
    when decision = 'reject' and counted >= kind.rejections_to_end then 'REJECTED'
    else 'HELD' end;
  perform underseal._commit_durably();
  moment := underseal.clock();

  -- The vote's row follows its operation's; also in a transaction that has made its constraints immediate.
  set constraints underseal.held_operation_recorded deferred;
  update underseal.held_operation o
  set state = next_state,
    changed_by = me,
    changed_at = moment,
    approved_at = case next_state when 'APPROVED' then moment end,
    run_deadline = case next_state when 'APPROVED' then moment + o.run_within end,
    ended_at = case next_state when 'REJECTED' then moment end,
    outcome_reason = case next_state when 'REJECTED' then 'rejected' end,
    outcome_detail = case next_state when 'REJECTED' then note end,
    sealed_payload = case when next_state <> 'REJECTED' then o.sealed_payload end,
    payload_key_id = case when next_state <> 'REJECTED' then o.payload_key_id end,
    fingerprint = case when next_state <> 'REJECTED' then o.fingerprint end,
    fingerprint_key_id = case when next_state <> 'REJECTED' then o.fingerprint_key_id end
  where o.operation_id = vote.operation_id
    and o.requester <> me
    and o.state = 'HELD'
    and o.expires_at > moment
    and o.requested_at + kind.hold_for > moment
    and o.params_hash = vote.params_hash
    and o.row_version = vote.row_version
    and not exists (
      select from underseal.held_vote v where v.operation_id = o.operation_id and v.approver = me)
  returning o.* into op;
  if not found then
    select 'conflict', c.reason, c.message into said from underseal._vote_conflict(operation_id, me, params_hash, row_version, moment) c;
    select o.* into op from underseal.held_operation o where o.operation_id = vote.operation_id;
    return query select 'conflict', said.reason, said.message, op.state, null::integer, needed, null::timestamptz,
      op.run_deadline, op.mode;
    return;
  end if;

  insert into underseal.held_vote (operation_id, approver, decision, reason, params_hash, row_version, cast_at,
    sealed_decision, decision_key_id)
  values (op.operation_id, me, decision, note, vote.params_hash, vote.row_version, moment,
    sealed_decision, sealed_decision ->> 'kid');
  outcome := case next_state when 'HELD' then 'recorded' else lower(next_state) end;
  message := case next_state
    when 'HELD' then format('Your vote is recorded: %s of %s.', counted,
      case decision when 'approve' then needed else kind.rejections_to_end end)
    when 'APPROVED' then format('Approved; it must run before %s.',
      to_char(op.run_deadline at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
    else 'Rejected.' end;
  state := op.state;
  votes := counted;
  votes_required := needed;
  cast_at := moment;
  run_deadline := op.run_deadline;
  mode := op.mode;
  return next;
end
$$;
comment on function underseal.vote(uuid, text, text, text, bytea, bigint, jsonb) is
  'Casts a vote. decision: approve or reject; note: why, required of a rejection; params_hash and row_version: exactly what the approver was shown; sealed_decision: the envelope of format held-decision-v1. Outcomes: recorded (more votes needed), approved, rejected; conflict (self-approval, already-decided, expired, already-voted, hash-mismatch, version-mismatch) changes nothing; refused (reason-required); not-found; denied. Errors: US001 (H4).';

create or replace function underseal._vote_conflict(
  operation_id uuid, me text, params_hash bytea, row_version bigint, moment timestamptz, out reason text, out message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.reason, c.message
  from underseal.held_operation o
  join underseal.operation_type t on t.type = o.type and t.version = o.type_version
  cross join lateral (values
    (o.requester = me, 'self-approval',
      'Expected somebody else to decide, found the requester. Ask another approver.'),
    (o.state <> 'HELD', 'already-decided',
      format('Expected an operation that waits for votes, found it %s.', o.state)),
    (o.expires_at <= moment or o.requested_at + t.hold_for <= moment, 'expired',
      'Expected an operation that waits for votes, found it expired. The requester may request again.'),
    (exists (select from underseal.held_vote v where v.operation_id = o.operation_id and v.approver = me), 'already-voted',
      'Expected an approver who has not voted, found your vote. Another approver is needed.'),
    (o.params_hash is distinct from _vote_conflict.params_hash, 'hash-mismatch',
      'Expected the hash of this request, found another: it is not what you were shown. Look at it again, then decide.'),
    (o.row_version is distinct from _vote_conflict.row_version, 'version-mismatch',
      format('Expected row version %s, found %s: what approvers see has changed. Look at it again, then decide.',
        o.row_version, _vote_conflict.row_version))
  ) as c (applies, reason, message)
  where o.operation_id = _vote_conflict.operation_id and c.applies
  limit 1
$$;
comment on function underseal._vote_conflict(uuid, text, bytea, bigint, timestamptz) is 'Why a vote did not count, told to who may see the row.';
