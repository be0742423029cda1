-- What every verb that changes one execution for a caller begins with: judged without a lock, locked, and looked at again in
-- a statement after the lock. Who an execution belongs to never changes, so it is enough that it is still the one judged.
create or replace function underseal._lock_judged(
  op text, execution_id text, claimed text, accesses text[], system_too boolean default false,
  parent_too boolean default false, out allowed boolean, out principal text, out found_row underseal.execution)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  parent text := case when parent_too then underseal._parent_line_of(underseal._line_of(underseal._member_of(execution_id))) end;
  system boolean := system_too and underseal._is_system(claimed);
  judged record;
begin
  select j.* into judged
  from underseal._judge_access(case when system then 'read' else op end, execution_id, claimed, accesses) j;
  principal := judged.principal;
  if judged.cause is null then
    if parent is not null then
      perform underseal._lock_lines(array[chain], array[parent]);
    end if;
    perform from underseal.execution e where e.chain_id = chain and e.member = me for no key update;
    select e.* into found_row from underseal.execution e
    where e.chain_id = chain and e.member = me and e.incarnation = judged.incarnation;
    judged.cause := case when not found then 'missing' end;
  end if;
  allowed := judged.cause is null;
  if not allowed then
    perform underseal._record_denial(op, execution_id, principal, judged.cause, judged.known);
  end if;
end
$$;
comment on function underseal._lock_judged(text, text, text, text[], boolean, boolean) is
  'Judges a caller, without a lock, then locks the execution and reads it; one that is gone by then, or is another of the same id, is denied like a missing one. A denial is recorded. system_too: whether a worker may do it in nobody''s name; parent_too: whether to lock the line that asked for a child before the child, since its end is told there.';
