-- Who waits for an operation: written while it is open, for an execution of its requester, and removed by what ends it. Nobody
-- redirects the end of an operation to another inbox.
create or replace function underseal._check_held_waiter() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  op underseal.held_operation;
begin
  if tg_op = 'DELETE' then
    if exists (select from underseal.held_operation o where o.operation_id = old.operation_id and o.ended_at is null)
      and exists (select from underseal.execution e where e.chain_id = old.chain_id and e.member = old.line) then
      raise exception using errcode = 'US007',
        message = 'underseal.held_waiter expected to keep who waits for an operation until it ends, found a DELETE',
        hint = 'The row goes with the operation''s end, or with the chain.';
    end if;
    return old;
  end if;
  select o.* into op from underseal.held_operation o where o.operation_id = new.operation_id for no key update;
  if op.operation_id is null or op.ended_at is not null or op.mode <> 'ON_APPROVAL' or not exists (
      select from underseal.execution e
      where e.chain_id = new.chain_id and e.member = new.line and e.line = new.line and e.owner = op.requester) then
    raise exception using errcode = 'US002',
      message = 'underseal.held_waiter expected an open operation that runs in the background and a line of executions of its requester, found others',
      hint = 'Call underseal.await_operation.';
  end if;
  return new;
end
$$;
comment on function underseal._check_held_waiter() is
  'Only executions of its requester wait for an operation, while it is open; a row stays until the operation has ended or the line is gone.';

create or replace function underseal._tell_waiters() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chains text[];
  lines text[];
  told record;
begin
  select array_agg(w.chain_id), array_agg(w.line) into chains, lines
  from underseal.held_waiter w
  where w.operation_id = new.operation_id;
  if chains is null then
    return null;
  end if;
  perform underseal._lock_lines(chains, lines);
  for told in
    -- who was deleted while this waited has no row any more, and whoever took its id is told nothing
    delete from underseal.held_waiter w where w.operation_id = new.operation_id returning w.chain_id, w.line
  loop
    perform underseal._tell_held_end(new, told.chain_id, told.line);
  end loop;
  return null;
end
$$;
comment on function underseal._tell_waiters() is
  'Puts the end of an operation into the inbox of every line that waits for it, in the transaction that ends it, and removes who waited (E7).';

create or replace trigger held_waiter_check
before insert or delete on underseal.held_waiter
for each row execute function underseal._check_held_waiter();
alter table underseal.held_waiter enable always trigger held_waiter_check;
comment on trigger held_waiter_check on underseal.held_waiter is 'Who may wait, and until when.';

create or replace trigger held_waiter_fixed
before update on underseal.held_waiter
for each row execute function underseal._refuse_change();
alter table underseal.held_waiter enable always trigger held_waiter_fixed;
comment on trigger held_waiter_fixed on underseal.held_waiter is 'Who waits for what never changes.';

create or replace trigger held_waiter_no_truncate
before truncate on underseal.held_waiter
for each statement execute function underseal._refuse_change();
alter table underseal.held_waiter enable always trigger held_waiter_no_truncate;
comment on trigger held_waiter_no_truncate on underseal.held_waiter is 'Never truncated.';

create or replace trigger held_operation_tell
after update of ended_at on underseal.held_operation
for each row
when (old.ended_at is null and new.ended_at is not null)
execute function underseal._tell_waiters();
comment on trigger held_operation_tell on underseal.held_operation is 'Tells who waits for the end, at the origin.';
