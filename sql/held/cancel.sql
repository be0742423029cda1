-- Cancelling, by who asked, or by an operator.
create or replace function underseal.cancel_operation(
  operation_id uuid, principal text, note text default null, as_operator boolean default false)
returns table (outcome text, reason text, message text, was_approved boolean, run_deadline timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  operates boolean := coalesce(as_operator, false);
  me text := underseal._effective_principal(case when operates then '{operator}' else '{client}' end::text[], principal);
  op underseal.held_operation;
  approved boolean;
  said underseal.outcome;
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if me is null then
    select d.outcome, d.reason, d.message into said from underseal._denied() d;
  else
    select o.* into op from underseal.held_operation o where o.operation_id = cancel_operation.operation_id;
    if not found or not (operates or op.requester = me
      or underseal._is_eligible(op.type, op.type_version, me, op.operation_id)) then
      select n.outcome, n.reason, n.message into said from underseal._not_found(operation_id) n;
    elsif not (operates or op.requester = me) then
      said := row('conflict'::text, 'not-yours'::text,
        'Expected the requester or an operator to cancel, found an approver. Reject it instead.'::text);
    end if;
  end if;
  if said.outcome is not null then
    return query select said.outcome, said.reason, said.message, null::boolean, null::timestamptz;
    return;
  end if;

  select o.* into op from underseal.held_operation o where o.operation_id = cancel_operation.operation_id for no key update;
  approved := op.state = 'APPROVED';
  perform underseal._commit_durably();
  moment := underseal.clock();
  update underseal.held_operation o
  set state = 'CANCELLED', changed_by = me, changed_at = moment, ended_at = moment,
    outcome_reason = case when operates then 'cancelled-by-operator' else 'cancelled-by-requester' end,
    outcome_detail = note,
    sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null
  where o.operation_id = cancel_operation.operation_id
    and o.state in ('HELD', 'APPROVED')
    and coalesce(o.run_deadline, o.expires_at) > moment;
  if found then
    return query select 'cancelled', null::text, 'Cancelled.'::text, approved, op.run_deadline;
  elsif op.operation_id is null then
    return query select n.outcome, n.reason, n.message, null::boolean, null::timestamptz from underseal._not_found(operation_id) n;
  else
    return query select 'conflict', case when op.state in ('HELD', 'APPROVED') then 'expired' else 'already-decided' end,
      format('Expected an operation that waits for votes or for its run, found it %s.',
        case when op.state in ('HELD', 'APPROVED') then 'expired' else op.state end), approved, op.run_deadline;
  end if;
end
$$;
comment on function underseal.cancel_operation(uuid, text, text, boolean) is
  'Cancels an operation that is held or approved. By its requester, or with as_operator by operator access; note: why. was_approved tells the caller to spend the id in its register. Outcomes: cancelled; conflict (already-decided, expired, not-yours); not-found; denied.';
