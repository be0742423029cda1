-- The sweep ends what time has ended: requests nobody decided, approvals nobody ran, runs nobody owns.
create or replace function underseal.sweep_operations(max_rows integer default 100)
returns table (outcome text, reason text, message text, operation_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  due record;
  waiting record;
  began timestamptz := underseal.clock();
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  for due in
    (select o.operation_id, 'expired' as what from underseal.held_operation o
     where o.state = 'HELD' and o.expires_at <= began order by o.expires_at limit max_rows)
    union all
    (select o.operation_id, 'missed' from underseal.held_operation o
     where o.state = 'APPROVED' and o.run_deadline <= began order by o.run_deadline limit max_rows)
    union all
    (select o.operation_id, 'outcome-unknown' from underseal.held_operation o
     where o.state = 'EXECUTING' and o.run_lease_until <= began order by o.run_lease_until limit max_rows)
  loop
    -- A row of its own subtransaction: one bad row stops nobody (H8.2).
    begin
      perform from underseal.held_operation o where o.operation_id = due.operation_id for no key update skip locked;
      continue when not found;
      -- Its end is told to who waits for it. Whoever holds one of those executions is not waited for: this pass holds others.
      select array_agg(w.chain_id) as chains, array_agg(w.line) as lines into waiting
      from underseal.held_waiter w
      where w.operation_id = due.operation_id;
      continue when waiting.chains is not null and not underseal._lock_lines(waiting.chains, waiting.lines, false);
      moment := underseal.clock();
      if due.what = 'outcome-unknown' then
        continue when not underseal._end_lost_run(due.operation_id, moment);
      else
        continue when not underseal._end_overdue(due.operation_id, moment);
      end if;
      -- What was deferred to the commit is judged here, inside the row's own subtransaction.
      set constraints underseal.held_operation_recorded immediate;
      set constraints underseal.held_operation_recorded deferred;
      return query select due.what, null::text, null::text, due.operation_id;
    exception when others then
      if underseal._is_no_fault_of_a_row(sqlstate) then
        raise;
      end if;
      perform underseal._report(due.operation_id::text, 'sweep-failed',
        format('The sweep could not end it (SQLSTATE %s). Run underseal doctor; the row may have been edited.', sqlstate));
      return query select 'failed', sqlstate::text, 'This row could not be ended; see operator_reports.'::text, due.operation_id;
    end;
  end loop;
end
$$;
comment on function underseal.sweep_operations(integer) is
  'Ends up to max_rows of each: requests past their expiry and approvals past their run deadline (EXPIRED), runs past their lease (OUTCOME_UNKNOWN). Many sweepers never wait for each other, nor for an execution that waits for the end: one that is held is left to the next pass. Outcomes, a row each: expired, missed, outcome-unknown, failed (with the SQLSTATE; the others go on) (H5.4, H8.2).';

create or replace function underseal._end_overdue(operation_id uuid, moment timestamptz) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update underseal.held_operation o
  set state = 'EXPIRED', changed_by = 'underseal:sweep', changed_at = moment, ended_at = moment,
    outcome_reason = case o.state when 'HELD' then 'not-approved-in-time' else 'not-run-in-time' end,
    sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null
  where o.operation_id = _end_overdue.operation_id
    and ((o.state = 'HELD' and o.expires_at <= moment) or (o.state = 'APPROVED' and o.run_deadline <= moment));
  return found;
end
$$;
comment on function underseal._end_overdue(uuid, timestamptz) is
  'Ends a request that nobody decided in time, or an approval that nobody ran in time, as EXPIRED; the caller holds its lock (H5.4).';
