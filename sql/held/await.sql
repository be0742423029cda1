-- A flow waits for the end of an operation: the transaction that ends it tells the line's inbox. Whoever waits is written down
-- under the operation's lock, which every end takes, and told under its own (E7).
create or replace function underseal._held_end(op underseal.held_operation) returns json
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  told json := json_build_object('operation_id', op.operation_id, 'state', op.state, 'reason', op.outcome_reason, 'result', op.result);
begin
  -- a message that cannot be delivered would hold up its topic for ever
  return case
    when underseal._value_flaw(told) is null then told
    else json_build_object('operation_id', op.operation_id, 'state', op.state, 'reason', op.outcome_reason, 'result', null,
      'withheld', true) end;
end
$$;
comment on function underseal._held_end(underseal.held_operation) is
  'What a flow is told of an operation''s end: {"operation_id", "state", "reason", "result"}; with "withheld" in place of a result that is no message: an envelope, or more than 512 levels.';

create or replace function underseal._tell_held_end(op underseal.held_operation, chain_id text, line text) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select from underseal._put_message(_tell_held_end.chain_id, _tell_held_end.line, '$hold/' || op.operation_id, underseal._held_end(op),
    op.operation_id::text, op.operation_id::text, null, null)
$$;
comment on function underseal._tell_held_end(underseal.held_operation, text, text) is
  'Puts the end of an operation into the inbox of a line that the caller has locked; one that has ended or is gone is told nothing.';

create or replace function underseal.await_operation(operation_id uuid, execution_id text, fence bigint)
returns table (outcome text, reason text, message text, state text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  first_member text := underseal._line_of(underseal._member_of(execution_id));
  asked record;
  op underseal.held_operation;
  e underseal.execution;
  flaw text;
begin
  perform underseal._require_read_committed();
  -- neither who asked for an operation nor whose an execution is ever changes
  select o.mode, o.requester = x.owner as own, x.incarnation into asked
  from underseal.held_operation o
  cross join underseal.execution x
  where o.operation_id = await_operation.operation_id and x.chain_id = chain and x.member = me;
  flaw := case
    when not found then 'not-found'
    when asked.own is not true then 'foreign'
    when asked.mode = 'BY_REQUESTER' then 'by-requester' end;
  if flaw is null then
    perform from underseal.held_operation o where o.operation_id = await_operation.operation_id for no key update;
    perform underseal._lock_lines(array[chain], array[first_member]);
    select o.* into op from underseal.held_operation o where o.operation_id = await_operation.operation_id;
    select x.* into e from underseal.execution x
    where x.chain_id = chain and x.member = me and x.incarnation = asked.incarnation;
    flaw := case
      when op.operation_id is null or e.chain_id is null then 'not-found'
      when await_operation.fence is distinct from e.fence then 'stale-fence'
      when underseal._is_ended(e.status) then 'ended' end;
  end if;
  if flaw is not null then
    return query select case when flaw = 'not-found' then flaw when flaw in ('stale-fence', 'ended') then 'conflict' else 'refused' end,
      case when flaw <> 'not-found' then flaw end, underseal._await_message(flaw), null::text;
    return;
  end if;

  if op.ended_at is not null then
    perform underseal._tell_held_end(op, chain, first_member);
    return query select 'told', null::text, 'It has ended; the message is in the inbox.'::text, op.state;
    return;
  end if;
  insert into underseal.held_waiter (operation_id, chain_id, line)
  values (op.operation_id, chain, first_member)
  on conflict on constraint held_waiter_pkey do nothing;
  return query select case when found then 'awaited' else 'unchanged' end, null::text, null::text, op.state;
end
$$;
comment on function underseal.await_operation(uuid, text, bigint) is
  'Has the end of a held operation told to an execution, or to the one that goes on with it by then: a message of topic $hold/ and the operation''s id, in the transaction that ends it, whatever ends it, with {"operation_id", "state", "reason", "result"}. For the driver, before it parks on that topic. fence: the driver''s. Result: the operation''s state now. Outcomes: awaited; unchanged (it was awaited before); told (it has ended: the message is there, or was consumed lately); not-found (the operation, or the execution); conflict (stale-fence, ended); refused (foreign: its requester is not the execution''s owner; by-requester: it runs only when its requester asks again) (E6, E7).';

create or replace function underseal._await_message(flaw text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case flaw
    when 'not-found' then 'Expected a held operation and an execution of these ids, found that one is missing.'
    when 'foreign' then 'Expected an operation that the owner of the execution asked for, found another''s. A flow waits for what it asked for.'
    when 'by-requester' then 'Expected an operation that runs in the background, found one that runs when its requester asks again. Ask again instead of waiting.'
    else underseal._append_message(flaw) end
$$;
comment on function underseal._await_message(text) is 'What was expected of who waits, what was found and what to do.';
