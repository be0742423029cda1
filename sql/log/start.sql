-- Starting an execution: one item of the batch that drivers write, for callers who do not drive.
create or replace function underseal.start_execution(
  flow text, principal text, input json default null, execution_id text default null, flow_version integer default 1,
  after interval default null)
returns table (outcome text, reason text, message text, execution_id text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select w.outcome, w.reason, w.message,
    -- one that was minted for nothing names nothing
    case when w.outcome = 'started' or start_execution.execution_id is not null then w.execution_id end
  from underseal._write_logs(json_build_array(json_build_object(
    'verb', 'start', 'execution_id', coalesce(start_execution.execution_id, underseal._mint_id()),
    'flow', start_execution.flow, 'flow_version', start_execution.flow_version, 'principal', start_execution.principal,
    'input', start_execution.input, 'after', start_execution.after)), '{client,worker}') w
$$;
comment on function underseal.start_execution(text, text, json, text, integer, interval) is
  'Starts an execution of a flow, owned by the principal; a worker that serves the flow picks it up. input: the flow''s argument, at most 1 MiB, null for JSON null; execution_id: of the caller''s choosing, or null for one that is minted; chain~name for a child of a chain of the same owner; after: how long to wait before it runs, at most 3650 days. Outcomes: started; exists (the id is taken, whoever has it); not-found (no such chain of this owner); refused (malformed-id, malformed-flow, malformed-delay, too-large, envelope); denied (no-principal) (E3, E12).';
