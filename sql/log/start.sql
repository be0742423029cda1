-- Starting an execution: one item of the batch that drivers write, for callers who do not drive.
create or replace function underseal._start_execution(wanted_id text, subject text, sealed text[], item json)
returns table (outcome text, reason text, message text, execution_id text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select w.outcome, w.reason, w.message,
    -- one that was minted for nothing names nothing
    case when w.outcome = 'started' or wanted_id is not null then w.execution_id end
  from underseal._write_logs(
    json_build_array(underseal._with_seals(item, to_json(subject), to_json(sealed))), '{client,worker}') w;
end
$$;
comment on function underseal._start_execution(text, text, text[], json) is
  'Starts an execution. Apart from start_execution, which has an argument of the name of a result.';

create or replace function underseal.start_execution(
  flow text, principal text, input json default null, execution_id text default null, flow_version integer default 1,
  after interval default null, subject text default null, sealed text[] default null)
returns table (outcome text, reason text, message text, execution_id text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._start_execution(
    start_execution.execution_id, start_execution.subject, start_execution.sealed, json_build_object(
      'verb', 'start', 'execution_id', coalesce(start_execution.execution_id, underseal._mint_id()),
      'flow', start_execution.flow, 'flow_version', start_execution.flow_version, 'principal', start_execution.principal,
      'input', start_execution.input, 'after', start_execution.after))
$$;
comment on function underseal.start_execution(text, text, json, text, integer, interval, text, text[]) is
  'Starts an execution of a flow, owned by the principal; a worker that serves the flow picks it up. input: the flow''s argument, at most 1 MiB, null for JSON null; execution_id: of the caller''s choosing, or null for one that is minted; chain~name for a child of a chain of the same owner; after: how long to wait before it runs, at most 3650 days; subject: whose data its chain will hold, for good, 1 to 200 characters, null for nobody''s, or for a child the chain''s; sealed: for sealers, RFC 6901 pointers to the envelopes in {"input": …}. Outcomes: started; exists (the id is taken, whoever has it); not-found (no such chain of this owner); refused (malformed-id, malformed-flow, malformed-delay, too-large, envelope; malformed-subject, other-subject, subject-erasing; not-sealer, malformed-sealed, not-sealed, mixed-ciphers, no-subject, foreign-key, key-destroyed); denied (no-principal) (E3, E12, M2, X1).';

-- Only what a caller may say of a start is taken over: a verb, events, a worker or a lease in an item mean nothing.
create or replace function underseal._start_items(starts json) returns json
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(json_agg(underseal._with_seals(json_build_object(
    'verb', 'start', 'execution_id', coalesce(i.execution_id, to_json(underseal._mint_id())), 'minted', i.execution_id is null,
    'flow', i.flow, 'flow_version', coalesce(i.flow_version, '1'), 'principal', i.principal, 'input', i.input,
    'after', i.after), i.subject, i.sealed) order by i.place), '[]')
  from rows from (json_to_recordset(starts) as (
    flow json, principal json, input json, execution_id json, flow_version json, after json, subject json, sealed json))
    with ordinality as i (flow, principal, input, execution_id, flow_version, after, subject, sealed, place)
$$;
comment on function underseal._start_items(json) is
  'What callers ask to be started as items of a batch, with ids for those that have none. An error where one is no object, or cannot be read.';

create or replace function underseal._readable_starts(starts json) returns json
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select json_agg(case
    when json_typeof(i.item) = 'object' and underseal._can_be_read(i.item)
      then underseal._start_items(json_build_array(i.item)) -> 0
    else underseal._readable_batch(json_build_array(i.item)) -> 0 end order by i.place)
  from json_array_elements(starts) with ordinality i (item, place)
$$;
comment on function underseal._readable_starts(json) is
  'As _start_items, one by one: what cannot be read becomes an item that is refused, and takes no neighbour along (E2).';

create or replace function underseal.start_executions(starts json)
returns table (outcome text, reason text, message text, item integer, execution_id text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  batch json;
begin
  if json_typeof(starts) is distinct from 'array' then
    raise exception using errcode = 'US001',
      message = 'underseal.start_executions expected a JSON array of items, found another value';
  end if;
  if json_array_length(starts) > 1000 then
    return query select 'refused', 'too-many',
      format('Expected at most 1,000 items, found %s. Nothing is started; send fewer a call.', json_array_length(starts)),
      null::integer, null::text;
    return;
  end if;
  begin
    batch := underseal._start_items(starts);
  exception when data_exception then
    batch := underseal._readable_starts(starts);
  end;
  return query
  select w.outcome, w.reason, w.message, w.item,
    -- one that was minted for nothing names nothing
    case when w.outcome = 'started' or i.minted is not true then w.execution_id end
  from underseal._write_logs(batch, '{client,worker}') w
  join rows from (json_to_recordset(batch) as (minted boolean)) with ordinality as i (minted, place) on i.place = w.item
  order by w.item;
end
$$;
comment on function underseal.start_executions(json) is
  'Starts many executions in one call, as start_execution does each. starts: an array of at most 1,000 {"flow", "principal", "input", "execution_id", "flow_version", "after", "subject", "sealed"}, all but flow and principal optional; other members mean nothing. One outcome each, in the order of the items (item: the place from 1): started; exists; not-found; refused (malformed-item, unreadable, and as for start_execution); denied (no-principal); conflict (same-execution: an id for the second time); one row refused (too-many), which starts nothing. execution_id: the one asked for, or the one that was minted; null where nothing was started under a minted one. Errors: US001 (no array) (E2, E3, E12).';
