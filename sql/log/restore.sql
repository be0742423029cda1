-- An execution that goes on from a state that was exported from another, here or in a database that is gone.
create or replace function underseal._restore_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'malformed-state' then 'Expected a state as it is exported, of version 1, found something else. Export it again.'
    when 'bound-login' then 'Expected a login that may name whom it acts for, found one that is bound to a principal: whoever restores a state says what its steps returned. Have a service do it.'
    else underseal._append_message(reason) end
$$;
comment on function underseal._restore_message(text) is 'What was expected of a state, what was found and what to do.';

create or replace function underseal._asserts(accesses text[]) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select pg_has_role(session_user, underseal._owner(), 'MEMBER') or exists (
    select from underseal.access_grant g
    where g.access = any (accesses) and g.principal = 'asserted'
      and pg_has_role(session_user, to_regrole(quote_ident(g.grantee))::oid, 'MEMBER'))
$$;
comment on function underseal._asserts(text[]) is
  'Whether this session may name whom it acts for under one of the accesses named (E13).';

create or replace function underseal._is_state(state json) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return json_typeof(state) = 'object' and underseal._can_be_read(state) and state ->> 'v' = '1'
    and json_typeof(state -> 'flow') = 'string'
    and (state ->> 'flow_version')::integer > 0 and (state ->> 'began_as')::integer > 0
    and json_typeof(state -> 'events') = 'array'
    and not exists (
      select from json_array_elements(state -> 'events') e (event)
      where case when json_typeof(e.event) <> 'array' then true else json_array_length(e.event) <> 2
        or json_typeof(e.event -> 0) <> 'string' or json_typeof(e.event -> 1) <> 'object' end);
exception when data_exception or statement_too_complex then
  return false;
end
$$;
comment on function underseal._is_state(json) is
  'Whether a value has the form of an exported state. What is in its events is for the flow that goes on from them.';

create or replace function underseal._restore_execution(state json, claimed text, wanted_id text)
returns table (outcome text, reason text, message text, execution_id text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text := case
    when underseal._effective_principal('{client}', claimed) is not null and not underseal._asserts('{client}')
      then 'bound-login'
    when underseal._is_state(state) is not true then 'malformed-state' end;
  written underseal.appended;
begin
  if flaw is not null then
    return query select 'refused', flaw, underseal._restore_message(flaw), null::text;
    return;
  end if;
  select w.* into written
  from underseal._write_logs(json_build_array(json_build_object(
    'verb', 'start', 'execution_id', coalesce(wanted_id, underseal._mint_id()), 'flow', state -> 'flow',
    'flow_version', state -> 'flow_version', 'principal', claimed, 'input', coalesce(state -> 'input', 'null'),
    'events', json_build_array(json_build_object('type', 'STATE_RESTORED', 'data', json_build_object(
      'flow_version', state -> 'began_as', 'events', state -> 'events',
      'not_carried', coalesce(state -> 'not_carried', '[]')))))), '{client}') w;
  return query select case written.outcome when 'started' then 'restored' else written.outcome end, written.reason,
    written.message, case written.outcome when 'started' then written.execution_id end;
end
$$;
comment on function underseal._restore_execution(json, text, text) is
  'Restores a state. Apart from restore_execution, which has an argument of the name of a result.';

create or replace function underseal.restore_execution(state json, principal text, execution_id text default null)
returns table (outcome text, reason text, message text, execution_id text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._restore_execution(
    restore_execution.state, restore_execution.principal, restore_execution.execution_id)
$$;
comment on function underseal.restore_execution(json, text, text) is
  'Starts an execution, owned by the principal, that goes on from a state that was exported: {"v": 1, "flow", "flow_version", "began_as", "input", "events", "not_carried"}, at most 1 MiB (docs/formats.md). Its first event after EXECUTION_STARTED, in the same transaction, is STATE_RESTORED, which holds the events. It touches no other execution. Whoever calls it says what the flow''s steps returned, so it is for logins that may name whom they act for. execution_id: of the caller''s choosing, or null for one that is minted. Outcomes: restored; exists; not-found (no such chain of this owner); refused (malformed-state; bound-login; malformed-id; malformed-flow; too-large; envelope; unreadable); denied (no-principal) (E6, E12, E13).';
