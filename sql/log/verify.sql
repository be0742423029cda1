-- What `verify` compares with the log: the fold as the tables have it, and what hangs on it, as of one instant.
create or replace function underseal.read_fold(execution_id text, principal text)
returns table (
  outcome text, reason text, message text, fold jsonb, last_seq bigint, log_start bigint, current_member text, last_inbox_seq bigint,
  line_members text[], pending_seq bigint, wakes jsonb, snapshot_seq bigint, snapshot_fold jsonb, snapshot_sealed boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  first_member text := underseal._line_of(underseal._member_of(execution_id));
  judged record;
begin
  select j.* into judged from underseal._judge_access('read', execution_id, principal, '{worker,operator}') j;
  if judged.cause is null then
    return query
    select 'fold', null::text, null::text, underseal._fold(e.chain_id, e.member),
      (select max(v.seq) from underseal.event v where v.chain_id = e.chain_id and v.member = e.member), e.log_start,
      f.current_member,
      f.last_inbox_seq,
      (select array_agg(m.member::text order by case when m.member = first_member then 1 else substring(m.member from '[0-9]+$')::bigint end)
        from underseal.execution m where m.chain_id = e.chain_id and underseal._line_of(m.member) = first_member),
      (select max(i.inbox_seq) from underseal.inbox_message i where i.chain_id = e.chain_id and i.line = first_member),
      (select coalesce(jsonb_agg(jsonb_build_object('kind', w.kind, 'claimed', w.claimed_by is not null, 'attempts', w.attempts,
          'holds', w.holds, 'wake_at', (extract(epoch from w.wake_at) * 1000000)::bigint) order by w.kind), '[]')
        from underseal.wake w where w.chain_id = e.chain_id and w.member = e.member and w.kind <> 'schedule'),
      s.seq, s.fold, coalesce(s.sealed, false)
    from underseal.execution e
    left join underseal.execution f on f.chain_id = e.chain_id and f.member = first_member
    left join lateral (
      select n.seq, n.fold, coalesce(n.metadata ? 'seal', false) or coalesce(underseal._value_flaw(n.state) = 'envelope', false) as sealed
      from underseal.snapshot n
      where n.chain_id = e.chain_id and n.member = e.member
      order by n.seq desc
      limit 1) s on true
    where e.chain_id = chain and e.member = me and e.incarnation = judged.incarnation;
    if found then
      return;
    end if;
  end if;
  perform underseal._record_denial('read', execution_id, judged.principal, coalesce(judged.cause, 'missing'), judged.known);
  select d.* into outcome, reason, message from underseal._execution_denied() d;
  return next;
end
$$;
comment on function underseal.read_fold(text, text) is
  'What the tables say of an execution, to be compared with what its log folds to: the fold (docs/log.md), the last number in the log and the lowest one kept, who goes on with its line, the line''s members in order, the last number given to a message and of one that waits, its wakes (wake_at in microseconds since 1970), and the newest snapshot''s fold. No payload. principal: the operator; null for a worker. Outcomes: fold; denied (execution) (E4, E12).';
